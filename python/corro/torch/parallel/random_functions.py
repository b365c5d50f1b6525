"""The random functions of torch: each is drawn by sample; all others pass.

A function mode of torch sees every call of a function of torch, which costs the others a
microsecond. What a random function draws inside is the work of `draws.Draws`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from corro.torch.parallel import draws, masks

_RANDOM = frozenset(
    """
    alpha_dropout alpha_dropout_ bernoulli bernoulli_ binomial cauchy_ dropout dropout_
    dropout1d dropout2d dropout3d exponential_ feature_alpha_dropout feature_alpha_dropout_
    feature_dropout feature_dropout_ fractional_max_pool2d
    fractional_max_pool2d_with_indices fractional_max_pool3d
    fractional_max_pool3d_with_indices geometric_ gru gumbel_softmax kaiming_normal_
    kaiming_uniform_ log_normal_ lstm multinomial native_dropout normal normal_ poisson rand
    rand_like randint randint_like randn randn_like random_ randperm rnn_relu rnn_tanh rrelu
    rrelu_ _sample_dirichlet _standard_gamma trunc_normal_ uniform_ xavier_normal_
    xavier_uniform_
    """.split()  # noqa: SIM905
)
_RECURRENT = frozenset(("gru", "lstm", "rnn_relu", "rnn_tanh"))
_ATTENTION = "scaled_dot_product_attention"
_MULTI_HEAD = "multi_head_attention_forward"
_BACKWARD = frozenset(("backward", "grad"))
"""They recompute, and torch calls functions that a mode gets with the mode taken off."""
CALLS = _RANDOM | _BACKWARD | {_ATTENTION, _MULTI_HEAD}
"""The functions that are looked at, by name."""


class RandomFunctions(TorchFunctionMode):
    """Draws by sample while it is entered, also on the threads that autograd then uses."""

    def __init__(self, samples: range, warn: Callable[[str, tuple[int, ...]], None]) -> None:
        """`warn(function's name, shape)` is told of masks in which no dim counts samples."""
        super().__init__()
        self._samples = samples
        self._warn = warn
        self._known: str | None = None

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", None)
        if name not in CALLS or not _draws(name, args, kwargs):
            return func(*args, **kwargs)
        if name in _BACKWARD:
            return self._body(func, args, kwargs, None)
        if name == _MULTI_HEAD:
            return self._body(func, args, kwargs, draws.FIRST)
        tensor = args[0] if args else next(iter(kwargs.values()), None)
        if name == _ATTENTION and isinstance(tensor, Tensor) and tensor.device.type != "cpu":
            return self._attention(func, args, kwargs)
        with draws.Draws(self._samples, self._dim(name, tensor), self._no_dim(name)):
            return func(*args, **kwargs)

    def _dim(self, name: str, tensor: Any) -> str | None:
        """Returns which dim counts the samples by what the function is; None: see the shape."""
        if isinstance(tensor, nn.Parameter):
            return draws.NONE
        if name in _RECURRENT:
            return draws.SECOND
        return draws.FIRST if name == _ATTENTION else self._known

    def _no_dim(self, name: str) -> Callable[[Any], None]:
        return lambda shape: self._warn(name, shape)

    def _body(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], known: str | None
    ) -> Any:
        """Runs the function's own body, so that the functions that it calls come here, too."""
        if not isinstance(func, FunctionType):
            return func(*args, **kwargs)
        self._known, before = known, self._known
        try:
            with self:
                return _unasked(func)(*args, **kwargs)
        finally:
            self._known = before

    def _attention(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Attention of a device, whose kernels draw inside: sample by sample."""
        base = draws.next_base()
        values = [*args, *kwargs.values()]
        query, samples = values[0], self._samples
        if draws.dim_of_samples(query.shape, len(samples), draws.FIRST) is None:
            self._no_dim(_ATTENTION)(tuple(query.shape))
            with draws.seeded(query.device, base):
                return func(*args, **kwargs)
        rows = query.shape[0] // len(samples)
        results = []
        for index, number in enumerate(masks.numbers_of(base, samples)):

            def part(value: Any, start: int = index * rows) -> Any:
                batched = isinstance(value, Tensor) and value.ndim == query.ndim
                whole = batched and value.shape[0] == query.shape[0]
                return value.narrow(0, start, rows) if whole else value

            with draws.seeded(query.device, number):
                own = {key: part(value) for key, value in kwargs.items()}
                results.append(func(*map(part, args), **own))
        return torch.cat(results)


def _draws(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the call draws; true where that is not cheap to say."""
    if name == _ATTENTION:
        return bool((args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)) > 0)
    if name == _MULTI_HEAD:
        return bool(kwargs.get("training", True))
    if name in _RECURRENT:  # their only float is the dropout between layers
        return any(isinstance(each, float) and each > 0 for each in args)
    return kwargs.get("training") is not False


@cache
def _unasked(func: Any) -> Any:
    """Returns the Python function without its first question, whether a mode wants the call."""
    asked = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names = {**func.__globals__, **dict.fromkeys(asked, lambda *_: False)}
    body = FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    body.__kwdefaults__ = func.__kwdefaults__
    return body
