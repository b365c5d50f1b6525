"""What users call on an optimizer whose parameters a trainer has replaced.

load_state_dict()   a state of whole parameters is cut; one of this rank's own parts stays
add_param_group()   is refused: the plan, the shards and the sums know nothing of new ones
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corro.errors import FailedPreconditionError, InvalidArgumentError
from corro.torch.parallel.sharded_optimizer import step_accumulators, step_parts_again

if TYPE_CHECKING:
    from corro.torch.parallel.shards import Shard

_NAMES = ("load_state_dict", "add_param_group")


class OptimizerCalls:
    """Takes the place of these methods of one optimizer, from attach() to detach()."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        shards: Sequence[Shard],
        divided: Mapping[str, Tensor],
    ) -> None:
        """`divided`: parts of tensor parallelism that it steps, by name; a part alone is loaded."""
        self._optimizer = optimizer
        self._shards = shards
        self._divided = divided
        self._own: dict[str, Any] = {}  # What the optimizer itself had: a subclass may, too.

    def attach(self) -> None:
        fields = vars(self._optimizer)
        self._own = {name: fields[name] for name in _NAMES if name in fields}
        fields.update(load_state_dict=self._load, add_param_group=_refuse_group)

    def detach(self) -> None:
        """Does nothing where it is not attached."""
        fields = vars(self._optimizer)
        if is_attached(self._optimizer):
            for name in _NAMES:
                del fields[name]
            fields.update(self._own)

    @contextmanager
    def detached(self) -> Iterator[None]:
        self.detach()
        try:
            yield
        finally:
            self.attach()

    def _load(self, state_dict: dict[str, Any]) -> None:
        self._check(state_dict)
        with self.detached():
            step_accumulators(self._optimizer, self._shards)
            try:
                self._optimizer.load_state_dict(state_dict)
            finally:
                step_parts_again(self._optimizer, self._shards)

    def _check(self, state_dict: Mapping[str, Any]) -> None:
        """Raises InvalidArgumentError if a state fits neither a parameter nor its part."""
        divided = self._divided.items()
        parts = {id(part): (name, part.shape, part.shape) for name, part in divided}
        parts |= {
            id(part): (name, whole.shape, part.shape)
            for shard in self._shards
            for name, whole, part in zip(shard.names, shard.accumulators, shard.parts, strict=True)
        }
        stepped = [each for one in self._optimizer.param_groups for each in one["params"]]
        for number, each in enumerate(stepped):
            state = state_dict["state"].get(number)
            if id(each) not in parts or not isinstance(state, Mapping):
                continue
            name, whole, part = parts[id(each)]
            for key, value in state.items():
                if isinstance(value, Tensor) and value.dim() and value.shape not in (whole, part):
                    raise InvalidArgumentError(
                        f"load_state_dict: {name}: {key} has the shape {list(value.shape)}, which "
                        f"is neither the parameter's, {list(whole)}, nor that of this rank's part, "
                        f"{list(part)}: load a whole state, or a checkpoint by TrainerState"
                    )


def is_attached(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether a trainer has the optimizer."""
    return vars(optimizer).get("add_param_group") is _refuse_group


def _refuse_group(*_: object, **__: object) -> None:
    raise FailedPreconditionError(
        "add_param_group: the plan is made for the parameters that the optimizer had: call "
        "trainer.close(), add the group, and parallelize() again"
    )
