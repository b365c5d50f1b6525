"""SyncBatchNorm: corro's, over the world of hvd.init()."""

from __future__ import annotations

from typing import Any

import corro.torch
from horovod.common import basics


class SyncBatchNorm(corro.torch.SyncBatchNorm):
    """Batch normalization over the samples of all ranks, on any device; Horovod's needs a GPU."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_features,
            eps,
            momentum,
            affine,
            track_running_stats,
            group=basics.world(),
            **kwargs,
        )
