"""A student learns from a teacher that runs ahead: corro run -np 2 python services_teacher.py"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax, softmax

import corro

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()

corro.init()
torch.manual_seed(3)
torch.set_num_threads(1)
teacher = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
teacher.append(nn.Linear(256, 8)).requires_grad_(False)  # So no gradient goes back to it.
student = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8))
agreed: list[float] = []


def images(step: int) -> Tensor:
    return torch.randn(64, 16, generator=torch.Generator().manual_seed(step))


def distance(student: Tensor, teacher: Tensor) -> Tensor:  # Hinton et al., 2015, at temperature 1.
    return kl_div(log_softmax(student, 1), softmax(8 * teacher, 1), reduction="batchmean")


def compare(student: Tensor, teacher: Tensor) -> None:
    agreed.append((student.argmax(1) == teacher.argmax(1)).float().mean().item())


with corro.Graph() as graph:
    x = graph.service(images, slots=4, on=0)
    told = graph.service(teacher, x, name="teacher", slots=4, on=0)  # Four steps ahead at most.
    guess = graph.service(student, x, name="student", on=corro.size() - 1)
    loss = graph.service(distance, guess, told, on=corro.size() - 1)
    graph.service(compare, guess, told, outputs=(), on=corro.size() - 1)
    graph.minimize(loss, torch.optim.Adam(student.parameters(), 1e-2))
    graph.run(args.steps)
    if corro.rank() == corro.size() - 1:
        last = agreed[-20:]
        print(f"demo: first={agreed[0]:.3f} last={sum(last) / len(last):.3f}")
