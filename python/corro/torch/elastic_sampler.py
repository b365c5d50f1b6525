"""ElasticSampler: each rank's part of a data set, divided anew when ranks come or go."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from itertools import cycle, islice
from typing import Any

from torch.utils.data import Sampler

from corro import _context


class ElasticSampler(Sampler[int]):
    """Indices of this rank's samples in one data epoch, without those that ranks have processed.

    For example::

        sampler = corro.elastic.ElasticSampler(dataset)
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
        state = corro.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)

        @corro.elastic.run
        def train(state):
            while state.epoch < 10:
                sampler.set_epoch(state.epoch)
                for number, batch in enumerate(loader):
                    ...
                    optimizer.step()
                    sampler.record_batch(number, 32)
                state.epoch += 1

    All ranks have batches of one size, and as many of them: the first samples come once more at
    the end if there is a remainder. A step takes as many samples from the front of one order as all
    ranks have in a batch, so the samples that are left are known by their number, and a new world
    divides them evenly. As an attribute of a state it does so by itself.

    Externally synchronized.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """`shuffle`: the order is drawn from seed and data epoch; else it is the data set's."""
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0  # By all ranks, in this data epoch.
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins a data epoch; one that has begun goes on."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that every rank has processed its batch of so many samples: after step()."""
        del batch_idx  # Batches come in order.
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Returns the data epoch, and how far all ranks are in it."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there, with the ranks that there are now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides what is left among the ranks that there are now."""
        self.rank, self.num_replicas = self._place()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        whole = islice(cycle(self.remaining_indices), self.total_size)
        return islice(whole, self.rank, None, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples

    def _place(self) -> tuple[int, int]:
        """Returns this rank, and how many there are."""
        return _context.rank(), _context.size()
