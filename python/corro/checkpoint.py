"""Checkpoints: a state on disk, from which a job of any size goes on.

    checkpointer = corro.checkpoint.Checkpointer("run-7", every=100)
    checkpointer.load(state)

    while state.step < 1000:
        ...
        optimizer.step()
        state.step += 1
        checkpointer.save(state)

The way of one checkpoint, of step N:

    save()     all ranks    say that they are at step N and write no other one
               each rank    copies its share of the state, and goes on training
    thread     each rank    writes its file behind, and waits for the disk
               all ranks    say whether theirs is written, in an operation with a name
               rank 0       writes the manifest, renames the folder: now there is a checkpoint
               rank 0       says so to the launcher
               all ranks    hear of that

Tables are written by their servers meanwhile, and are files of the same checkpoint
(_saved_tables.py).

If a rank is lost meanwhile, the operations with a name fail and the checkpoint is not finished. The
next one is written in the next epoch. What a disk refuses is a line on stderr; training goes on,
and older checkpoints stay.

A checkpoint is read by each rank for itself. Ranks agree on which: the newest one that all of them
can read.
"""

from __future__ import annotations

import itertools
import math
import os
import secrets
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corro import _context, _native
from corro._context import Group, exchange
from corro._saved_tables import SavableTable, SavedTables

try:
    from corro import _checkpoint
except ImportError as error:
    message = f"this corro was installed without checkpoints ({error}); install the whole wheel"
    raise ImportError(message) from error
from corro.elastic._state import State
from corro.errors import (
    CorroError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    MismatchError,
    NotFoundError,
)

__all__ = ["Checkpointer"]

_GOOD, _DAMAGED, _UNFIT = range(3)  # What a rank says of a checkpoint that it has read.
_LETS_GO = 60.0  # Seconds, for a rank that is lost, or processes that it has forked.
_LOOKS = 0.1  # Seconds, between two looks at a lock.
_numbers = itertools.count()  # Of checkpointers: made in the same order on all ranks.


