"""Gradients of a stage's parameters, summed over all ranks that have a part of them.

A rank's gradients are those of its own samples, and of its own layers' use of a parameter. So a
parameter that one stage uses is summed over this stage's ranks, and one that several stages use (an
embedding whose table is the head's, too) over the ranks of all of them. Losses are weighted by
samples before, so that sums are the gradients of the whole batch's mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import corro.torch as ct
from corro._context import Group, new_group


@dataclass(frozen=True, slots=True)
class Share:
    """Parameters that the same ranks use."""

    group: Group
    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]

    def reduce(self) -> None:
        """Sums their gradients; where none came to any rank, it stays None. Blocks.

        Flags say where one came: as many numbers as parameters, in the same collective.
        """
        if self.group.size() == 1:
            return
        flags = torch.tensor([0.0 if each.grad is None else 1.0 for each in self.parameters])
        gradients = [_gradient_of(each) for each in self.parameters]
        ct.grouped_allreduce_([*gradients, flags], ct.Sum, group=self.group)
        for parameter, gradient, came in zip(
            self.parameters, gradients, flags.tolist(), strict=True
        ):
            parameter.grad = gradient if came else None


def _gradient_of(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad


def groups_of(
    users: Iterable[Sequence[int]], ranks_of_stages: Sequence[Sequence[int]]
) -> dict[tuple[int, ...], Group]:
    """Returns the ranks of each stage, and of all stages that use a parameter; collective.

    Args:
        users: the stages that use each parameter, in order.
        ranks_of_stages: ranks of the world.
    """
    sets = {*map(tuple, users), *((stage,) for stage in range(len(ranks_of_stages)))}
    return {
        stages: new_group([rank for stage in stages for rank in ranks_of_stages[stage]])
        for stages in sorted(sets)
    }


def shares_of(
    users: Mapping[str, Sequence[int]],
    parameters: Mapping[str, nn.Parameter],
    groups: Mapping[tuple[int, ...], Group],
) -> list[Share]:
    """Returns the shares of these parameters, which one stage has.

    Args:
        users: the stages that use each parameter, in order.
        parameters: of this rank's model, by name.
        groups: from groups_of().
    """
    sets: dict[tuple[int, ...], list[str]] = {}
    for name, stages in users.items():
        sets.setdefault(tuple(stages), []).append(name)
    return [
        Share(groups[stages], tuple(names), tuple(parameters[name] for name in names))
        for stages, names in sorted(sets.items())
    ]
