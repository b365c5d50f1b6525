"""The tables of a Checkpointer: servers write and read them, and rank 0 asks for it.

Of one checkpoint, beside what checkpoint.py tells of the ranks' own shares:

    begin()   rank 0   asks servers to write each table as it is now; steps go on meanwhile
    wait()    rank 0   in the thread: looks from time to time whether all parts are written
    load()    rank 0   has servers read all tables, each beside the one that it has, and only then
                       put them in its place: all tables are of one checkpoint, or as before
    adopt()   others   hear of that
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Protocol

from corro.elastic._state import differences
from corro.errors import CorroError, InvalidArgumentError

_FIRST_LOOK, _LAST_LOOK = 0.005, 0.25  # Seconds between two looks; each is twice the one before.


class SavableTable(Protocol):
    """A corro.table.Table, as far as checkpoints need it; there it says what each method does."""

    @property
    def name(self) -> str: ...
    @property
    def mode(self) -> str: ...
    def _begin_parts(self, folder: str, step: int, attempt: int, place: int) -> None: ...
    def _parts_written(self, attempt: int) -> int | None: ...
    def _settle(self) -> None: ...
    def _load(self, path: str, step: int, weights_only: bool) -> int: ...
    def _adopt(self) -> None: ...
    def _adopt_steps(self, steps: int) -> None: ...


class SavedTables:
    """What is saved with the states of a Checkpointer; the same on all ranks, in the same order."""

    def __init__(self, tables: Sequence[SavableTable]) -> None:
        self._tables = tuple(tables)
        self._begun: list[SavableTable] = []
        self._attempt = 0  # Of begin().
        for table in self._tables:
            if not hasattr(table, "_begin_parts"):
                raise InvalidArgumentError(
                    "Checkpointer: tables have to be corro.table.Table, or the `table` of a layer,"
                    f" not {type(table).__name__}"
                )
            if table.mode == "async":
                raise InvalidArgumentError(
                    f'Checkpointer: table {table.name} is in mode "async": it has no step that all'
                    " ranks know, so it cannot be saved with them"
                )
        if len(set(self.names)) < len(self.names):
            raise InvalidArgumentError(f"Checkpointer: a table is given twice: {self.names}")

    def __len__(self) -> int:
        return len(self._tables)

    @property
    def names(self) -> list[str]:
        return [table.name for table in self._tables]

    def begin(self, folder: str, step: int, attempt: int) -> None:
        """Has the rows of all tables written as they are now. Raises what wait() is to say."""
        self._begun, self._attempt = [], attempt
        for place, table in enumerate(self._tables):
            table._begin_parts(os.path.abspath(folder), step, attempt, place)
            self._begun.append(table)

    def wait(self) -> list[int]:
        """Blocks until nothing is being written any more. Returns how many parts each table has.

        Other threads use the tables meanwhile. Raises the first thing that went wrong, at the end.
        """
        parts: list[int] = []
        failures: list[CorroError] = []
        for table in self._begun:
            try:
                parts.append(_wait_for_parts(table, self._attempt))
            except CorroError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return parts

    def misfit(self, names: Sequence[str]) -> str:
        """Returns why a checkpoint with these tables cannot be loaded; "" if it can."""
        return differences("tables", names, self.names)

    def settle(self) -> None:
        """Blocks until no push of this rank is under way; others may still push."""
        for table in self._tables[:1]:  # It is of all tables of the process.
            table._settle()

    def load(self, folder: str, step: int) -> list[int]:
        """Takes all tables of a checkpoint, while no rank uses them. Returns their steps.

        If a part is damaged or does not fit, it raises that, and all tables are as before.
        """
        path = os.path.abspath(folder)
        steps = [table._load(path, step, weights_only=False) for table in self._tables]
        for table in self._tables:
            table._adopt()
        return steps

    def adopt(self, steps: Sequence[int]) -> None:
        """Goes on with what rank 0 has loaded."""
        for table, count in zip(self._tables, steps, strict=True):
            table._adopt_steps(count)


def _wait_for_parts(table: SavableTable, attempt: int) -> int:
    pause = _FIRST_LOOK
    while (parts := table._parts_written(attempt)) is None:
        time.sleep(pause)
        pause = min(2 * pause, _LAST_LOOK)
    return parts
