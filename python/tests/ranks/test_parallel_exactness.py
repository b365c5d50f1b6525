"""docs/exactness.md has the models and plans that exactness.py trains, and they are as exact."""

from __future__ import annotations

import re

import exactness
import pytest

import corro

pytestmark = pytest.mark.usefixtures("job", "one_thread")


def written() -> dict[str, dict[str, float]]:
    """Returns the page's rows: for each plan that there is the difference."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in exactness.PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    title, _, *lines = rows
    return {
        line[0]: {
            plan: float(cell)
            for plan, cell in zip(title[1:], line[1:], strict=True)
            if re.fullmatch(r"\d+e[-+]\d+", cell)
        }
        for line in lines
    }


def test_the_page_has_all_models_and_plans() -> None:
    rows = written()
    assert list(rows) == list(exactness.MODELS)
    assert {plan for row in rows.values() for plan in row} == set(exactness.PLANS)
    assert max(value for row in rows.values() for value in row.values()) <= 1e-5


@pytest.mark.parametrize("name", ["MLP", "LSTM"])
def test_it_still_holds(name: str) -> None:
    if corro.size() != exactness.RANKS:
        pytest.skip("the page is of four ranks")
    found = exactness.differences(name, 5)
    assert found.keys() == written()[name].keys()
    assert max(found.values()) <= 1e-5