class Checkpointer:
    """Writes a state every so many steps, and reads it back. Externally synchronized::

        checkpointer = corro.checkpoint.Checkpointer("run-7", every=100, keep=2)

    All ranks make it, and call its methods together. The folder is the same for all of them: on
    several hosts it lies on a file system that they share. Each job has a folder of its own.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int,
        keep: int = 2,
        tables: Sequence[SavableTable] = (),
    ) -> None:
        """Makes the folder, if it is not there. Does not communicate.

        Args:
            folder: where checkpoints lie, one folder for each: `step-N`.
            every: steps between two checkpoints, >= 1.
            keep: how many checkpoints are left, >= 2, so that an older one is there if the newest
                is damaged.
            tables: of class `corro.table.Table`. They are saved with each state, after the steps
                that they have taken then, and loaded with it; the same ones on all ranks, in the
                same order. Servers write and read them in the folder. Not those of mode "async".

        Raises:
            InvalidArgumentError: a number is too small, or something is no table, or one that
                cannot be saved.
            PermissionDeniedError, UnavailableError: the folder cannot be made, or written to.
        """
        if type(every) is not int or every < 1:
            raise InvalidArgumentError(f"Checkpointer: every={every!r} has to be an integer >= 1")
        if type(keep) is not int or keep < 2:
            raise InvalidArgumentError(f"Checkpointer: keep={keep!r} has to be an integer >= 2")
        self.folder = os.fspath(folder)
        self.every = every
        self.keep = keep
        self.step: int | None = None
        """The newest step that this object has written or read; None: none yet."""
        self.skipped = 0
        """Checkpoints that were left out: the one before was still being written, or a rank that
        was lost had not let go of the folder."""
        self.failed = 0
        """Checkpoints that were not finished: the disk refused, or a rank was lost."""
        self._tables = SavedTables(tables)
        self._name = f"corro.checkpoint.{next(_numbers)}"
        self._image = _checkpoint.Image()
        self._lock: _checkpoint.Lock | None = None
        self._held_since = (0, 0.0)  # In which epoch somebody else had the lock, and since when.
        self._thread: threading.Thread | None = None
        _make_folder(self.folder)

    def save(self, state: State) -> bool:
        """Begins a checkpoint if the state comes after a multiple of `every` steps.

        Returns whether one was begun. To be called by all ranks at the end of each step. Blocks
        until this rank's share of the state is copied, and never for a disk, but where a table lies
        in this process: until its rows are written. Begins none while the
        one before is still being written on some rank, nor while a rank that was lost still holds
        the folder, for a minute at most; `skipped` counts that.

        Raises:
            InvalidArgumentError: the state has a value that is no plain one; names it.
            FailedPreconditionError: another job writes into the folder.
            MismatchError: ranks come after different numbers of steps.
        """
        self._keep(state)
        step = state._steps
        if step == 0 or step % self.every:
            return False
        return self._save(state)

    def _keep(self, state: State) -> None:
        """The state is this object's to save when the job ends early."""
        if self not in state._keepers:
            state._keepers.append(self)

    def _save_last(self, state: State) -> None:
        """As save(), whatever the step is, and waits: also for a lost rank to let go."""
        self.wait()
        is_there = exchange(_context.world(), [state._steps in (0, self.step)])
        if all(row[0] for row in is_there):
            return
        while not self._save(state):
            time.sleep(_LOOKS)
        self.wait()

    def _save(self, state: State) -> bool:
        step = state._steps
        world, refusal = _context.world(), self._take_lock()
        is_busy = self._is_writing()
        if self._is_left_behind(refusal):
            refusal, is_busy = None, True
        row = [step, is_busy, secrets.randbits(48), refusal is not None]
        rows = exchange(world, row)
        if {row[0] for row in rows} != {step}:
            raise MismatchError(f"checkpoint: ranks are at steps {[row[0] for row in rows]}")
        if rows[0][3]:
            raise refusal or FailedPreconditionError(
                f"checkpoint: rank 0 cannot write into {self.folder}, and says why"
            )
        if any(row[1] for row in rows):
            self.skipped += 1
            return False
        self.wait()
        self._begin(_Attempt(self, world, step, rows[0][2]), state)
        return True

    def load(self, state: State) -> int | None:
        """Puts the newest checkpoint that is valid into the state. Returns its step, None: none.

        To be called by all ranks; blocks. A rank that comes in the middle of an elastic job reads
        none: it gets the state of the others. Says on stderr why it takes an older one than the
        newest. If it fails, the state and its tables are as before. Needs memory for them once
        more. No rank uses a table until it returns.

        Raises:
            InvalidArgumentError: the checkpoint is of another model; names all tensors that are
                missing, too many, or of another shape or dtype, and tables likewise.
            DataLossError: there are checkpoints, and none of them is valid.
        """
        self._keep(state)
        self.wait()
        if _context.is_outside():
            return None
        self._tables.settle()
        world, before = _context.world(), None
        while (step := self._next_step(world, before)) is not None:
            if self._try(state, world, step):
                self.step = step
                return step
            before = step
        if before is not None:
            raise DataLossError(f"checkpoint: none in {self.folder} is valid; see the lines above")
        return None

    def wait(self) -> None:
        """Blocks until a checkpoint that was begun is finished, or has failed. Raises nothing."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Waits, and lets another job write into the folder. So does the end of the program."""
        self.wait()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- writing ----------------------------------------------------------------------------------

    def _is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _take_lock(self) -> CorroError | None:
        """Rank 0 writes alone into the folder, from its first checkpoint on. Returns a refusal."""
        if self._lock is not None or _context.rank() != 0:
            return None
        try:
            self._lock = _checkpoint.Lock(self.folder)
            _checkpoint.remove_partial(self.folder)
        except CorroError as error:
            return error
        return None

    def _is_left_behind(self, refusal: CorroError | None) -> bool:
        """Returns whether who holds the lock may be a rank of ours that was lost.

        It was fenced and has not ended, or has forked processes that outlive it: workers of a
        DataLoader look for their parent every five seconds.
        """
        epoch, now = _context.epoch(), time.monotonic()
        if not isinstance(refusal, FailedPreconditionError) or epoch == 0:
            return False
        if self._held_since[0] != epoch:
            self._held_since = (epoch, now)
        return now - self._held_since[1] < _LETS_GO

    def _begin(self, attempt: _Attempt, state: State) -> None:
        part = attempt.copy(state)
        attempt.begin_tables()
        # Not a daemon: the interpreter waits for the last checkpoint at its end.
        self._thread = threading.Thread(
            target=attempt.write, args=(part,), name="corro-checkpoint", daemon=False
        )
        self._thread.start()

    # -- reading ----------------------------------------------------------------------------------

    def _next_step(self, world: Group, before: int | None) -> int | None:
        """Returns the newest step before that one of which rank 0 sees a checkpoint."""
        mine = -1
        if world.rank() == 0:
            try:
                steps = _checkpoint.steps(self.folder)
            except NotFoundError:
                steps = []
            mine = next((step for step in steps if before is None or step < before), -1)
        found = exchange(world, [mine])[0][0]
        return None if found < 0 else found

    def _try(self, state: State, world: Group, step: int) -> bool:
        """Returns whether all ranks have read this checkpoint, and have it in their states."""
        tree: dict[str, Any] = {}
        problem = unfit = ""
        try:
            opened = _checkpoint.Opened(self.folder, step)
            tree = state._read(opened)
            misfits = state._misfit(tree), self._tables.misfit(opened.tables)
            unfit = "; ".join(filter(None, misfits))
        except CorroError as error:
            problem = str(error)
        said = [row[0] for row in exchange(world, [_verdict(problem, unfit)])]
        if _DAMAGED in said:
            if world.rank() == said.index(_DAMAGED):
                _tell(f"the checkpoint of step {step} is passed over: {problem}")
            return False
        if _UNFIT in said:
            where = f"checkpoint: {self.folder}/step-{step} does not fit"
            if unfit:
                raise InvalidArgumentError(f"{where}: {unfit}")
            raise MismatchError(f"{where} the state of rank {said.index(_UNFIT)}, which says why")
        if self._tables and not self._load_tables(world, step):
            return False
        state._adopt_tree(tree, step)
        return True

    def _load_tables(self, world: Group, step: int) -> bool:
        """Returns whether the tables are those of this checkpoint; False: a part is damaged."""
        steps, verdict = [0] * len(self._tables), _UNFIT
        try:
            if world.rank() == 0:
                steps = self._tables.load(self.folder, step)
            verdict = _GOOD
        except DataLossError as error:
            verdict = _DAMAGED
            _tell(f"the checkpoint of step {step} is passed over: {error}")
        finally:
            verdict, *steps = exchange(world, [verdict, *steps])[0]
        if verdict == _UNFIT:
            raise MismatchError(
                f"checkpoint: rank 0 could not load the tables of {self.folder}/step-{step}, and"
                " says why"
            )
        if verdict == _GOOD and world.rank() > 0:
            self._tables.adopt(steps)
        return verdict == _GOOD


