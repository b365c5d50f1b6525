"""Records what a module computes, on tensors without memory, as a model for the planner.

    model = corro.torch.record(module, tokens, loss=lambda logits: logits.mean())

In this order: fakes.py puts stand-ins into the module, trace.py writes down one forward and one
backward, chain.py cuts that into layers, operators.py merges each layer's operations into
operators, describe.py counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from corro.model import ModelDescription

__all__ = ["record"]


def record(
    model: nn.Module,
    *inputs: Any,
    keywords: Mapping[str, Any] | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    name: str | None = None,
    samples: int | None = None,
    sequence: int | None = None,
) -> ModelDescription:
    """Returns what `model(*inputs, **keywords)`, a loss and backward compute; nothing is computed.

    No memory is taken for parameters or activations, and the module stays as it is: parameters,
    buffers, gradients, hooks, modes, random numbers. It may be on any device, also on "meta".
    It is recorded in the mode that it is in: call model.train() for dropout.

    Args:
        inputs: for the shapes alone; of the dtypes and the batch that are trained with.
        loss: makes a scalar of the model's output. Without it: the output's `loss` if it has one,
            the output if it is a scalar, else the sum of its tensors.
        name: of the model; default: its class's.
        samples: how many samples the inputs are; default: the first tensor's first dim.
        sequence: tokens per sample; default: the second dim of integers, or of three dims.

    Raises:
        InvalidArgumentError: the model does not run on these inputs, or asks for their values.
    """
    from corro.torch.recorder.run import record_model

    return record_model(model, inputs, dict(keywords or {}), loss, name, samples, sequence)
