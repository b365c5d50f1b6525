"""A trainer as a state: for checkpoints, and for a job in which ranks come or go.

    state = TrainerState(trainer, epoch=0)
    checkpointer = corro.checkpoint.Checkpointer("run-7", every=100)
    checkpointer.load(state)             # before the first step

    @corro.elastic.run
    def train(state):
        while trainer.steps < 1000:
            trainer.step(batch(trainer.steps))
            checkpointer.save(state)
            state.commit()

For a checkpoint every rank gets what others have: parameters and buffers as by trainer.gather(),
and the optimizer's state, by the names of parameters, in the host's memory. All ranks write a part.

When the world changes, sync() makes another plan for it, and moves the training (moving.py):

    a step is whole        some rank has made it: then all have their gradients, and make it, too
    all boxes are there    on ranks that are left: they go on behind that step
    else                   all go back to the last commit, of which others keep copies (copies.py)
    else                   all go back to the newest checkpoint

A plan in which each rank has what others have, too, needs no copies: data parallelism without ZeRO.
"""

from __future__ import annotations

import math
import pickle
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from corro import _context
from corro._agreement import check_same_lines
from corro._context import exchange
from corro._objects import broadcast_object
from corro.elastic._state import State
from corro.errors import DataLossError
from corro.torch.checkpoint import Layouts, OnDisk, read_tree
from corro.torch.copies import Copies, Found, Read
from corro.torch.elastic import TorchState
from corro.torch.optimizer_state import broadcast_packed
from corro.torch.parallel.moving import Boxes, Offer, boxes_of, empty, move
from corro.torch.parallel.replanning import ordered_world
from corro.torch.parallel.sharding import level_of
from corro.torch.parallel.trainer import Trainer
from corro.torch.tensor_pickle import Packed

if TYPE_CHECKING:
    from corro import _checkpoint

_EVERYWHERE: Layouts = Layouts({}, None, None)
_MOST_COST = 0.05  # Of the time of training, that copies take which nobody has asked for.


class _Standing(NamedTuple):
    """Where a rank's training is."""

    lives: bool
    steps: int
    is_ready: bool  # For one more.
    is_here: bool  # Its plan is of this epoch.
    commits: int
    progress: int

    @classmethod
    def of(cls, row: list[int]) -> _Standing:
        lives, steps, is_ready, is_here, commits, progress = row
        return cls(bool(lives), steps, bool(is_ready), bool(is_here), commits, progress)


