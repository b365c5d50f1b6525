"""Trains a small GPT as a pipeline (1F1B), and in one process: corro run -np 2 gpt_pipeline.py"""

import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import corro
from corro.graph import Channel, Lane, Plan, Service

STEPS, MICROS, BATCH, TIME, WIDTH = 5, 8, 4, 32, 32


def plan_of(ranks: int) -> Plan:
    lanes, channels, services = [], [], []
    for r in range(ranks):  # It holds at most ranks - r micro-batches between F and B.
        x, dx = ((f"x{r}",), (f"dx{r}",)) if r > 0 else ((), ())
        y, dy = ((f"x{r + 1}",), (f"dx{r + 1}",)) if r + 1 < ranks else ((), ())
        lane, held, size = f"rank{r}", f"held{r}", 4 * BATCH * TIME * WIDTH
        lanes += [Lane(name=lane, ranks=(r,))]
        channels += [Channel(name=name, slots=2, slot_bytes=size) for name in y + dy]
        channels += [Channel(name=held, slots=ranks - r)]
        services += [Service(name=f"B{r}", lane=lane, inputs=(*dy, held), outputs=dx)]
        services += [Service(name=f"F{r}", lane=lane, inputs=x, outputs=(*y, held))]
    return Plan(ranks=ranks, lanes=(*lanes,), channels=(*channels,), services=(*services,))


def tensor(slot: memoryview) -> Tensor:
    return torch.frombuffer(slot, dtype=torch.float32).view(BATCH, TIME, WIDTH)


def loss_of(y: Tensor, micro: int) -> Tensor:
    return F.cross_entropy(y.flatten(0, 1), windows[micro, :, 1:].flatten()) / MICROS


def forward(firing: corro.Firing) -> None:
    x = tensor(firing.inputs[0]).clone().requires_grad_() if rank else windows[firing.micro, :, :-1]
    y = loss_of(stage(x), firing.micro) if last else stage(x)
    held[firing.micro] = x, y
    if not last:
        tensor(firing.outputs[0]).copy_(y.detach())


def backward(firing: corro.Firing) -> None:
    x, y = held.pop(firing.micro)
    y.backward(None if last else tensor(firing.inputs[0]))
    if rank > 0:
        tensor(firing.outputs[0]).copy_(x.grad)
    losses[firing.micro // MICROS] += y.item() if last else 0


corro.init()
rank, ranks, last = corro.rank(), corro.size(), corro.rank() == corro.size() - 1
torch.manual_seed(1)
text = torch.tensor(list(Path(torch.__file__).read_bytes()))
windows = text[torch.randint(len(text) - TIME, (STEPS * MICROS, BATCH, 1)) + torch.arange(TIME + 1)]
causal = nn.Transformer.generate_square_subsequent_mask(TIME)
block = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True)
block.register_forward_pre_hook(lambda _, x: (*x, causal))
blocks = map(copy.deepcopy, [block] * 4)
whole = nn.Sequential(nn.Embedding(256, WIDTH), *blocks, nn.Linear(WIDTH, 256))
cuts = [0, *(1 + 4 * r // ranks for r in range(1, ranks)), len(whole)]
stage = copy.deepcopy(whole[cuts[rank] : cuts[rank + 1]])
held, losses, worst = {}, [0.0] * STEPS, 0.0
optimizer = torch.optim.AdamW([*stage.parameters(), *whole.parameters()], 1e-3)
loaded = corro.load_plan(plan_of(ranks))
for step in range(STEPS):
    loaded.run((step + 1) * MICROS, {f"F{rank}": forward, f"B{rank}": backward})
    micros = range(step * MICROS, (step + 1) * MICROS) if last else []
    for loss in [loss_of(whole(windows[micro, :, :-1]), micro) for micro in micros]:
        loss.backward()
        losses[step] -= loss.item()
    worst = max(worst, abs(losses[step]))
    optimizer.step()
    optimizer.zero_grad()
if last:
    print(f"pipeline: {ranks=} micro_batches={MICROS} steps={STEPS} max_loss_difference={worst}")
