"""Checkpoints of a state and tables: both are of one step, or neither is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import HERE, Launch
from elastic_member import be_no_rank

import corro
import corro.table
from corro.checkpoint import Checkpointer
from corro.elastic import State
from corro.table import SGD, Table

WORKER = str(HERE / "checkpoint_tables_worker.py")


def test_the_newest_whole_checkpoint_is_loaded_by_any_number_of_servers(
    launch: Launch, tmp_path: Path
) -> None:
    straight = launch(WORKER, str(tmp_path / "s"), "8", options=("--servers", "2")).check()
    folder = str(tmp_path / "c")
    for servers, until, begins in (("2", "3", "None"), ("3", "5", "2"), ("1", "8", "4")):
        job = launch(WORKER, folder, until, options=("--servers", servers)).check()
        assert job.output.count(f"begins behind {begins}\n") == 2
    ends = re.findall(r"ends with (\w+) failed 0", straight.output)
    assert ends == re.findall(r"ends with (\w+) failed 0", job.output)
    assert len(set(ends)) == 1
    assert sorted(path.name for path in Path(folder).glob("step-*")) == ["step-6", "step-8"]


@pytest.mark.parametrize("milliseconds", ["0", "5", "25", "80"])
@pytest.mark.parametrize("who", ["rank", "server"])
def test_who_is_killed_while_it_is_written_leaves_a_whole_one(
    launch: Launch, tmp_path: Path, who: str, milliseconds: str
) -> None:
    folder = str(tmp_path / "c")
    options = ("--servers", "2")
    job = launch(WORKER, folder, "5", who, "4", milliseconds, options=options)
    assert (job.code == 0) == (who == "server"), job.output
    found = sorted(path.name for path in Path(folder).glob("step-?"))
    assert found in (["step-2"], ["step-2", "step-4"])
    if who == "server":
        said = "the checkpoint of step 4 was not finished" in job.output
        assert said == (len(found) == 1), job.output
    job = launch(WORKER, folder, "6", options=options).check()
    assert job.output.count(f"begins behind {2 * len(found)}\n") == 2
    assert not list(Path(folder).glob("*partial*"))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    be_no_rank(monkeypatch)
    monkeypatch.setattr(corro.table, "_of_process", None)
    monkeypatch.setattr(corro.table, "_told", {})
    corro.init()
    yield
    corro.shutdown()


def tables() -> list[Table]:
    """Two, in this process."""
    return [Table(name, 2, optimizer=SGD(lr=1.0)) for name in ("users", "items")]


def take_step(state: State, made: list[Table]) -> None:
    """Users take two steps where the state takes one."""
    for table in (made[0], *made):
        table.push([1, 2**40], np.ones((2, 2)))
    state.at += 1
    state.commit()


def saved_twice(folder: Path) -> tuple[State, list[Table], Checkpointer]:
    """Checkpoints of steps 1 and 2, and one step more."""
    state, made = State(at=0), tables()
    checkpointer = Checkpointer(folder, every=1, tables=made)
    for _ in range(2):
        take_step(state, made)
        assert checkpointer.save(state)
        checkpointer.wait()
    take_step(state, made)
    assert (checkpointer.failed, checkpointer.step) == (0, 2)
    return state, made, checkpointer


def is_of_step(state: State, made: list[Table], step: int) -> bool:
    users, items = made
    steps = (state.at, users.steps, items.steps) == (step, 2 * step, step)
    rows = np.array([users.pull([1, 2**40]) / 2, items.pull([1, 2**40])])
    return steps and bool((rows == -step).all())


@pytest.mark.usefixtures("alone")
def test_state_and_tables_are_loaded_together(tmp_path: Path) -> None:
    state, made, checkpointer = saved_twice(tmp_path)
    assert is_of_step(state, made, 3)
    assert checkpointer.load(state) == 2
    assert is_of_step(state, made, 2)
    assert made[1].restore(tmp_path) == 2  # A table of it by itself.


@pytest.mark.usefixtures("alone")
def test_two_checkpointers_may_have_the_same_table(tmp_path: Path) -> None:
    state, made = State(at=0), tables()
    often, seldom = (
        Checkpointer(tmp_path / name, every=1, tables=made) for name in ("often", "seldom")
    )
    take_step(state, made)
    assert often.save(state)
    assert seldom.save(state)
    for checkpointer in (often, seldom):
        checkpointer.wait()
        assert (checkpointer.failed, checkpointer.step) == (0, 1)
    take_step(state, made)
    assert seldom.load(state) == 1
    assert is_of_step(state, made, 1)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("part", ["table-0.part-0.rows", "table-1.part-0.rows"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_part_of_a_table_loses_the_state_of_its_step_too(
    tmp_path: Path, part: str, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    state, made, checkpointer = saved_twice(tmp_path)
    path = tmp_path / "step-2" / part
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    if damage != "missing":
        path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    assert checkpointer.load(state) == 1
    assert is_of_step(state, made, 1)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "the checkpoint of step 2 is passed over: " in lines[0]
    assert part in lines[0]


@pytest.mark.usefixtures("alone")
def test_nothing_changes_where_no_checkpoint_is_whole(tmp_path: Path) -> None:
    state, made, checkpointer = saved_twice(tmp_path)
    for step in (1, 2):  # The first table's parts are whole.
        with open(tmp_path / f"step-{step}/table-1.part-0.rows", "r+b") as file:
            file.write(b"x")
    with pytest.raises(corro.DataLossError, match=r"none in .* is valid"):
        checkpointer.load(state)
    assert is_of_step(state, made, 3)


@pytest.mark.usefixtures("alone")
def test_a_checkpoint_of_other_tables_is_refused(tmp_path: Path) -> None:
    state, made, _ = saved_twice(tmp_path)
    others = [made[0], Table("words", 2)]
    with pytest.raises(corro.InvalidArgumentError, match=r"no tables words; .*not here: items"):
        Checkpointer(tmp_path / ".", every=1, tables=others).load(state)
    with pytest.raises(corro.InvalidArgumentError, match="not here: users, items"):
        Checkpointer(tmp_path / ".", every=1).load(state)
    assert is_of_step(state, made, 3)


@pytest.mark.usefixtures("alone")
def test_tables_that_cannot_be_saved_are_named(tmp_path: Path) -> None:
    table = Table("users", 2, optimizer=SGD(lr=1.0))
    for given, text in (
        ([table, table], "given twice"),
        (["users"], "have to be corro.table.Table.*not str"),
        ([Table("later", 2, mode="async")], 'later is in mode "async"'),
    ):
        with pytest.raises(corro.InvalidArgumentError, match=text):
            Checkpointer(tmp_path, every=1, tables=given)  # type: ignore[arg-type]


@pytest.mark.usefixtures("alone")
def test_the_command_shows_and_verifies_tables(tmp_path: Path) -> None:
    saved_twice(tmp_path)

    def said(*words: str) -> str:
        program = Path(sys.executable).with_name("corro")
        done = subprocess.run(
            [program, "checkpoint", *words, str(tmp_path)],
            check=False,
            capture_output=True,
            text=True,
        )
        return done.stdout

    assert re.search(r"2 +1 +0 +2 ", said("ls"))
    assert re.search(r"users +4 +2 ", said("show"))
    shown = json.loads(said("show", "--json"))["tables"]
    assert [(one["name"], one["steps"], one["rows"], one["files"]) for one in shown] == [
        ("users", 4, 2, ["table-0.part-0.rows"]),
        ("items", 2, 2, ["table-1.part-0.rows"]),
    ]
    assert "step 2: valid, " in said("verify")
    with open(tmp_path / "step-2/table-1.part-0.rows", "r+b") as file:
        file.write(b"x")
    assert re.search(r"step 2: .*table-1.part-0.rows: damaged", said("verify"))
