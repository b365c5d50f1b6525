"""serve_policy(): lines of JSON in, lines of JSON out."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from corro.elastic import Cut, Failure, Growth, Loss, Side, serve_policy


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Returns what asks a policy, and gives its answers."""

    def ask(questions: list[dict[str, Any]], **functions: Any) -> list[Any]:
        lines = "".join(json.dumps(question) + "\n" for question in questions)
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        serve_policy(**functions)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return ask


LOSS = {"about": "loss", "cause": "rank 1 was killed", "left": 2, "size": 3, "least": 1}
GROWTH = {"about": "growth", "size": 2, "coming": 1, "most": 3}
FAILURE = {"about": "failure", "host": "node7", "failures": 2}
SIDES = [{"host": "a", "ranks": 1, "accusers": 2}, {"host": "b", "ranks": 4, "accusers": 1}]
CUT = {"about": "cut", "cause": "rank 1 has lost rank 0", "sides": SIDES}


def test_each_question_goes_to_its_function(asked: Any) -> None:
    heard: list[Any] = []

    def growth(asked: Growth) -> float:
        heard.append(asked)
        return 2.5

    def failure(asked: Failure) -> tuple[float, str]:
        heard.append(asked)
        return 60, "a spot host"

    answers = asked([LOSS, GROWTH, FAILURE], loss=heard.append, growth=growth, failure=failure)
    assert heard == [Loss("rank 1 was killed", 2, 3, 1), Growth(2, 1, 3), Failure("node7", 2)]
    assert answers == [{}, {"wait": 2.5, "why": None}, {"wait": 60, "why": "a spot host"}]


def test_a_policy_names_the_side_that_goes(asked: Any) -> None:
    heard: list[Cut] = []

    def cut(asked: Cut) -> tuple[int, str]:
        heard.append(asked)
        return 1, "the far one"

    assert asked([CUT], cut=cut) == [{"fence": 1, "why": "the far one"}]
    assert heard == [Cut("rank 1 has lost rank 0", [Side("a", 1, 2), Side("b", 4, 1)])]


def test_what_has_no_function_is_left_to_the_options(asked: Any) -> None:
    assert asked([LOSS, GROWTH, FAILURE, CUT]) == [{}, {}, {}, {}]
