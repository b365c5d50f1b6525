"""Draws by sample: what one random torch function, composed as it may be, draws inside.

torch composes dropout, attention, recurrent layers and so on of few random operators, which a
dispatch mode sees with plain arguments. Each is drawn in parts, one per sample and each from a
stream of its own, so that the other samples of the micro-batch do not matter:

    F.dropout(x)  ->  empty_like, bernoulli_ (here: sample by sample), div_, mul

The tensors' own numbers are torch's work: corro replaces what is drawn, not what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from corro.torch.parallel import masks

FIRST, SECOND, NONE = "first", "second", "none"
"""Which dim counts the samples, where the function says so."""

_BY_ELEMENT = frozenset(
    """
    bernoulli bernoulli_ binomial cauchy_ exponential_ geometric_ log_normal_ normal normal_
    poisson rand rand_like randint randint_like randn randn_like random_ rrelu_with_noise
    rrelu_with_noise_ uniform_ _standard_gamma
    """.split()  # noqa: SIM905
)
"""Operators that draw every element apart, so that they can be called for a part of a tensor."""
_BY_ROW = frozenset(("multinomial", "_sample_dirichlet"))
"""The last dim is one draw's."""
_MASKS = frozenset(("bernoulli_", "native_dropout"))


def dim_of_samples(shape: Sequence[int], samples: int, known: str | None = None) -> int | None:
    """Returns the dim that counts the samples; None: no dim does.

    It is dim 0 where its length is a multiple of the samples' number: the rows of a sample follow
    one another. [T, samples, D] and other orders come next; of three dims, the second is preferred
    to a multiple in the first.
    """
    if not shape or known == NONE or samples == 0:
        return None
    if known == SECOND:
        return 1 if len(shape) == 3 and shape[1] == samples else None
    rows = shape[0] > 0 and shape[0] % samples == 0
    if known == FIRST:
        first = next((dim for dim, length in enumerate(shape) if length > 1), 0)
        return first if shape[first] % samples == 0 else None
    if len(shape) == 3 and shape[0] != samples != 1 and shape[1] == samples:
        return 1
    if rows:
        return 0
    return next((dim for dim, length in enumerate(shape) if length == samples), None)


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Draws each random operator inside by sample. For one call of one function; confined to it."""

    def __init__(self, samples: range, known: str | None, no_dim: Callable[[Any], None]) -> None:
        """`known`: see `dim_of_samples`; `no_dim(shape)` is told of masks without samples."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._samples = samples
        self._known = known
        self._no_dim = no_dim

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spares the import of torch's compiler, which is not to look into this mode."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not _is_random(func) or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        if _is_composite(func):  # in inference mode
            with self:
                return func.decompose(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name == "native_dropout" and not args[2]:
            return func(*args, **kwargs)
        return self._draw(name, func, args, kwargs)

    def _draw(self, name: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        base = next_base()
        where, shape = _subject(args)
        dim = self._dim(name, shape)
        if dim is None and name in _MASKS and self._known != NONE:
            self._no_dim(tuple(shape))
        if name == "native_dropout":
            return self._dropout(args[0], args[1], dim, base)
        if name == "bernoulli_" and func._overloadname == "float":
            probability = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            return args[0].copy_(self._mask(args[0], probability, dim, base))
        device = args[where].device if _is_tensor(args, where) else kwargs.get("device")
        if dim is not None:
            return self._by_sample(func, args, kwargs, dim, base, device)
        with seeded(device, self._without_dim(name, args, where, base)):
            return func(*args, **kwargs)

    def _dim(self, name: str, shape: Sequence[int]) -> int | None:
        if name in _BY_ROW:
            return dim_of_samples(shape[:-1], len(self._samples), FIRST)
        if name in _BY_ELEMENT or name == "native_dropout":
            return dim_of_samples(shape, len(self._samples), self._known)
        return None

    def _without_dim(self, name: str, args: Sequence[Any], where: int, base: int) -> int:
        """Returns the seed of what cannot be drawn by sample.

        An operator that is not known draws for its samples; all others draw the same in all
        micro-batches, as one process does that draws once for the whole batch.
        """
        unknown = name not in _BY_ELEMENT | _BY_ROW and _is_tensor(args, where)
        return masks.mix(base, *self._samples[:1]) if unknown else base

    def _mask(self, tensor: Tensor, probability: float, dim: int | None, base: int) -> Tensor:
        """Returns a bool tensor of the tensor's shape, each sample's part of its own stream."""
        numbers = [base] if dim is None else masks.numbers_of(base, self._samples)
        streams = torch.tensor(numbers, dtype=torch.int64, device=tensor.device)
        drawn = masks.bernoulli(streams, tensor.numel() // len(numbers), probability)
        if dim is None or tensor.shape[:dim].numel() == 1:
            return drawn.reshape(tensor.shape)
        rest = [length for each, length in enumerate(tensor.shape) if each != dim]
        return drawn.reshape(len(numbers), *rest).movedim(0, dim)

    def _dropout(
        self, tensor: Tensor, probability: float, dim: int | None, base: int
    ) -> tuple[Tensor, Tensor]:
        """torch's `native_dropout`: the result, and the mask of what is kept."""
        mask = self._mask(tensor, 1 - probability, dim, base)
        scale = 1 / (1 - probability) if probability < 1 else 0.0
        return tensor * mask * scale, mask

    def _by_sample(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        dim: int,
        base: int,
        device: Any,
    ) -> Any:
        """Calls the operator once per sample, with its part of the arguments."""
        results = []
        for index, number in enumerate(masks.numbers_of(base, self._samples)):
            own = [_part(each, args, dim, index, len(self._samples)) for each in args]
            with seeded(device, number):
                results.append(func(*own, **kwargs))
            _write_back(func, args, own, dim, index, len(self._samples))
        if func._schema.returns[0].alias_info is not None:
            return args[0]  # in place
        if isinstance(results[0], tuple):
            return tuple(torch.cat(each, dim) for each in zip(*results, strict=True))
        return torch.cat(results, dim)


def next_base() -> int:
    """Takes 64 bits of torch's own generator, which holds the place in the model.

    What saves and restores this generator, as torch's checkpoint does, so draws the same again.
    """
    word = torch.empty((), dtype=torch.int64, device="cpu")
    return int(word.random_(-(2**63), None).item())


@contextmanager
def seeded(device: Any, number: int) -> Iterator[None]:
    """Gives the device's generator another seed, and its own state back afterwards."""
    generator = generator_of(device)
    state = generator.get_state()
    generator.manual_seed(number)
    try:
        yield
    finally:
        generator.set_state(state)


def generator_of(device: Any) -> torch.Generator:
    """Returns what torch draws from on a device (None: the CPU) where no generator is given."""
    device = torch.device(device or "cpu")
    if device.type != "cuda":
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


@cache
def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


@cache
def _is_composite(func: Any) -> bool:
    return bool(func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def _subject(args: Sequence[Any]) -> tuple[int, Sequence[int]]:
    """Returns which argument says what is drawn, and its shape: the first tensor, or a size."""
    for where, argument in enumerate(args):
        if isinstance(argument, Tensor):
            return where, argument.shape
    for where, argument in enumerate(args):
        if isinstance(argument, (list, tuple)):
            return where, argument
    return -1, ()


def _is_tensor(args: Sequence[Any], where: int) -> bool:
    return where >= 0 and isinstance(args[where], Tensor)


def _part(argument: Any, args: Sequence[Any], dim: int, index: int, parts: int) -> Any:
    """Returns a sample's part of an argument; what does not count samples is as it was.

    A part is contiguous: torch draws other numbers into the same tensor with other strides.
    """
    where, shape = _subject(args)
    if isinstance(argument, Tensor) and argument.shape[: dim + 1] == shape[: dim + 1]:
        return _view(argument, dim, index, parts).contiguous()
    if argument is args[where] and not isinstance(argument, Tensor):
        return [*shape[:dim], shape[dim] // parts, *shape[dim + 1 :]]
    return argument


def _view(tensor: Tensor, dim: int, index: int, parts: int) -> Tensor:
    length = tensor.shape[dim] // parts
    return tensor.narrow(dim, index * length, length)


def _write_back(
    func: Any, args: Sequence[Any], own: Sequence[Any], dim: int, index: int, parts: int
) -> None:
    """Copies the parts that the operator wrote to where they came from."""
    for described, argument, part in zip(func._schema.arguments, args, own, strict=False):
        written = described.alias_info is not None and described.alias_info.is_write
        if written and part is not argument:
            target = _view(argument, dim, index, parts)
            if target.data_ptr() != part.data_ptr():
                target.copy_(part)
