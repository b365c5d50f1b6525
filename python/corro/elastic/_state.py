"""State: what a training function goes on with after ranks have come or gone.

Ranks count steps. Between two steps all of them are in the same state, so a number says which. A
rank that fails in step n+1 has the state after n steps, and another one may have that after n+1,
if the step was over there. sync() takes the state of a rank that has the most steps, so a step
that was over on any rank that is left is not lost, and is not done twice.

Attributes change whenever the function says so. commit() takes a copy of them, and restore() takes
it back if no step has come between: what the function did to them in a step that failed is undone.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from corro import _context
from corro._contents import Contents, read
from corro._context import exchange
from corro._objects import broadcast_bytes
from corro.errors import AbortedError, InvalidArgumentError, MismatchError

if TYPE_CHECKING:
    from corro import _checkpoint

Adopt = Callable[[], None]


class Keeper(Protocol):
    """What saves states: a Checkpointer."""

    def load(self, state: State, /) -> int | None:
        """Puts the newest one that is valid into the state; returns its step, None: none."""

    def _save_last(self, state: State, /) -> None:
        """Saves the state before the job ends; on all ranks, which are after the same step."""


class State:
    """Attributes that all ranks have alike: `state = State(step=0)`, and then `state.step`.

    A value may be anything that can be copied and pickled. One that has state_dict() and
    load_state_dict(), such as a scheduler, stays the same object. Here a step is what lies between
    two calls of commit().

    Externally synchronized.
    """

    def __init__(self, **attributes: Any) -> None:
        kind = type(self)
        if taken := [name for name in attributes if name[0] == "_" or hasattr(kind, name)]:
            raise InvalidArgumentError(f"{kind.__name__}: no attribute can be named {taken[0]!r}")
        vars(self).update(attributes)
        self._names = tuple(attributes)
        self._callbacks: list[Callable[[], object]] = []
        self._steps = 0  # That this state comes after.
        self._is_synced = False  # Other ranks with as many steps have the same.
        self._keepers: list[Keeper] = []  # In the same order on all ranks.
        self._save()

    if TYPE_CHECKING:  # Attributes are whatever they are.

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], object]]) -> None:
        """Has these called, in order, in each new epoch: before sync(), in the new world.

        They make anew what depends on the number of ranks: groups, a learning rate.
        """
        self._callbacks += callbacks

    def commit(self) -> None:
        """Takes a copy of the attributes, for restore(); a place to leave if a new epoch comes.

        Does not communicate, but waits for arrays that JAX is computing. What belongs to a step has
        to be done before: the step of the optimizer, and what it changes in attributes.

        Raises:
            AbortedError: a new epoch comes; run() handles it.
            jax.errors.JaxRuntimeError, ValueError: JAX's, of what the attributes were computed
                from: the copy taken before stays. run() handles that of a lost rank.
        """
        _context.wait_for(self._contents())
        self._steps = self._steps_at_commit()
        self._save()
        member = _context.membership()
        if member is not None and member.is_over() and not _context.is_outside():
            raise AbortedError(f"the epoch has ended: {member.why}")

    def restore(self) -> None:
        """Undoes what was done to attributes after the last commit(), if no step was over since.

        Else they stay as they are: a step is not taken back. Does not communicate.
        """
        if self._saved_at == self._steps:
            self._put(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Makes every rank's state that of the rank with the most steps; the lowest of several.

        Blocks until all ranks have called it. If it fails, this rank's state is as before.
        """
        steps = [row[0] for row in exchange(_context.world(), [self._steps])]
        most = max(steps)
        adopts = self._receive(steps.index(most), self._is_synced and self._steps == most)
        for adopt in adopts:  # All is here: nothing can fail for another rank's sake.
            adopt()
        self._steps = most
        self._is_synced = True
        self._save()

    def _enter(self, is_first: bool) -> None:
        """An epoch has begun in the middle of the job: on all ranks, also those that are new."""
        for callback in [] if is_first else self._callbacks:
            callback()

    def _leave(self) -> None:
        """Blocks until those that have saved or loaded this state before have saved it."""
        counts = exchange(_context.world(), [len(self._keepers)])
        if counts.count(counts[0]) < len(counts):  # They have hardly begun.
            return
        for keeper in self._keepers:
            keeper._save_last(self)

    def _applied(self) -> int:
        """Returns how far this rank's state is: who has most has what the job has done."""
        return self._steps

    def _steps_at_commit(self) -> int:
        return self._steps + 1

    def _receive(self, root: int, is_alike: bool) -> list[Adopt]:
        """Blocks until the root's state is here; returns what makes it this rank's.

        `is_alike`: it is already, where optimizers change it.
        """
        del is_alike  # Attributes are everybody's own.
        mine = self._contents()
        rank = _context.rank()
        data = broadcast_bytes("sync", lambda: pickle.dumps(mine), root, _context.world())
        received: dict[str, Any] = mine if rank == root else pickle.loads(data)
        if received.keys() != mine.keys():
            raise MismatchError(
                f"sync: rank {root} has the attributes {', '.join(received) or 'none'} where rank"
                f" {rank} has {', '.join(mine) or 'none'}"
            )
        return [lambda: self._put(received)]

    # -- checkpoints ------------------------------------------------------------------------------

    def _tree(self) -> dict[str, Any]:
        return {"attributes": self._contents()}

    def _stored(self, tree: dict[str, Any]) -> Contents:
        """Returns the tree as a checkpoint holds it."""
        return Contents(tree)

    def _read(self, opened: _checkpoint.Opened) -> dict[str, Any]:
        """Returns a checkpoint's tree; of sharded tensors this rank's parts. Blocks."""
        tree: dict[str, Any] = read(opened)
        return tree

    def _misfit(self, tree: dict[str, Any]) -> str:
        """Returns why a checkpoint's tree cannot be this state's; "" if it can."""
        return differences("attributes", tree["attributes"], self._names)

    def _adopt_tree(self, tree: dict[str, Any], step: int) -> None:
        """Takes over what a checkpoint holds, which fits: the same on all ranks."""
        self._put(tree["attributes"])
        self._steps = step
        self._is_synced = True
        self._save()

    # -- attributes -------------------------------------------------------------------------------

    def _save(self) -> None:
        self._saved = copy.deepcopy(self._contents())
        self._saved_at = self._steps

    def _contents(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self._names}
        return {
            name: value.state_dict() if _has_state(value) else value
            for name, value in values.items()
        }

    def _put(self, contents: dict[str, Any]) -> None:
        for name, content in contents.items():
            value = getattr(self, name)
            if _has_state(value):
                value.load_state_dict(content)
            else:
                setattr(self, name, content)


def differences(what: str, theirs: Collection[str], ours: Collection[str]) -> str:
    """Returns in which names a checkpoint differs from what is here; "" if in none."""
    missing = listed([name for name in ours if name not in theirs])
    extra = listed([name for name in theirs if name not in ours])
    texts = [f"it has no {what} {missing}"] if missing else []
    texts += [f"it has {what} that are not here: {extra}"] if extra else []
    return "; ".join(texts)


def listed(names: Sequence[str]) -> str:
    """Returns the names for a message; of a great many the first ones."""
    most = 20
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _has_state(value: object) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
