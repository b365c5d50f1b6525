"""Tables that are saved and restored, and servers that come and leave."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import HERE, Launch

import corro.table

WORKER = str(HERE / "table_save_worker.py")


def test_a_snapshot_is_read_by_any_number_of_servers(launch: Launch, tmp_path: Path) -> None:
    """From two servers to three, to none, and back."""
    folder = str(tmp_path / "t")
    launch(WORKER, "save", folder, ranks=2, options=("--servers", "2")).check()
    assert [path.name for path in (tmp_path / "t").glob("step-*")] == ["step-6"]
    job = launch(WORKER, "resume", folder, ranks=2, options=("--servers", "3")).check()
    assert job.output.count("resumed with 2 ranks") == 2
    assert "saved without servers" in launch(WORKER, "resave", folder, ranks=1).check().output
    again = (WORKER, "resume", folder + "-local")
    assert launch(*again, ranks=2, options=("--servers", "1")).check().output.count("resumed") == 2


@pytest.mark.parametrize("servers", ["2", "ranks"])
def test_what_has_changed_is_read_with_that_on_which_it_builds(
    launch: Launch, tmp_path: Path, servers: str
) -> None:
    folder = tmp_path / "t"
    launch(WORKER, "deltas", str(folder), ranks=2, options=("--servers", servers)).check()
    steps = sorted(path.name for path in folder.glob("step-*"))
    assert steps == ["step-2", "step-4", "step-6"], "two, and the whole one"
    tables = [json.loads((folder / step / "manifest.json").read_text())["tables"] for step in steps]
    assert [table[0].get("base") for table in tables] == [None, 2, 4]
    for servers_now in ("3", "1"):
        job = launch(WORKER, "resume", str(folder), ranks=2, options=("--servers", servers_now))
        assert job.check().output.count("resumed with 2 ranks") == 2


def test_ranks_that_are_servers_save_and_restore_their_rows(launch: Launch, tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    for case, servers in (("save", "ranks"), ("resume", "ranks"), ("resume", "1")):
        job = launch(WORKER, case, folder, ranks=2, options=("--servers", servers)).check()
        assert job.output.count("resumed with 2 ranks") == (2 if case == "resume" else 0)
        assert "step-6" in [path.name for path in (tmp_path / "t").glob("step-*")]


@pytest.mark.parametrize("milliseconds", [0, 10, 60])
@pytest.mark.parametrize("who", ["rank", "server"])
def test_who_dies_while_a_snapshot_is_written_leaves_the_one_before(
    launch: Launch, tmp_path: Path, who: str, milliseconds: int
) -> None:
    folder = tmp_path / "big"
    case = (WORKER, "dies", f"{folder},{who},{milliseconds}")
    job = launch(*case, ranks=2, options=("--servers", "2"))
    table = corro.table.Table(f"big-{who}-{milliseconds}", 16, optimizer="adam")
    with pytest.raises(corro.InvalidArgumentError, match="has no table of this name; it has: big"):
        table.restore(folder)
    table = corro.table.Table("big", 16, optimizer="adam")
    step = table.restore(folder)
    assert step in (1, 2)
    rows = table.pull(np.arange(200_000))
    assert len(np.unique(rows)) == 1  # All of one step.
    assert abs(rows[0, 0] + 0.001 * step) < 1e-5
    if who == "server":
        assert job.code == 0
        assert re.search(rf"newest: {step}", job.output)
        assert ("the snapshot of step 2 was not finished: server 1" in job.output) == (step == 1)


def test_servers_come_and_leave_without_a_loss(launch: Launch) -> None:
    job = launch(WORKER, "changes", ranks=2, options=("--servers", "2")).check()
    assert job.output.count("changed with 2 ranks") == 2
    for line in ("server 2 is started", "server 3 is started", "server 0 has left"):
        assert f"corro: {line}\n" in job.output
    assert "server 1 leaves once its rows are copied to others" in job.output
    assert "lost" not in job.output


def saved_twice(name: str, folder: Path) -> corro.table.Table:
    """A table with snapshots of steps 1 and 2."""
    table = corro.table.Table(name, 2, optimizer=corro.table.SGD(lr=1.0))
    for _ in range(2):
        table.push([1, 2], np.ones((2, 2)))
        table.save(folder)
    table.push([1, 3], np.ones((2, 2)))
    return table


@pytest.mark.parametrize("file", ["manifest.json", "table-0.part-0.rows"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_snapshot_is_named_and_the_one_before_is_taken(
    tmp_path: Path, file: str, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    table = saved_twice(f"damaged-{damage}-{file}", tmp_path)
    path = tmp_path / "step-2" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    if damage != "missing":
        path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    assert table.restore(tmp_path) == 1
    assert (table.pull([1, 2, 3]) == [[-1, -1], [-1, -1], [0, 0]]).all()
    assert table.steps == 1
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "the snapshot of step 2 is passed over: " in lines[0]
    assert file in lines[0]


def test_a_damaged_delta_leaves_that_on_which_it_builds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = corro.table.Table("chain", 2, optimizer=corro.table.SGD(lr=1.0))
    for key in (1, 2, 1):
        table.push([key], np.ones((1, 2)))
        table.save(tmp_path, full_every=5)
    rows = tmp_path / "step-3" / "table-0.part-0.rows"
    rows.write_bytes(rows.read_bytes()[:-20])
    assert table.restore(tmp_path) == 2
    assert (table.pull([1, 2]) == -1).all()
    assert "the snapshot of step 3 is passed over: " in capfd.readouterr().err
    (tmp_path / "step-1" / "manifest.json").unlink()
    with pytest.raises(corro.DataLossError, match="none of the snapshots in"):
        table.restore(tmp_path)
    said = capfd.readouterr().err
    assert "step-2 builds on step 1, which is none: " in said
    with pytest.raises(corro.InvalidArgumentError, match="full_every has to be a whole number"):
        table.save(tmp_path, full_every=0)


def test_nothing_is_restored_where_nothing_is_valid(tmp_path: Path) -> None:
    table = saved_twice("nothing", tmp_path)
    before = table.pull([1, 2, 3])
    for step in (1, 2):
        (tmp_path / f"step-{step}/table-0.part-0.rows").write_bytes(b"no rows")
    with pytest.raises(corro.DataLossError, match="none of the snapshots in"):
        table.restore(tmp_path)
    assert (table.pull([1, 2, 3]) == before).all()
    assert table.restore(tmp_path / "empty") is None
    assert table.steps == 3


def test_weights_of_another_optimizer_are_taken_if_that_is_said(tmp_path: Path) -> None:
    saved_twice("other", tmp_path)
    corro.table._of_process = None  # As in another process.
    corro.table._told.clear()
    table = corro.table.Table("other", 2, optimizer="adagrad")
    with pytest.raises(corro.InvalidArgumentError, match="kind is adagrad here and sgd"):
        table.restore(tmp_path)
    assert table.restore(tmp_path, weights_only=True) == 2
    assert (table.pull([1, 2]) == -2).all()


def test_a_folder_is_one_job_s_and_keeps_two(tmp_path: Path) -> None:
    table = saved_twice("kept", tmp_path)
    with pytest.raises(corro.InvalidArgumentError, match="keep has to be a whole number from 2"):
        table.save(tmp_path, keep=1)
    table.save(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-2", "step-3"]
