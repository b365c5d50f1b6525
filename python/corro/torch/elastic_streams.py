"""ElasticStreams: samples that can only be read in order, from partitions with an offset each.

The length of a partition is known when it has ended. So before each step ranks tell each other what
they have read from which partition for it: one allreduce of two integers for each partition. From
that everybody knows the offsets after the step, the weights, and whether anything is left at all.

    offsets  --each rank reads a batch-->  sums of what was read  --record()-->  offsets

A rank has every ranks-th of the partitions that have not ended, and reads one after the other. They
are divided anew in each call of steps(): after a resize, from the offsets that were recorded last.
What a rank had read beyond them is read again by whoever has the partition now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import IterableDataset

from corro import _context
from corro._reduce_op import Sum
from corro.elastic._step import Step, recorded
from corro.errors import InvalidArgumentError
from corro.torch import verbs


class ElasticStreams(IterableDataset[Any]):
    """The samples of partitions (files, topics), each once in a data epoch, by any ranks.

    For example::

        def read(path, offset):
            with open(path) as lines:
                yield from itertools.islice(lines, offset, None)

        streams = corro.elastic.ElasticStreams(paths, read)
        loader = DataLoader(streams, batch_size=32)
        state = corro.elastic.TorchState(model, optimizer, streams=streams, epoch=0)

    and then `for step in streams.steps(loader)`, as with an ElasticSampler. A rank without samples
    in a step has no batch in it: optimizer.step() counts its gradients as zeros.

    There is no batch for modules that communicate in forward() then, such as SyncBatchNorm: give
    them an ElasticSampler.

    Externally synchronized.
    """

    def __init__(
        self, partitions: Sequence[Any], read: Callable[[Any, int], Iterable[Any]]
    ) -> None:
        """The arguments are the same on all ranks.

        Args:
            partitions: what there is to read; each data epoch reads all of them to their ends.
            read: gives a partition's samples without as many of the first ones as its second
                argument says; the same ones whoever calls it.
        """
        self.partitions = partitions
        self.read = read
        self.epoch = 0
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.offsets = [0] * len(self.partitions)  # How many samples all ranks have processed.
        self.ended = [0] * len(self.partitions)  # 1: there are no more.
        self._forget()

    def _forget(self) -> None:
        """A step begins, for which nothing is read yet."""
        self._read = [0] * len(self.partitions)
        self._over = [0] * len(self.partitions)

    def set_epoch(self, epoch: int) -> None:
        """Begins a data epoch; one that has begun goes on."""
        if epoch != self.epoch:
            self.epoch = epoch
            self._begin_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Returns the data epoch, and how far all ranks are in each partition."""
        return {"epoch": self.epoch, "offsets": list(self.offsets), "ended": list(self.ended)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there, with the ranks that there are."""
        self.epoch = state_dict["epoch"]
        self.offsets = list(state_dict["offsets"])
        self.ended = list(state_dict["ended"])

    def __iter__(self) -> Iterator[Any]:
        """Yields the samples of this rank's partitions, from their offsets on."""
        rank, ranks = self._place()
        left = [number for number, ended in enumerate(self.ended) if not ended]
        for number in left[rank::ranks]:
            for sample in self.read(self.partitions[number], self.offsets[number]):
                self._read[number] += 1
                yield sample
            self._over[number] = 1

    def steps(self, loader: Iterable[Any]) -> Iterator[Step]:
        """Yields what is left of the data epoch, step by step, as many steps on all ranks.

        Blocks before each step until all ranks have read their batch. Each step has to be recorded
        before the next one is asked for.

        Args:
            loader: a DataLoader of this data set, without worker processes: their reading ahead
                could not be told from what a step has. `read` may use threads or processes instead.

        Raises:
            InvalidArgumentError: the loader reads ahead, drops samples, or has another data set.
        """
        if getattr(loader, "dataset", self) is not self:
            raise InvalidArgumentError("ElasticStreams: the loader has another data set")
        if workers := getattr(loader, "num_workers", 0):
            raise InvalidArgumentError(
                f"ElasticStreams: the loader has {workers} worker processes, which read ahead of"
                " the offsets: make it with num_workers=0"
            )
        if getattr(loader, "drop_last", False):
            raise InvalidArgumentError(
                "ElasticStreams: the loader drops samples: make it with drop_last=False"
            )
        return recorded(self._steps(loader))

    def _steps(self, loader: Iterable[Any]) -> Iterator[Step]:
        batches = iter(loader)
        while True:
            batch, mine = self._next(batches)
            step = self._step(batch, self._sum(mine))
            if step is None:
                return
            yield step

    def _next(self, batches: Iterator[Any]) -> tuple[Any, list[int]]:
        """Returns a batch, and what was read for it: samples, then ends, of each partition."""
        self._forget()
        return next(batches, None), [*self._read, *self._over]

    def _step(self, batch: Any, sums: list[int]) -> Step | None:
        """Returns the step for which all ranks have read the sums; None: there is nothing left."""
        _, ranks = self._place()
        mine = sum(self._read)
        read, over = sums[: len(self.partitions)], sums[len(self.partitions) :]
        samples = sum(read)
        if samples == 0:
            return None

        def advance() -> None:
            self.offsets = [a + b for a, b in zip(self.offsets, read, strict=True)]
            self.ended = [a | b for a, b in zip(self.ended, over, strict=True)]

        return Step([(batch, mine * ranks / samples)] if mine else [], samples, advance)

    def _place(self) -> tuple[int, int]:
        """Returns this rank, and how many there are."""
        return _context.rank(), _context.size()

    def _sum(self, values: list[int]) -> list[int]:
        """Returns the sums over all ranks."""
        return verbs.allreduce(torch.tensor(values, dtype=torch.int64), op=Sum).tolist()
