"""The way of a recording: stand-ins in, one forward and backward, the description out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten

from corro.errors import CorroError, InvalidArgumentError
from corro.model import ModelDescription
from corro.torch.recorder.describe import Subject, describe
from corro.torch.recorder.fakes import Fakes, faked, log_silenced, random_state_kept
from corro.torch.recorder.trace import INPUT, PARAMETER, SIDE, Trace, Tracer

Loss = Callable[[Any], Tensor]


def record_model(
    model: nn.Module,
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    loss: Loss | None,
    name: str | None,
    samples: int | None,
    sequence: int | None,
) -> ModelDescription:
    """As corro.torch.record()."""
    if not isinstance(model, nn.Module):
        raise InvalidArgumentError(f"record: model: a {type(model).__name__} is no nn.Module")
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module
    first = first_tensor((inputs, keywords))
    samples = _count("samples", samples, _batch(first))
    sequence = _count("sequence", sequence, tokens_of(first), least=0)
    trace = trace_model(model, inputs, keywords, loss)
    dtype = dtype_of(model, first)
    subject = Subject(name or type(model).__name__, samples, sequence, dtype)
    return describe(trace, subject)


def trace_model(
    model: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], loss: Loss | None
) -> Trace:
    """Returns the trace of one forward and backward; the module is as it was."""
    return _traced(
        model,
        (inputs, keywords),
        lambda given: model(*given[0], **given[1]),
        lambda output: _loss_of(output, loss),
    )


def trace_step(model: nn.Module, batch: Any, loss: Callable[[nn.Module, Any], Any]) -> Trace:
    """Returns the trace of `loss(model, batch)` and backward; the module is as it was.

    Whatever may be computed of the batch without parameters is not active.
    """

    def checked(made: Any) -> tuple[Tensor, bool]:
        if not isinstance(made, Tensor) or made.numel() != 1:
            raise InvalidArgumentError("record: loss: must return a tensor of one element")
        if not made.requires_grad:
            raise InvalidArgumentError(
                "record: loss: does not depend on a parameter that requires a gradient"
            )
        return made, True

    return _traced(model, batch, lambda given: loss(model, given), checked, first_is_active=False)


def _traced(
    model: nn.Module,
    given: Any,
    forward: Callable[[Any], Any],
    loss_of: Callable[[Any], tuple[Tensor, bool]],
    first_is_active: bool = True,
) -> Trace:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = Fakes(mode)
    tracer = Tracer(model)
    with random_state_kept(), faked(model, fakes), torch.enable_grad():
        for name, parameter in model.named_parameters():
            tracer.trace.names[tracer.declare(parameter, PARAMETER)] = name
        stand_ins = fakes.within(given)
        origin = INPUT
        for tensor in tree_flatten(stand_ins)[0]:
            if isinstance(tensor, Tensor):
                number = tracer.declare(tensor, origin)
                tracer.trace.values[number].active &= first_is_active
                origin = SIDE
        try:
            with log_silenced(), mode:
                tracer.run(lambda: forward(stand_ins), loss_of)
        except CorroError:
            raise
        except Exception as error:
            raise InvalidArgumentError(f"record: {tracer.place}{one_line(error)}") from error
    return tracer.trace


def _loss_of(output: Any, loss: Loss | None) -> tuple[Tensor, bool]:
    """Returns a scalar, and whether it is the user's own loss."""
    if loss is not None:
        made = loss(output)
        if not isinstance(made, Tensor) or made.numel() != 1:
            raise InvalidArgumentError("record: loss: must return a tensor of one element")
        return made, True
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, Tensor):
        return own, True
    tensors = [
        each
        for each in tree_flatten(output)[0]
        if isinstance(each, Tensor) and (each.is_floating_point() or each.is_complex())
    ]
    if not tensors:
        raise InvalidArgumentError(
            f"record: the model returned a {type(output).__name__} without tensors; give loss="
        )
    if len(tensors) == 1 and tensors[0].numel() == 1:
        return tensors[0], True
    total: Tensor = sum((each.float().sum() for each in tensors[1:]), tensors[0].float().sum())
    return total, False


def one_line(error: Exception) -> str:
    """Returns an error's class and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}".rstrip(": ")


def first_tensor(values: Any) -> Tensor:
    for each in tree_flatten(values)[0]:
        if isinstance(each, Tensor):
            return each
    raise InvalidArgumentError("record: inputs: there is no tensor among them")


def _count(field: str, given: int | None, default: int, least: int = 1) -> int:
    value = default if given is None else given
    if type(value) is not int or value < least:
        raise InvalidArgumentError(f"record: {field}: must be an integer from {least}, not {value}")
    return value


def _batch(first: Tensor) -> int:
    return first.shape[0] if first.dim() else 1


def tokens_of(first: Tensor) -> int:
    whole = not first.is_floating_point() and first.dim() == 2
    return first.shape[1] if whole or first.dim() == 3 else 0


def dtype_of(model: nn.Module, first: Tensor) -> torch.dtype:
    """Returns the dtype that most parameters have."""
    sizes: dict[torch.dtype, int] = {}
    for parameter in model.parameters():
        if parameter.is_floating_point():
            sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.numel()
    if sizes:
        return max(sizes, key=lambda each: sizes[each])
    return first.dtype if first.is_floating_point() else torch.float32
