"""ElasticSampler: corro's, with Horovod's ranks."""

from __future__ import annotations

from corro.torch.elastic_sampler import ElasticSampler as _Corros
from horovod.common.basics import rank, size


class ElasticSampler(_Corros):
    """Indices of this rank's samples in one data epoch, without those that ranks have processed.

    `set_epoch` is called at the end of a data epoch, and `record_batch` after each step; an
    attribute of a TorchState is divided anew when ranks come or go.
    """

    def set_epoch(self, epoch: int) -> None:
        """Begins a data epoch from its first sample, also one that has begun."""
        self.processed_num = 0
        super().set_epoch(epoch)

    def _place(self) -> tuple[int, int]:
        return rank(), size()
