"""The scripts of docs/frameworks.md whose frameworks are in environments of their own.

Those of torch and numpy run with the other code of the documents.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import HERE, Launch
from test_tensorflow import QUIET

ROOT = HERE.parents[1]
PAGE = ROOT / "docs/frameworks.md"


@pytest.mark.parametrize(
    ("framework", "environment"),
    [
        ("tensorflow", ".venv-tensorflow"),
        ("keras", ".venv-tensorflow"),
        ("jax", ".venv-jax"),
    ],
)
def test_a_script_of_the_page_trains(
    launch: Launch, tmp_path: Path, framework: str, environment: str
) -> None:
    python = ROOT / environment / "bin/python"
    if not python.exists():
        pytest.skip(f"make test-setup makes {environment}")
    block = rf"^```python file=(train_{framework}\.py)\n(.*?)^```$"
    found = re.search(block, PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    script = tmp_path / found[1]
    script.write_text(found[2])
    output = launch(str(script), python=python, **QUIET).check().output
    assert re.search(rf"{framework} with 2 ranks: loss 0\.000", output), output
