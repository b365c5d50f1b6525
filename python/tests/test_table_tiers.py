"""Tables whose rows lie on disk where memory has no room for them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import HERE, Launch

import corro.table

WORKER = str(HERE / "table_tiers_worker.py")


def run(launch: Launch, case: str, folder: Path, servers: int = 2) -> str:
    """Returns what two ranks have printed."""
    options = ("--servers", str(servers))
    return launch(WORKER, case, str(folder), ranks=2, options=options).check().output


def test_a_table_ten_times_its_budget_has_the_bits_of_one_in_memory(
    launch: Launch, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    assert run(launch, "trains", folder).count("trains with 2 ranks") == 2
    assert not list(folder.iterdir())


def test_rows_on_disk_are_copied_to_the_server_that_comes_for_a_lost_one(
    launch: Launch, tmp_path: Path
) -> None:
    assert run(launch, "replaced", tmp_path / "rows").count("replaced with 2 ranks") == 2


def test_an_index_beyond_the_budget_is_refused_and_pulls_go_on(
    launch: Launch, tmp_path: Path
) -> None:
    output = run(launch, "full", tmp_path / "rows", servers=1)
    line = r"full: table t: \d+ rows and \d+ more would need \d+ bytes of index in memory"
    assert len(re.findall(line, output)) == 2
    assert "raise budget, add servers, or let rows go (evict_after)" in output
    assert output.count("reads with 2 ranks") == 2


def test_a_table_of_this_process_spills_too(tmp_path: Path) -> None:
    tiers = corro.table.Table("spilled", 256, budget="1MiB", spill=tmp_path / "rows")
    memory = corro.table.Table("kept", 256)
    ids = np.arange(5000)
    for step in range(3):
        grads = np.full((len(ids), 256), step + 0.5, np.float32)
        for table in (tiers, memory):
            table.push(ids, grads)
    assert (tiers.pull(ids) == memory.pull(ids)).all()
    assert not list((tmp_path / "rows").iterdir())


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        corro.FailedPreconditionError, match=r"table t1: rows on disk: .*/file/rows cannot"
    ):
        corro.table.Table("t1", 4, budget="1MiB", spill=tmp_path / "file/rows")


def test_what_is_wrong_with_a_budget_is_said(tmp_path: Path) -> None:
    with pytest.raises(corro.InvalidArgumentError, match=r"budget has to .* not '4 GB'"):
        corro.table.Table("t2", 4, budget="4 GB")
    with pytest.raises(corro.InvalidArgumentError, match="most_bytes says how much stays"):
        corro.table.Table("t3", 4, spill=tmp_path)
