"""SyncBatchNorm: batch normalization over the samples of all ranks, on any device.

    layer = corro.SyncBatchNorm(64)

Mean and variance are sums over all ranks, in two rounds, so that the variance does not suffer from
cancellation; autograd goes through both (Ioffe and Szegedy, Batch Normalization, 2015, section 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from corro._context import Group, world_or
from corro._reduce_op import Sum
from corro.errors import InvalidArgumentError
from corro.torch.differentiable import allreduce

if TYPE_CHECKING:
    from torch import Tensor


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.BatchNorm1d, 2d and 3d, with the samples of all ranks as one batch.

    All ranks call it equally often, in the same order; how many samples each brings may differ.
    In evaluation, and on one rank, it is what torch's are.

    Args:
        num_features: channels: dim 1 of the input, whose shape is (N, C, ...).
        eps: is added to the variance.
        momentum: of the running estimates; None: their plain average.
        affine: whether there are weight and bias.
        track_running_stats: whether there are running estimates.
        group: the ranks; the world if not given.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        group: Group | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **kwargs)
        self._group = group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2 or input.size(1) != self.num_features:
            raise InvalidArgumentError(
                f"SyncBatchNorm: expected (N, {self.num_features}, ...), not {tuple(input.shape)}"
            )

    def forward(self, input: Tensor) -> Tensor:
        """Returns the normalized input; of the same shape and dtype."""
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        group = world_or(self._group) if uses_batch else None
        if group is None or group.size() == 1:
            return super().forward(input)
        wide = torch.promote_types(input.dtype, torch.float32)
        x = input.to(wide)
        dims = [dim for dim in range(x.dim()) if dim != 1]
        count = torch.tensor([x.numel() // self.num_features], dtype=wide, device=x.device)
        sums = allreduce(torch.cat([x.sum(dims), count]), Sum, group=group)
        mean, samples = sums[:-1] / sums[-1], float(sums[-1].detach())
        shape = [1, -1, *[1] * (x.dim() - 2)]
        centered = x - mean.view(shape)
        variance = allreduce(centered.square().sum(dims), Sum, group=group) / samples
        if self.training and self.track_running_stats:
            self._track(mean.detach(), variance.detach(), samples)
        normal = centered * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(input.dtype)

    def _track(self, mean: Tensor, variance: Tensor, samples: float) -> None:
        """Moves the running estimates; that of the variance is unbiased, as torch's."""
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
        unbiased = variance * (samples / max(samples - 1, 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)
