"""serve_policy(): says how long an elastic job waits, and who goes, for `corro run --policy`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class Loss(NamedTuple):
    """A rank was lost, and another one may come in its place."""

    cause: str
    """For people: "rank 1 was killed by SIGKILL"."""
    left: int
    """Ranks that are left."""
    size: int
    """With how many the epoch began."""
    least: int
    """With fewer the job waits anyway."""


class Growth(NamedTuple):
    """The first of the new ranks waits to be taken in."""

    size: int
    """Ranks that train."""
    coming: int
    """New ones, with this one."""
    most: int
    """Ranks that the job may have."""


class Failure(NamedTuple):
    """The process in a slot of a host has failed."""

    host: str
    failures: int
    """In a row, with this one."""


class Side(NamedTuple):
    """Ranks of one host that go together."""

    host: str
    ranks: int
    """So many."""
    accusers: int
    """Ranks that have lost one of them."""


class Cut(NamedTuple):
    """Ranks live, and do not reach each other."""

    cause: str
    """For people: "rank 1 has lost rank 0"."""
    sides: list[Side]
    """Two or more."""


Answer = float | tuple[float, str] | None
"""Seconds, and why; None: as long as without a policy."""
Verdict = int | tuple[int, str] | None
"""An index of the sides, and why; None: the same as without a policy."""


def serve_policy(
    *,
    loss: Callable[[Loss], Answer] | None = None,
    growth: Callable[[Growth], Answer] | None = None,
    failure: Callable[[Failure], Answer] | None = None,
    cut: Callable[[Cut], Verdict] | None = None,
) -> None:
    """Answers the launcher's questions until the job is over. Needs no torch, and no init().

    Standard input and output are the launcher's: print to stderr. An answer takes at most a second;
    one that is late, or an exception, ends the policy, and the job goes on without.

    Args:
        loss: how long the others wait for a replacement before they go on with fewer ranks.
        growth: how long those that wait to be taken in wait for the others that were started.
        failure: how long nothing is started in the slot.
        cut: which side goes. It stays if too few ranks would be left.
    """
    functions: dict[str, tuple[str, Callable[..., Any], Callable[[Any], Any] | None]] = {
        "loss": ("wait", Loss, loss),
        "growth": ("wait", Growth, growth),
        "failure": ("wait", Failure, failure),
        "cut": ("fence", _cut_of, cut),
    }
    for line in sys.stdin:
        question = json.loads(line)
        verb, kind, function = functions[question.pop("about")]
        answer = None if function is None else function(kind(**question))
        print(json.dumps(_as_json(verb, answer)), flush=True)


def _cut_of(cause: str, sides: list[dict[str, Any]]) -> Cut:
    return Cut(cause, [Side(**side) for side in sides])


def _as_json(verb: str, answer: Answer | Verdict) -> dict[str, Any]:
    if answer is None:
        return {}
    what, why = answer if isinstance(answer, tuple) else (answer, None)
    return {verb: what, "why": why}
