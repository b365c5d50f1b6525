"""Trainers of others, unchanged: under `corro run` they train on corro as they do over Gloo.

They are in no environment but .venv-trainers, which `make test-trainers` makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, Launch

PYTHON = HERE.parents[1] / ".venv-trainers/bin/python"
SCRIPTS = sorted(path.name for path in (HERE / "trainers").glob("*_*.py"))

needs_trainers = pytest.mark.skipif(
    not PYTHON.exists(), reason="make test-trainers makes .venv-trainers"
)


def trained(launch: Launch, script: str, **env: str) -> list[dict[str, Any]]:
    """Returns what each rank has said, by rank."""
    job = launch(str(HERE / "trainers" / script), python=PYTHON, **env).check()
    lines = [line.partition("told ")[2] for line in job.output.splitlines() if "told " in line]
    return sorted(map(json.loads, lines), key=lambda told: int(told["rank"]))


@needs_trainers
@pytest.mark.parametrize("script", SCRIPTS)
def test_losses_are_those_over_gloo(launch: Launch, tmp_path: Path, script: str) -> None:
    del tmp_path
    ours, gloos = trained(launch, script), trained(launch, script, CORRO_TORCH="keep")
    assert [told["carrier"] for told in ours] == ["CorroBackend"] * 2
    assert [told["carrier"] for told in gloos] == ["ProcessGroupGloo"] * 2
    assert [told["losses"] for told in ours] == [told["losses"] for told in gloos]
    assert ours[0]["losses"][0] > ours[0]["losses"][-1]
