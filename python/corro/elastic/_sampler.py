"""ElasticSampler: each sample once in a data epoch, however often ranks come or go.

One order of all samples is drawn for a data epoch. A step takes the next samples of it, from a to
a + n, and each rank has a contiguous part of them. So the cursor is one integer, the same on all
ranks: how many samples were processed. A new world goes on from there, and needs to know nothing
else.

    order         . . . . . . . . . . . . . . . . . . . . . . .
    processed     |---------->a
    the next step              |rank 0|rank 1|rank 2|

The last step has what is left. Parts differ by one sample at most, and a batch weighs as much as it
has samples. Where a rank has none, it takes the step's first sample with weight 0: all ranks call
forward and backward equally often, and the gradients of that rank are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from importlib import import_module
from typing import Any

from corro import _context
from corro.elastic._step import Step, recorded
from corro.errors import InvalidArgumentError


class ElasticSampler:
    """The batches of one rank in a data epoch, without what all ranks have processed.

    For example::

        sampler = corro.elastic.ElasticSampler(dataset, batch_size=32)
        loader = DataLoader(dataset, batch_sampler=sampler)
        state = corro.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)

        @corro.elastic.run
        def train(state):
            while state.epoch < 10:
                sampler.set_epoch(state.epoch)
                for step in sampler.steps(loader):
                    optimizer.zero_grad()
                    for (x, y), weight in step:
                        (loss(model(x), y) * weight).backward()
                    optimizer.step()
                    step.record()
                state.epoch += 1

    As an attribute of a state it goes on with the ranks that there are. With `global_batch` a step
    has as many samples in every world: a rank takes its part in several batches if that is larger
    than batch_size. Tell the optimizer at the beginning of the function, and gradients travel once
    a step: `optimizer.set_backward_passes_per_step(sampler.passes)`.

    Needs numpy to shuffle, and no torch. Externally synchronized.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        *,
        global_batch: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        """The arguments are the same on all ranks.

        Args:
            dataset: what has as many samples as its length, which stays as it is.
            batch_size: how many samples a rank takes at once, at most.
            global_batch: how many samples all ranks take in a step; batch_size each if not given.
            shuffle: the order is drawn from seed and data epoch; else it is the data set's.
            seed: any integer.
        """
        for name, number in (("batch_size", batch_size), ("global_batch", global_batch)):
            if number is not None and (not isinstance(number, int) or number < 1):
                raise InvalidArgumentError(
                    f"ElasticSampler: {name} has to be a positive integer, not {number!r}"
                )
        self.dataset = dataset
        self.batch_size = batch_size
        self.global_batch = global_batch
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0  # By all ranks, in this data epoch.

    @property
    def passes(self) -> int:
        """How many batches a rank has in a step; fewer in the last one of a data epoch."""
        _, ranks = self._place()
        return _batches_of(self._samples_of(ranks), ranks, self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Begins a data epoch; one that has begun goes on."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.processed_num = 0

    def steps(self, loader: Iterable[Any] | None = None) -> Iterator[Step]:
        """Yields what is left of the data epoch, step by step, as many steps on all ranks.

        Each step has to be recorded before the next one is asked for.

        Args:
            loader: a DataLoader that has this sampler as its batch_sampler, whose worker processes
                may fetch ahead; a step's batches are then the loader's. If not given, they are
                lists of indices.

        Raises:
            InvalidArgumentError: the loader has another sampler.
        """
        if getattr(loader, "batch_sampler", self) is not self:
            raise InvalidArgumentError(
                "ElasticSampler: the loader does not take its batches from this sampler: make it by"
                " DataLoader(dataset, batch_sampler=sampler)"
            )
        return recorded(self._steps(self if loader is None else loader))

    def __iter__(self) -> Iterator[list[int]]:
        """Yields the indices of this rank's batches from the cursor on; steps() divides them."""
        order = self._order()
        for _, parts in self._planned():
            for positions, _ in parts:
                yield order(positions)

    def __len__(self) -> int:
        """Returns how many batches are left."""
        _, ranks = self._place()
        steps, rest = divmod(len(self.dataset) - self.processed_num, self._samples_of(ranks))
        return steps * self.passes + _batches_of(rest, ranks, self.batch_size)

    def state_dict(self) -> dict[str, int]:
        """Returns the data epoch, and how far all ranks are in it."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Goes on from there, with the ranks that there are."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]

    def _place(self) -> tuple[int, int]:
        """Returns this rank, and how many there are."""
        return _context.rank(), _context.size()

    def _samples_of(self, ranks: int) -> int:
        """Returns how many samples a step has, but for the last one."""
        return self.global_batch or self.batch_size * ranks

    def _planned(self) -> Iterator[tuple[range, list[tuple[range, float]]]]:
        """Yields the positions that each step takes, and this rank's batches of them."""
        rank, ranks = self._place()
        left = range(self.processed_num, len(self.dataset))
        samples = self._samples_of(ranks)
        while left:
            taken, left = left[:samples], left[samples:]
            yield taken, batches_of_rank(taken, rank, ranks, self.batch_size)

    def _order(self) -> Callable[[range], list[int]]:
        """Returns what gives the indices at positions of the order."""
        if not self.shuffle:
            return list
        drawn = import_module("corro.elastic._permutation")  # Needs numpy; corro does without.
        permutation = drawn.Permutation(len(self.dataset), self.seed, self.epoch)
        return permutation.indices  # type: ignore[no-any-return]

    def _steps(self, loader: Iterable[Any]) -> Iterator[Step]:
        planned = self._planned()
        batches = iter(loader)
        for taken, parts in planned:

            def advance(stop: int = taken.stop) -> None:
                self.processed_num = stop

            weights = [weight for _, weight in parts]
            yield Step(_with_batches(batches, weights), len(taken), advance)


def batches_of_rank(
    taken: range, rank: int, ranks: int, batch_size: int
) -> list[tuple[range, float]]:
    """Returns the positions and the weight of each batch that the rank has of a step's positions.

    All ranks have as many batches, as even as can be. One that would be empty has the step's first
    position, and weight 0.
    """
    mine = _part(taken, rank, ranks)
    count = _batches_of(len(taken), ranks, batch_size)
    parts = [_part(mine, i, count) for i in range(count)]
    return [(part or taken[:1], len(part) * ranks / len(taken)) for part in parts]


def _batches_of(samples: int, ranks: int, batch_size: int) -> int:
    most = -(-samples // ranks)
    return -(-most // batch_size)


def _part(whole: range, number: int, parts: int) -> range:
    return whole[len(whole) * number // parts : len(whole) * (number + 1) // parts]


def _with_batches(batches: Iterator[Any], weights: list[float]) -> Iterator[tuple[Any, float]]:
    for weight in weights:
        try:
            batch = next(batches)
        except StopIteration:
            raise InvalidArgumentError(
                "ElasticSampler: the loader has ended before its sampler has: make it by"
                " DataLoader(dataset, batch_sampler=sampler)"
            ) from None
        yield batch, weight
