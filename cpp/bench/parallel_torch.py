"""parallel_torch.py CASE WAY STEPS: steps of a GPT on two ranks, by a plan or as torch has it.

    corro run -np 2 --show 0 python cpp/bench/parallel_torch.py zero3 corro 6

CASE is `zero3`, `pipeline` or `tensor`. WAY is `corro`, a plan of that kind by corro.parallelize(),
or what torch has itself over a back end, `gloo` or `torch-corro`: fully_shard() (FSDP2) of each
layer, torch.distributed.pipelining with 1F1B, or parallelize_module() with columns before rows. All
have the same batch, micro-batches and AdamW. Two more cases are for `corro` alone: `data`, and what
is `planned` for the ranks as they are.

Rank 0 prints {"us": 1.0, "min_us": 1.0}: the median and the shortest step of the slowest rank. It
is checked before that the first losses are those of one process.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import corro

WIDTH, BLOCKS, HEADS, VOCABULARY, LENGTH, SAMPLES, MICRO = 512, 4, 8, 1024, 64, 8, 4
CHECKED = 3  # Steps whose losses are compared.
Step = Callable[[], float]  # Returns the mean loss of the batch, on rank 0.


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        places: Tensor = self.places(torch.arange(tokens.shape[1]))
        return self.tokens(tokens) + places


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        normed = self.norm(x)
        # As many heads as there are here: torch's modules have some of them.
        heads = [
            each(normed).view(n, length, -1, WIDTH // HEADS).transpose(1, 2)
            for each in (self.q, self.k, self.v)
        ]
        seen = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def gpt() -> nn.Sequential:
    torch.manual_seed(0)
    head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))
    return nn.Sequential(Embedding(), *(Block() for _ in range(BLOCKS)), head)


def batch() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(0, VOCABULARY, (SAMPLES, LENGTH + 1))
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(scores: Tensor, wanted: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), wanted.flatten())


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-3)


# -- ways ------------------------------------------------------------------------------------------


def by_plan(case: str) -> Step:
    pins: dict[str, dict[str, object]] = {
        "zero3": {"data": 2, "pipeline": 1, "zero": 3, "micro_batch": SAMPLES // 2},
        "pipeline": {"data": 1, "pipeline": 2, "zero": 0, "micro_batch": SAMPLES // MICRO},
        "tensor": {"tensor": 2, "pipeline": 1, "zero": 0, "micro_batch": SAMPLES},
        "data": {"data": 2, "pipeline": 1, "zero": 0, "micro_batch": SAMPLES // 2},
        "planned": {},
    }
    model, whole = gpt(), batch()
    trainer = corro.parallelize(
        model,
        adam(model),
        lambda model, batch: loss_of(model(batch[0]), batch[1]),
        whole,
        resources=None if case == "planned" else machines(),
        pins={**pins[case], "recompute": "none"},
    )
    return lambda: trainer.step(whole)


def machines() -> dict[str, object]:
    """What the plan is for; all that it would decide by that is pinned."""
    core = {"memory": "4 GB", "peak": {"f32": "80 GFLOP/s"}, "memory_bandwidth": "10 GB/s"}
    link = {"bandwidth": "5 GB/s", "latency": "5 us"}
    host = {"name": "localhost", "device": "core", "devices": 2, "link": link}
    return {"corro_cluster": 1, "name": "here", "devices": {"core": core}, "hosts": [host]}


def by_fsdp() -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, (tokens, wanted) = gpt(), batch()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = adam(model)
    own = slice(dist.get_rank() * SAMPLES // 2, (dist.get_rank() + 1) * SAMPLES // 2)

    def step() -> float:
        loss = loss_of(model(tokens[own]), wanted[own])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach() / 2
        dist.all_reduce(mean)
        return float(mean)

    return step


def by_pipelining() -> Step:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    model, (tokens, wanted) = gpt(), batch()
    half, rank = len(model) // 2, dist.get_rank()
    own = model[:half] if rank == 0 else model[half:]
    stage = PipelineStage(own, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO, loss_fn=loss_of)
    optimizer = adam(own)

    def step() -> float:
        losses: list[Tensor] = []
        if rank == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=wanted, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        mean = torch.stack(losses).detach().mean() if losses else torch.zeros(())
        dist.all_reduce(mean)
        return float(mean)

    return step


def by_tensor() -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model, (tokens, wanted) = gpt(), batch()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    rows = {name: RowwiseParallel() for name in ("out", "down")}
    embedding, *blocks, head = model
    for block in blocks:
        parallelize_module(block, mesh, {**columns, **rows})
    table = RowwiseParallel(input_layouts=Replicate())
    parallelize_module(embedding, mesh, {"tokens": table})
    parallelize_module(head, mesh, {"1": ColwiseParallel(output_layouts=Replicate())})
    optimizer = adam(model)

    def step() -> float:
        loss = loss_of(model(tokens), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


# -- measuring -------------------------------------------------------------------------------------


def check_losses(losses: list[float]) -> None:
    model, (tokens, wanted) = gpt(), batch()
    optimizer = adam(model)
    for number, loss in enumerate(losses):
        own = loss_of(model(tokens), wanted)
        own.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not math.isclose(loss, own.item(), rel_tol=1e-4):
            sys.exit(f"the loss of step {number} is {loss}, and of one process {own.item()}")


def measured(step: Step, steps: int, together: Callable[[float], float]) -> list[float]:
    """Returns microseconds of each step of the slowest rank.

    Args:
        together: takes a number of each rank, and returns the largest; all return together.
    """
    taken = []
    for _ in range(steps):
        together(0)
        begin = time.perf_counter()
        step()
        taken.append(together((time.perf_counter() - begin) * 1e6))
    return taken


def main() -> None:
    case, way, steps = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo" if way == "gloo" else "corro")
    ways: dict[str, Callable[[], Any]] = {
        "zero3": by_fsdp,
        "pipeline": by_pipelining,
        "tensor": by_tensor,
    }
    step = by_plan(case) if way == "corro" else ways[case]()

    def together(number: float) -> float:
        largest = torch.tensor(number, dtype=torch.float64)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return largest.item()

    losses = [step() for _ in range(CHECKED)]
    if dist.get_rank() == 0:
        check_losses(losses)
    taken = measured(step, int(steps), together)
    if dist.get_rank() == 0:
        line = {"us": statistics.median(taken), "min_us": min(taken)}
        print(json.dumps(line), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
