"""What is known of torch's operations: how a planner may cut them, and their matrix operations.

A product of [M, K] by [K, N] takes 2 M N K operations. Other operations take none: memory bounds
them, and `traffic` counts that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch import Tensor

Shape = tuple[int, ...]

LOSSES = frozenset(
    {
        *("_log_softmax", "nll_loss_forward", "nll_loss2d_forward", "mse_loss", "huber_loss"),
        *("smooth_l1_loss", "binary_cross_entropy", "soft_margin_loss", "multi_margin_loss"),
        *("_ctc_loss", "kl_div", "multilabel_margin_loss_forward"),
        "binary_cross_entropy_with_logits",
    }
)
NORMS = frozenset(
    {
        *("native_layer_norm", "native_group_norm", "native_batch_norm", "cudnn_batch_norm"),
        *("_native_batch_norm_legit", "_batch_norm_with_update", "_fused_rms_norm"),
        *("_native_batch_norm_legit_functional", "miopen_batch_norm", "batch_norm_elemt"),
    }
)
EMBEDDINGS = frozenset({"embedding", "_embedding_bag"})
ELEMENTWISE = frozenset(
    {
        *("add", "sub", "rsub", "mul", "div", "neg", "pow", "exp", "log", "sqrt", "rsqrt", "abs"),
        *("relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "hardtanh", "softplus"),
        *("hardswish", "hardsigmoid", "mish", "native_dropout", "bernoulli", "where", "clamp"),
        *("masked_fill", "_to_copy", "clone", "copy", "sin", "cos", "square", "reciprocal"),
        *("addcmul", "addcdiv", "lerp", "erf", "log1p", "expm1", "sign", "maximum", "minimum"),
        *("clamp_min", "clamp_max", "threshold", "prelu", "_prelu_kernel", "log_sigmoid_forward"),
        *("tril", "triu", "eq", "ne", "lt", "le", "gt", "ge", "logical_not"),
        *("logical_and", "logical_or", "bitwise_not", "bitwise_and", "bitwise_or", "isnan"),
        *("cat", "stack", "constant_pad_nd", "roll", "flip", "repeat", "isinf", "floor"),
        *("ceil", "round", "trunc", "atan2", "softshrink", "rrelu_with_noise"),
        *("glu", "repeat_interleave", "nan_to_num", "sgn", "log2", "exp2", "celu", "_reshape_copy"),
    }
)
COPIES = frozenset({"clone", "copy", "_to_copy", "_reshape_copy"})
SHAPE_ONLY = frozenset(  # They read no element of their inputs.
    {
        *("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"),
        *("new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided", "fill", "zero"),
    }
)
ATTENTIONS = frozenset(
    {
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_attention_math_for_mps",
    }
)
GROUPED = "grouped_convolution"  # Its channels are cut already: opaque.
SOFTMAXES = frozenset({"_softmax", "_safe_softmax"})
PRODUCTS = frozenset({"bmm", "baddbmm"})


def base_name(func: Any, args: Sequence[Any] = ()) -> str:
    """Returns "add" for aten.add_.Tensor, "my::op" for what is not torch's own."""
    space, _, name = func._schema.name.partition("::")
    if space not in ("aten", "prim", "prims"):
        return str(func._schema.name)
    if func._schema.is_mutable and name.endswith("_") and not name.endswith("__"):
        return str(name[:-1])
    if name == "convolution" and len(args) > 8 and args[8] != 1:
        return GROUPED
    return str(name)


def kind_of(name: str) -> str:
    """Returns an operator's kind; "opaque" for what is torch's own and cannot be cut."""
    if name in MATRIX_FLOPS and name not in ATTENTIONS and name != GROUPED:
        return "matmul"
    for kind, names in (
        ("elementwise", ELEMENTWISE),
        ("attention", ATTENTIONS),
        ("norm", NORMS),
        ("embedding", EMBEDDINGS),
        ("loss", LOSSES),
    ):
        if name in names:
            return kind
    return "opaque"


def flops_of(name: str, args: Sequence[Any], outputs: Sequence[Tensor]) -> float:
    """Returns the matrix operations of one call."""
    formula = MATRIX_FLOPS.get(name)
    if formula is None:
        return 0.0
    shapes = [tuple(arg.shape) if isinstance(arg, Tensor) else () for arg in args]
    return float(formula(shapes, args, [tuple(each.shape) for each in outputs]))


def _product(left: Shape, right: Shape) -> int:
    columns = right[-1] if len(right) > 1 else 1
    return 2 * prod(left) * columns


def _linear(shapes: list[Shape], _args: Sequence[Any], _out: list[Shape]) -> int:
    return 2 * prod(shapes[0]) * shapes[1][0]


def _convolution(shapes: list[Shape], args: Sequence[Any], out: list[Shape]) -> int:
    transposed = bool(args[6]) if len(args) > 6 else False
    return 2 * prod(shapes[0] if transposed else out[0]) * prod(shapes[1][1:])


def _convolution_backward(shapes: list[Shape], args: Sequence[Any], _out: list[Shape]) -> int:
    transposed = bool(args[7]) if len(args) > 7 else False
    wanted = sum(args[10][:2]) if len(args) > 10 else 2
    return wanted * 2 * prod(shapes[1] if transposed else shapes[0]) * prod(shapes[2][1:])


def _attention(query: Shape, key: Shape, value: Shape, products: int = 1) -> int:
    scores = prod(query[:-1]) * key[-2]
    return 2 * products * scores * (query[-1] + value[-1])


def _rnn_layer(shapes: list[Shape], _args: Sequence[Any], _out: list[Shape]) -> int:
    tokens = prod(shapes[0][:-1])
    return 2 * tokens * (prod(shapes[1]) + prod(shapes[2]))


MATRIX_FLOPS: dict[str, Callable[[list[Shape], Sequence[Any], list[Shape]], int]] = {
    "mm": lambda shapes, _args, _out: _product(shapes[0], shapes[1]),
    "mv": lambda shapes, _args, _out: _product(shapes[0], shapes[1]),
    "dot": lambda shapes, _args, _out: _product(shapes[0], shapes[1]),
    "bmm": lambda shapes, _args, _out: _product(shapes[0], shapes[1]),
    "addmm": lambda shapes, _args, _out: _product(shapes[1], shapes[2]),
    "_addmm_activation": lambda shapes, _args, _out: _product(shapes[1], shapes[2]),
    "addmv": lambda shapes, _args, _out: _product(shapes[1], shapes[2]),
    "baddbmm": lambda shapes, _args, _out: _product(shapes[1], shapes[2]),
    "linear": _linear,
    "convolution": _convolution,
    "_convolution": _convolution,
    GROUPED: _convolution,
    "convolution_backward": _convolution_backward,
    "mkldnn_rnn_layer": _rnn_layer,
    **{
        name: lambda shapes, _args, _out: _attention(shapes[0], shapes[1], shapes[2])
        for name in ATTENTIONS
    },
    **{  # Scores once more, then the gradients of query, key, scores and value.
        f"{name}_backward": lambda shapes, _args, _out: (
            _attention(shapes[1], shapes[2], shapes[3], 2)
            + 2 * prod(shapes[1][:-1]) * shapes[2][-2] * shapes[1][-1]
        )
        for name in ATTENTIONS
    },
}
