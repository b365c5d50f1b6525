"""A trainer as a state that checkpoints hold, so that any plan goes on from any other's.

    state = TrainerState(trainer, epoch=0)
    checkpointer = corro.checkpoint.Checkpointer("run-7", every=100)
    checkpointer.load(state)             # before the first step
    while trainer.steps < 1000:
        trainer.step(batch)
        checkpointer.save(state)

For a checkpoint every rank gets what others have: parameters and buffers as by trainer.gather(),
and the optimizer's state, by the names of parameters, in the host's memory. All ranks write a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from corro.torch.checkpoint import Layouts, OnDisk, read_tree
from corro.torch.elastic import TorchState
from corro.torch.optimizer_state import broadcast_packed
from corro.torch.parallel.trainer import Trainer
from corro.torch.tensor_pickle import Packed

if TYPE_CHECKING:
    from corro import _checkpoint

_EVERYWHERE: Layouts = Layouts({}, None, None)


class TrainerState(TorchState):
    """What a trainer has, and attributes that all ranks have alike; for a Checkpointer.

    It holds parameters, buffers, the optimizer's state and options, main weights, how many steps
    were made, the seed from which dropout is drawn, and the scale of losses. Load it before the
    first step, or after gather().
    """

    def __init__(self, trainer: Trainer, **attributes: Any) -> None:
        self._trainer = trainer
        super().__init__(
            trainer.model,
            trainer.optimizer,
            dropout_seed=trainer._randomness.seed,
            loss_scale=trainer.scaling.loss_scale,
            **attributes,
        )

    @property
    def _steps(self) -> int:
        return self._trainer.steps

    @_steps.setter
    def _steps(self, steps: int) -> None:
        """The trainer counts, and hears of a checkpoint's in _adopt_tree()."""

    def _tree(self) -> dict[str, Any]:
        """All ranks call it; blocks."""
        self._trainer.gather()
        self.loss_scale = self._trainer.scaling.loss_scale
        with self._trainer._whole_optimizer(join=True, cut=True):
            tree = super()._tree()
            tree["optimizer"]["state"] = self._state_of_all(tree["optimizer"]["state"])
        tree["optimizer"]["main"] = self._state_of_all(self._trainer._main_weights())
        return tree

    def _state_of_all(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what ranks have for their parameters, in the same order on all ranks."""
        trainer, group = self._trainer, self._trainer._group
        names = [name for name, _ in trainer.model.named_parameters()]
        owners: dict[int, list[str]] = {}
        for name in names:
            owners.setdefault(trainer._owner_of(name), []).append(name)
        # What belongs to no parameter is rank 0's.
        owners.setdefault(group.ranks[0], []).extend(own.keys() - set(names))
        state: dict[str, Any] = {}
        for rank, owned in sorted(owners.items()):
            here = {name: own[name] for name in owned if name in own}
            received = broadcast_packed("save", partial(Packed, here), rank, group)
            state |= here if received is None else received().object
        return state

    def _read(self, opened: _checkpoint.Opened) -> dict[str, Any]:
        tree: dict[str, Any] = read_tree(OnDisk(opened), _EVERYWHERE)
        return tree

    def _misfit(self, tree: dict[str, Any]) -> str:
        with self._trainer._whole_optimizer():
            return super()._misfit(tree)

    def _adopt_tree(self, tree: dict[str, Any], step: int) -> None:
        trainer, optimizer = self._trainer, dict(tree["optimizer"])
        optimizer["state"] = {
            name: state
            for name, state in optimizer["state"].items()
            if not trainer._is_released(name)
        }
        with trainer._whole_optimizer(cut=True):
            super()._adopt_tree({**tree, "optimizer": optimizer}, step)
        trainer._adopt_main_weights(optimizer.get("main", {}))
        trainer.scaling.adopt(self.loss_scale)
        trainer._go_on_from(step, self.dropout_seed)
