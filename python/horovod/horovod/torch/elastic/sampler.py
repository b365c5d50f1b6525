"""ElasticSampler: each rank's part of a data set, divided anew when ranks come or go."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from itertools import cycle, islice
from typing import Any

from torch.utils.data import Sampler

from horovod.common.basics import rank, size


class ElasticSampler(Sampler[int]):
    """Indices of this rank's samples in one data epoch, without those that ranks have processed.

    All ranks have as many: the first samples come once more at the end if there is a remainder. A
    step takes as many samples from the front of one order as all ranks have in a batch, so the
    samples that are left are known by their number.

    `set_epoch` is called at the end of a data epoch, and `record_batch` after each step; an
    attribute of a TorchState is divided anew when ranks come or go.
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
        """Begins a data epoch from its first sample, also one that has begun."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that every rank has processed its batch of so many samples."""
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
        self.rank, self.num_replicas = rank(), size()
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
