"""Where a plan's ranks sit: numbered by tensor parallelism first, then data, then the stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corro.planned import Shape


@dataclass(frozen=True, slots=True)
class Seats:
    """One rank's view of them."""

    shape: Shape
    ranks: Sequence[int]
    """Of the world, by seat."""
    own: int

    @property
    def stage(self) -> int:
        return self.own // self._of_stage

    @property
    def data(self) -> int:
        """Which of the stage's samples are this rank's."""
        return self.own // self.shape.tensor % self.shape.data

    @property
    def tensor(self) -> int:
        """Which part of the stage's tensors is this rank's."""
        return self.own % self.shape.tensor

    def speaks_on_axis(self, number: int) -> bool:
        """Whether it is this one of the axis that speaks for what all have, by its number."""
        return number % self.shape.tensor == self.tensor

    @property
    def axis(self) -> list[int]:
        """Ranks of the same stage and samples."""
        first = self.own - self.tensor
        return list(self.ranks[first : first + self.shape.tensor])

    @property
    def columns(self) -> list[list[int]]:
        """Ranks of each stage that have the same part of its tensors as this one."""
        size = self._of_stage
        return [
            list(self.ranks[first : first + size][self.tensor :: self.shape.tensor])
            for first in range(0, len(self.ranks), size)
        ]

    def first_of(self, stage: int) -> int:
        return self.ranks[stage * self._of_stage]

    @property
    def _of_stage(self) -> int:
        return self.shape.tensor * self.shape.data
