"""For tests of elastic states in a process that nobody has started as a rank."""

from __future__ import annotations

import pytest

from corro import _membership


class Member:
    """The membership of a job that is elastic."""

    epoch = 0
    is_last = False
    asked = 0
    why = "rank 1 was killed"
    over = False
    is_over_with = _membership.Membership.is_over_with

    def is_over(self) -> bool:
        return self.over

    @property
    def epochs(self) -> Member:
        return self

    def leave(self) -> None:
        self.asked += 1


def be_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    of_rank = ("CORRO_RANK", "CORRO_SIZE", "CORRO_AGENT", "CORRO_MEMBER_UUID", "CORRO_ELASTIC")
    for name in of_rank:
        monkeypatch.delenv(name, raising=False)