class _Attempt:
    """One checkpoint while it is written; its thread's own after copy()."""

    def __init__(self, owner: Checkpointer, world: Group, step: int, number: int) -> None:
        self._owner = owner
        self._world = world
        self._rank = world.rank()
        self._step = step
        self._number = number  # Tells it from other attempts at this step.
        self._failure: CorroError | None = None
        self._table_parts: list[int] = []

    def begin_tables(self) -> None:
        """On rank 0: has servers write the tables as they are now."""
        if self._rank != 0:
            return
        try:
            self._owner._tables.begin(self._owner.folder, self._step, self._number)
        except CorroError as error:  # The others hear that this checkpoint is not finished.
            self._failure = self._failure or error

    def copy(self, state: State) -> _checkpoint.Part | None:
        """Copies this rank's share of the state. Returns what describes it; None: no memory."""
        contents = state._stored(state._tree())
        pieces = contents.pieces(self._world)
        boxes = [piece.box for piece in pieces]
        part = _checkpoint.Part(self._step, self._rank, self._world.size(), contents.values, boxes)
        image = self._owner._image
        try:
            image.resize(part.bytes)
        except CorroError as error:  # The others write theirs; all hear that this one did not.
            self._failure = error
            return None
        contents.copy(pieces, image.memory(), part.offsets)
        return part

    def write(self, part: _checkpoint.Part | None) -> None:
        """Writes behind, and agrees with the other ranks. Raises nothing."""
        try:
            if part is not None:
                self._write_file(part)
            self._wait_for_tables()
            if self._agree():
                self._owner.step = self._step
                return
        except CorroError as error:  # A rank was lost, or this one leaves.
            self._failure = error
        self._owner.failed += 1
        if self._failure is not None:
            _tell(f"the checkpoint of step {self._step} was not finished: {self._failure}")

    def _write_file(self, part: _checkpoint.Part) -> None:
        name = _checkpoint.partial_name(self._step, self._number)
        try:
            part.write(os.path.join(self._owner.folder, name), self._owner._image)
        except CorroError as error:
            self._failure = error

    def _wait_for_tables(self) -> None:
        try:
            self._table_parts = self._owner._tables.wait()
        except CorroError as error:
            self._failure = self._failure or error

    def _agree(self) -> bool:
        """Returns whether the checkpoint is there; rank 0 finishes it once all have written."""
        written = all(ok for (ok,) in self._exchange("written", self._failure is None))
        if self._rank == 0:
            self._finish(written)
        return bool(self._exchange("finished", written and self._failure is None)[0][0])

    def _finish(self, written: bool) -> None:
        owner = self._owner
        try:
            if written:
                _checkpoint.commit(
                    owner.folder,
                    self._step,
                    self._number,
                    self._world.size(),
                    self._table_parts,
                    owner.keep,
                )
                self._report()
            # No rank writes at this moment; a server whose checkpoint was given up still may.
            _checkpoint.remove_partial(owner.folder)
        except CorroError as error:
            self._failure = self._failure or error

    def _report(self) -> None:
        folder = Path(self._owner.folder).absolute() / f"step-{self._step}"
        _context.report(lambda: _native.report_checkpoint(self._step, str(folder)))

    def _exchange(self, what: str, value: bool) -> list[list[int]]:
        """A disk may take as long as it takes: a rank that is lost ends the wait."""
        return exchange(self._world, [value], math.inf, f"{self._owner._name}.{what}")


def _verdict(problem: str, unfit: str) -> int:
    return _DAMAGED if problem else _UNFIT if unfit else _GOOD


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"no right to write into {folder!r}, or it is read-only")
    except OSError as error:
        raise FailedPreconditionError(f"Checkpointer: {error}") from error


def _tell(line: str) -> None:
    print(f"corro: {line}", file=sys.stderr, flush=True)
