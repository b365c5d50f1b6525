"""Experts as services, one on each rank, and a gate: corro run -np 3 python services_experts.py"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import corro

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--picture", help="where to write what services there are, as SVG")
args = parser.parse_args()


class Expert(nn.Module):
    """Computes the rows of which the gate thinks that they are its own."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x: Tensor, gates: Tensor) -> Tensor:
        rows = (gates.argmax(1) == self.number).nonzero()[:, 0]
        own = self.net(x[rows]) * gates[rows, self.number, None]
        return torch.zeros(len(x), 1).index_copy(0, rows, own)


def load(step: int) -> tuple[Tensor, Tensor]:  # A function with other rules in other places.
    x = torch.rand(256, 2, generator=torch.Generator().manual_seed(step)) * 2 - 1
    y = torch.where(x[:, 0] > 0, torch.sin(4 * x[:, 1]), -x.prod(1))
    return x, y[:, None]


corro.init()
torch.manual_seed(1)
torch.set_num_threads(1)
gate = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, corro.size()), nn.Softmax(1))
experts = [Expert(number) for number in range(corro.size())]
parameters = [each for module in (gate, *experts) for each in module.parameters()]
losses: list[float] = []

with corro.Graph() as graph:
    x, y = graph.service(load, name="load", outputs=("x", "y"), on=0)
    gates = graph.service(gate, x, name="gate", on=0)
    parts = []
    for rank, expert in enumerate(experts):
        parts += [graph.service(expert, x, gates, name=f"expert{rank}", on=rank)]
    mixed = graph.service(lambda *each: sum(each), *parts, name="mix", on=0)
    loss = graph.service(mse_loss, mixed, y, name="loss", on=0)
    graph.service(lambda each: losses.append(each.item()), loss, name="keep", outputs=(), on=0)
    graph.minimize(loss, torch.optim.Adam(parameters, 1e-2))
    graph.run(args.steps)
    if corro.rank() == 0:
        print(f"demo: first={losses[0]:.4f} last={sum(losses[-10:]) / len(losses[-10:]):.4f}")
        if args.picture:
            Path(args.picture).write_text(graph.svg(), encoding="utf-8")