class TrainerState(TorchState):
    """What a trainer has, and attributes that all ranks have alike.

    It holds parameters, buffers, the optimizer's state and options, main weights, how many steps
    were made, the seed from which dropout is drawn, and the scale of losses. Load it from a
    checkpoint before the first step, or after gather(). Attributes change directly behind step().
    """

    def __init__(self, trainer: Trainer, **attributes: Any) -> None:
        self._trainer = trainer
        self._copies = Copies()
        self._commits = 0  # That copies were kept of; does not go back where steps do.
        self._progress = 0  # Nor does this, with which sync() has ended,
        self._since = 0  # at this step.
        self._every = 1  # Steps between two copies that nobody has asked for.
        self._kept_at = (0.0, 0)  # When the last copies were kept, and after which step.
        super().__init__(
            trainer.model,
            trainer.optimizer,
            dropout_seed=trainer._randomness.seed,
            loss_scale=trainer.scaling.loss_scale,
            **attributes,
        )

    def _count_steps_of(self, optimizer: torch.optim.Optimizer) -> None:
        """The trainer counts, since a step ends behind the optimizer's."""

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
        # Shapes alone are asked for, which parameters have that this rank has let go of, too.
        with self._trainer._running(), self._trainer._whole_optimizer():
            return super()._misfit(tree)

    def _adopt_tree(self, tree: dict[str, Any], step: int) -> None:
        trainer, optimizer = self._trainer, dict(tree["optimizer"])
        trainer.gather()
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
        self._save()

    # --- Ranks come and go ----------------------------------------------------------------------

    def commit(self) -> None:
        """Ends a step; a place to leave if a new epoch comes. Called by all ranks behind it.

        In an elastic job whose ranks have parts of their own it keeps copies of them, and blocks
        until all have theirs: one copy of this rank's parts, and as much to another rank, on
        another host if there is one. They lie in the host's memory, or in files if the plan
        offloads.

        Raises:
            AbortedError: a new epoch comes; corro.elastic.run handles it.
        """
        if self._needs_copies:
            self._take()
        super().commit()

    def _commit_at_times(self) -> None:
        """The same, with copies now and then: they take a twentieth of the time at most."""
        if self._needs_copies and self._trainer.steps % self._every == 0:
            self._take()
        super().commit()

    @property
    def _needs_copies(self) -> bool:
        """Whether a rank has something that no other one has."""
        shape = self._trainer.plan.decisions.shape
        is_alone = shape.data == 1 or level_of(shape) > 0
        return _context.membership() is not None and _context.size() > 1 and is_alone

    def _take(self) -> None:
        began, trainer = time.monotonic(), self._trainer
        self._commits += 1
        alike = self._alike()
        scratch = trainer._planning.scratch(trainer.plan)
        self._copies.take(
            *(Boxes(trainer), self._commits, trainer.steps, alike),
            is_kept=True,
            empty=None if scratch is None else scratch.empty,
        )
        now = time.monotonic()
        (then, step), self._kept_at = self._kept_at, (now, trainer.steps)
        every = 1  # Nobody knows yet.
        if trainer.steps > step:
            between = (began - then) / (trainer.steps - step)
            every = math.ceil((now - began) / (_MOST_COST * between))
        self._every = max(row[0] for row in exchange(_context.world(), [every]))

    def sync(self) -> None:
        """Makes all ranks alike: at the beginning their attributes, later with a plan of its own.

        Blocks until all ranks have called it. If it fails, this rank's training is as before.

        Raises:
            DataLossError: parts are lost with their copies, and there is no checkpoint.
            MismatchError: a rank that has come has another model.
        """
        trainer = self._trainer
        is_here = trainer._lives and trainer._epoch == _context.epoch()
        own = _Standing(
            *(trainer._lives, trainer.steps, trainer._is_ready, is_here),
            *(self._commits, self._applied()),
        )
        all_ = list(map(_Standing.of, exchange(_context.world(), own)))
        if all(each.is_here and each.steps == own.steps for each in all_):
            for adopt in State._receive(self, 0, True):
                adopt()
        else:
            self._commits = max(each.commits for each in all_)
            self._go_on(all_)
        self._progress = max(each.progress for each in all_)
        self._since = trainer.steps
        self._is_synced = True
        self._save()
        if self._needs_copies:
            self._kept_at = time.monotonic(), trainer.steps
            self._take()
        else:
            self._copies.clear()

    def _applied(self) -> int:
        return self._progress + max(0, self._trainer.steps - self._since)

    def _go_on(self, standings: list[_Standing]) -> None:
        trainer = self._trainer
        most = max((each.steps for each in standings if each.lives), default=-1)
        root = next((n for n, each in enumerate(standings) if each.lives and each.steps == most), 0)
        if most >= 0:
            self._complete(most, root)
        lack = "the training"
        has_newest = trainer._lives and trainer.steps == most
        offer = Offer(boxes_of(trainer) if has_newest else ())
        group = ordered_world()
        check_same_lines(group, "sync", trainer._recording.lines)
        planned, choices = trainer._planning.again(trainer._recording, group)
        if most >= 0 and not (lack := offer.lack(trainer)):
            mine = self._alike() if _context.rank() == root else None
            read = offer.read(broadcast_object(mine, root))
        else:
            found = Found(self._copies)
            if found.generation is None:
                empty(trainer, planned, choices, group)
                return self._fall_back(found.lack if not found.is_empty else f"{lack} is lost")
            read = found.read()
        move(trainer, planned, choices, group, read)
        self._adopt_alike(read)

    def _complete(self, most: int, root: int) -> None:
        """Makes the step that another rank has made: its gradients are here."""
        trainer = self._trainer
        total: tuple[float, float] = broadcast_object(trainer._total, root)
        if trainer._lives and trainer._is_ready and trainer.steps == most - 1:
            trainer._update(*total)
        trainer._is_ready = False

    def _alike(self) -> bytes:
        """Returns what all ranks have alike at this moment."""
        trainer = self._trainer
        self.loss_scale = trainer.scaling.loss_scale
        options = [
            {key: value for key, value in group.items() if key != "params"}
            for group in trainer.optimizer.param_groups
        ]
        alike = {"attributes": self._contents(), "steps": trainer.steps, "options": options}
        return pickle.dumps(alike)

    def _adopt_alike(self, read: Read) -> None:
        trainer, alike = self._trainer, pickle.loads(read.alike)
        for group, options in zip(trainer.optimizer.param_groups, alike["options"], strict=True):
            for key, value in options.items():
                if isinstance(group.get(key), Tensor):
                    group[key].copy_(value)
                else:
                    group[key] = value
        self._put(alike["attributes"])
        trainer.scaling.adopt(self.loss_scale)
        trainer._go_on_from(alike["steps"], self.dropout_seed)

    def _fall_back(self, why: str) -> None:
        """Goes back to the newest checkpoint. All ranks call it."""
        counts = exchange(_context.world(), [len(self._keepers)])
        keepers = self._keepers if all(row[0] for row in counts) else []
        step = next((step for one in keepers if (step := one.load(self)) is not None), None)
        if step is None:
            raise DataLossError(f"sync: {why}; and there is no checkpoint to go back to")
        if _context.rank() == 0:
            line = f"corro: {why}: going back to the checkpoint of step {step}"
            print(line, file=sys.stderr, flush=True)
