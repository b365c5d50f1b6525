"""Rules of functions that mix elements of the divided dim: products, tables, attention, loss.

    linear, columns      y = x W1     W1 is divided along its outputs, and so is y
    linear, rows         z = y W2     W2 along its inputs, as y is: what ranks compute is summed up
    embedding            the table is divided along its symbols; rows are summed up
    attention            each rank has heads of its own
    cross_entropy        logits are divided along classes: maxima and sums are reduced

Columns, then rows: Shoeybi et al., "Megatron-LM", 2019, section 3. What dropout drops is drawn for
the whole tensor on each rank, so that it is what one process drops.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from corro.torch import Max
from corro.torch.parallel.tensor.division import Division, summand, summed, take
from corro.torch.parallel.tensor.shapes import aligned
from corro.torch.parallel.tensor.split import Call, Rule, Split
from corro.torch.parallel.tensor.tokens import columns, sum_of


def _linear(call: Call) -> Any:
    x, weight, bias = call.taken("input", "weight", "bias")
    if not isinstance(weight, Split):
        return NotImplemented
    return _product(call, x, weight, weight.local.t(), bias, is_column=weight.division.dim == 0)


def _addmm(call: Call) -> Any:
    bias, x, weight = call.taken("input", "mat1", "mat2")
    if not _is_weight(weight) or bias.dim() != 1 or call.keywords.keys() & {"beta", "alpha", "out"}:
        return NotImplemented
    return _product(call, x, weight, weight.local, bias, is_column=weight.division.dim == 1)


def _matmul(call: Call) -> Any:
    x, other = call.args[:2] if len(call.args) > 1 else call.taken("input", "other")
    if _is_weight(other):
        return _product(call, x, other, other.local, None, is_column=other.division.dim == 1)
    return _batched(call, x, other)


def _is_weight(value: Any) -> bool:
    return isinstance(value, Split) and isinstance(value, torch.nn.Parameter) and value.dim() == 2


def _product(
    call: Call, x: Any, weight: Split, local: Tensor, bias: Any, *, is_column: bool
) -> Any:
    """`local`: this rank's part of the weight, [inputs, outputs]."""
    division = weight.division
    if is_column:
        own = local.t(), _part(call, bias, division) if _is(bias) else None
        if isinstance(x, Split) and x.is_of_tokens:
            y = columns(x, *own)
        else:
            y = F.linear(call.axis.entered(call.whole(x)), *own)
        return call.split(y, -1, division.length, division.blocks)
    along = Division(division.axis, x.dim() - 1, division.length, division.blocks)
    part = x.local if isinstance(x, Split) and x.division == along else take(call.whole(x), along)
    own_bias = summand(call.whole(bias), call.axis) if _is(bias) else None
    return sum_of(F.linear(part, local.t(), own_bias), call.axis)


def _is(bias: Any) -> bool:
    return bias is not None


def _part(call: Call, bias: Any, division: Division) -> Tensor:
    """Returns the part of a bias that belongs to columns."""
    along = Division(division.axis, 0, division.length, division.blocks)
    return (
        bias.local
        if isinstance(bias, Split) and bias.division == along
        else take(call.whole(bias), along)
    )


def _batched(call: Call, x: Any, other: Any) -> Any:
    """A product of matrices, of which each rank has some."""
    if min(x.dim(), other.dim()) < 3:
        return NotImplemented
    split = call.first
    if split.division.dim >= split.dim() - 2:
        return NotImplemented
    parts = aligned(call, [x, other])
    if parts is None:
        return NotImplemented
    division = split.division
    local = torch.matmul(*parts)
    return call.split(local, division.dim - split.dim(), division.length, division.blocks)


def _embedding(call: Call) -> Any:
    ids, table, padding, *rest = call.taken(
        *("input", "weight", "padding_idx", "max_norm"),
        *("norm_type", "scale_grad_by_freq", "sparse"),
    )
    if not isinstance(table, Split) or table.division.dim or rest[0] is not None or any(rest[2:]):
        return NotImplemented
    own, start = table.division.own, table.division.start
    places = call.whole(ids) - start
    others = (places < 0) | (places >= own)
    if padding is not None:
        padding = padding % table.division.length - start
        padding = padding if 0 <= padding < own else None
    rows = F.embedding(places.masked_fill(others, 0), table.local, padding)
    return sum_of(rows.masked_fill(others.unsqueeze(-1), 0), call.axis)


def _dropout(call: Call) -> Any:
    x, p, training = call.taken("input", "p", "training")
    p, training = 0.5 if p is None else p, training is not False
    if call.function is torch.dropout or call.function is torch.dropout_:
        training = call.taken("input", "p", "train")[2]
    if not training or p == 0:
        return x
    kept = x.division.own_part(F.dropout(torch.ones(x.shape, dtype=x.dtype, device=x.device), p))
    if call.is_in_place or call.keywords.get("inplace"):
        x.local.mul_(kept)
        return x
    return call.like(x.local * kept, x)


def _attention(call: Call) -> Any:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    query, key, value, mask, p, is_causal, scale, _ = call.taken(*names)
    if not isinstance(query, Split) or query.division.dim >= query.dim() - 2:
        return NotImplemented
    division = query.division
    dim = division.dim - query.dim()

    def part(tensor: Any) -> Any:
        """Returns those heads of keys or values that this rank's queries need; or None."""
        if isinstance(tensor, Split):
            own = tensor.division
            if own.dim - tensor.dim() == dim and own.blocks == division.blocks and own.is_even:
                return tensor.local
            tensor = call.whole(tensor)
        if tensor.dim() < -dim or tensor.shape[dim] != division.length:
            return None
        return take(
            tensor, Division(division.axis, tensor.dim() + dim, division.length, division.blocks)
        )

    parts = [part(key), part(value)]
    if any(each is None for each in parts) or isinstance(mask, Split) or not division.is_even:
        return NotImplemented
    if mask is not None:
        mask = aligned(call, [query, mask])[1]  # type: ignore[index]
    if not p:
        options = {name: call.keywords[name] for name in names[6:] if name in call.keywords}
        attention: Any = F.scaled_dot_product_attention
        local = attention(query.local, *parts, mask, 0.0, bool(is_causal), **options)
    elif query.device.type == "cpu":
        shape = (*query.shape[:-1], key.shape[-2])
        kept = division.own_part(
            F.dropout(torch.ones(shape, dtype=query.dtype, device=query.device), p)
        )
        local = _written_out(query.local, parts[0], parts[1], mask, kept, bool(is_causal), scale)
    else:
        return NotImplemented  # Its kernels draw inside.
    return call.like(local, query)


def _written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    kept: Tensor,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """Attention that drops weights as `kept` says: 0, or 1 / (1 - p)."""
    if key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(times, -3) for each in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask
    return torch.softmax(scores, -1) * kept @ value


def _cross_entropy(call: Call) -> Any:
    logits, target, weight, average, ignored, reduce, reduction, smoothing = call.taken(
        *("input", "target", "weight", "size_average", "ignore_index"),
        *("reduce", "reduction", "label_smoothing"),
    )
    reduction = reduction or "mean"
    is_plain = weight is None and average is None and reduce is None and not smoothing
    if not is_plain or not isinstance(logits, Split) or isinstance(target, Split):
        return NotImplemented
    division = logits.division
    if logits.dim() != 2 or division.dim != 1 or division.blocks != 1 or target.is_floating_point():
        return NotImplemented
    losses = _losses(logits, target)
    counts = target != (-100 if ignored is None else ignored)
    losses = losses.masked_fill(~counts, 0)
    if reduction == "none":
        return losses
    return losses.sum() / counts.sum() if reduction == "mean" else losses.sum()


def _losses(logits: Split, target: Tensor) -> Tensor:
    """Returns the losses of all samples, [N]."""
    axis, division = logits.division.axis, logits.division
    local = logits.local.float() if logits.dtype.itemsize < 4 else logits.local
    most = axis.reduced(local.detach().amax(1), Max)
    local = local - most.unsqueeze(1)
    places = target - division.start
    others = (places < 0) | (places >= division.own)
    own = local.gather(1, places.masked_fill(others, 0).unsqueeze(1)).squeeze(1)
    sums = torch.stack([local.exp().sum(1), own.masked_fill(others, 0)])
    total, picked = summed(sums, axis).unbind(0)
    return (total.log() - picked).to(logits.dtype)


RULES: dict[Any, Rule] = {
    "linear": _linear,
    "addmm": _addmm,
    **dict.fromkeys(("matmul", "bmm"), _matmul),
    "embedding": _embedding,
    "dropout": _dropout,
    "scaled_dot_product_attention": _attention,
    "cross_entropy": _cross_entropy,
}
