"""Tables: in one process, and of ranks with servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import HERE, Launch

import corro.table

WORKER = str(HERE / "table_worker.py")


def run(launch: Launch, case: str, ranks: int = 2, servers: int = 2, **env: str) -> str:
    """Returns what the ranks have printed."""
    options = ("--servers", str(servers)) if servers else ()
    return launch(WORKER, case, ranks=ranks, options=options, **env).check().output


@pytest.mark.parametrize(("ranks", "servers"), [(1, 0), (1, 1), (2, 1), (3, 2)])
def test_steps_give_the_bits_of_one_process(launch: Launch, ranks: int, servers: int) -> None:
    assert run(launch, "exact", ranks, servers).count(f"exact with {ranks} ranks") == ranks


@pytest.mark.parametrize(("ranks", "servers"), [(1, 0), (2, 1), (3, 2)])
def test_rows_that_are_asked_for_ahead_are_those_of_a_pull(
    launch: Launch, ranks: int, servers: int
) -> None:
    assert run(launch, "ahead", ranks, servers).count(f"ahead with {ranks} ranks") == ranks


def test_a_rank_is_ahead_as_far_as_the_staleness_allows(launch: Launch) -> None:
    assert run(launch, "bounded").count("bounded with 2 ranks") == 2


def test_a_push_counts_once_whenever_it_arrives(launch: Launch) -> None:
    assert run(launch, "asynchronous").count("asynchronous with 2 ranks") == 2


def test_a_push_that_fails_after_it_has_returned_is_told_by_a_later_call(launch: Launch) -> None:
    output = run(launch, "late_later", CORRO_TIMEOUT="2")
    assert re.search(r"later: table t: push 1: server \d waits for rank 1", output)


def test_a_push_that_fails_at_the_end_of_the_program_fails_the_program(launch: Launch) -> None:
    job = launch(WORKER, "late_end", ranks=2, options=("--servers", "1"), CORRO_TIMEOUT="2")
    assert job.code != 0
    assert "rank 0 is through" in job.output
    assert re.search(r"TimeoutError: table t: push 1: server \d waits for rank 1", job.output)


def test_a_rank_that_does_not_push_is_named(launch: Launch) -> None:
    output = run(launch, "late", CORRO_TIMEOUT="2")
    assert re.search(r"late: table t: push 1: server \d waits for rank 1", output)


def test_ranks_that_differ_are_told(launch: Launch) -> None:
    output = run(launch, "differing", servers=1)
    assert "differing: table t: dim is 4 here and 3 there" in output
    assert output.count("with lr 0.01, and rank 1 with 2") == 2


@pytest.mark.parametrize("servers", [2, 3])
def test_no_push_is_lost_with_a_server(launch: Launch, servers: int) -> None:
    output = run(launch, "survives", servers=servers)
    assert output.count("survives with 2 ranks") == 2
    assert "corro: server 1 was lost: killed by SIGKILL" in output


def test_rows_are_copied_to_the_server_that_comes_for_a_lost_one(launch: Launch) -> None:
    """Both servers that the job begins with are killed, one after the other."""
    output = run(launch, "replaced")
    assert output.count("replaced with 2 ranks") == 2
    assert "corro: server 2 is started in the place of server 0" in output
    assert "corro: server 3 is started in the place of server 1" in output


def test_no_push_is_lost_however_servers_come_and_go(launch: Launch) -> None:
    soak = str(HERE / "table_soak.py")
    job = launch(soak, "12", ranks=2, options=("--servers", "3")).check()
    assert "steps of 2 ranks are whole; servers: " in job.output


def test_rows_that_nobody_has_are_named_and_ranks_go_on(launch: Launch) -> None:
    output = run(launch, "lost")
    assert len(re.findall(r"lost: table t: push \d+: server 1 \(127\.0\.0\.1:\d+\)", output)) == 2
    assert output.count("goes on: rank") == 2
    assert "corro: server 1 was lost: killed by SIGKILL" in output


def test_a_signal_ends_a_push_that_waits(launch: Launch) -> None:
    assert "interrupted" in run(launch, "interrupted", servers=1)


def test_a_forked_child_has_no_tables(launch: Launch) -> None:
    assert "forked: corro.table: this process was forked" in run(launch, "forked", 1, 1)


def test_ranks_without_servers_are_told_what_to_do(launch: Launch) -> None:
    job = launch(WORKER, "exact", ranks=2)
    assert job.code != 0
    assert "table t: 2 ranks need servers to keep it: corro run --servers ranks" in job.output


def table(name: str, **options: Any) -> corro.table.Table:
    return corro.table.Table(name, 4, **options)


def test_rows_are_of_the_ids_in_their_shape() -> None:
    rows = table("shapes", initial=corro.table.Uniform(-1.0, 1.0)).pull([[3, 4, 3], [5, 6, 2**40]])
    assert rows.shape == (2, 3, 4)
    assert rows.dtype == np.float32
    assert (rows[0, 0] == rows[0, 2]).all()
    assert (np.abs(rows) <= 1).all()
    assert (rows[0, 0] != rows[0, 1]).any()


def test_ids_of_all_integer_types_name_the_same_keys() -> None:
    made = table("types", initial=corro.table.Normal())
    expected = made.pull([250])
    for dtype in (np.uint8, np.int16, np.uint32, np.int64, np.uint64):
        assert (made.pull(np.array([250], dtype)) == expected).all(), dtype
    assert (made.pull([-1]) == made.pull(np.array([2**64 - 1], np.uint64))).all()
    assert made.pull([]).shape == (0, 4)


def test_a_rate_that_is_set_counts_from_the_next_push_on() -> None:
    made = table("rate", optimizer=corro.table.SGD(lr=1.0))
    made.push([1], np.ones((1, 4)))
    made.lr = 0.5
    made.push([1], np.ones((1, 4)))
    assert (made.pull([1]) == -1.5).all()
    assert made.lr == 0.5
    assert made.steps == 2


@pytest.mark.parametrize("name", ["sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "ftrl"])
def test_every_optimizer_goes_down_a_hill(name: str) -> None:
    made = table(f"hill-{name}", optimizer=name, initial=corro.table.Constant(0.5))
    made.lr = 0.1
    for _ in range(30):
        rows = made.pull([1, 2])
        made.push([1, 2], rows - np.float32(0.2))
    distances = np.abs(made.pull([1, 2]) - 0.2)
    assert (distances < 0.3).all()
    assert (distances < np.abs(made.pull([3]) - 0.2)).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_rounds_alike_and_without_a_bias(dtype: str) -> None:
    made = table(f"half-{dtype}", dtype=dtype, optimizer=corro.table.SGD(lr=1.0))
    keys = np.arange(2000)
    made.push(keys, np.full((2000, 4), -1.0))
    made.push(keys, np.full((2000, 4), -1e-4))  # Less than half of the step between two numbers.
    rows = made.pull(keys)
    assert len(np.unique(rows)) == 2
    assert abs(rows.mean() - 1.0001) < 3e-5


def test_a_key_gets_its_row_when_it_has_come_often() -> None:
    made = table("often", admit_after=3, optimizer=corro.table.SGD(lr=1.0))
    for pushes in range(1, 5):
        made.push([9], np.ones((1, 4)))
        assert (made.pull([9]) == -max(0.0, pushes - 2.0)).all()


def test_a_row_goes_that_was_not_pushed_for_long() -> None:
    made = table("goes", evict_after=5, optimizer=corro.table.SGD(lr=1.0))
    made.push([1], np.ones((1, 4)))
    for _ in range(40):
        made.push([2], np.ones((1, 4)))
    assert (made.pull([1]) == 0).all()
    assert (made.pull([2]) == -40).all()


BAD: list[tuple[str, Callable[[corro.table.Table], object], str]] = [
    ("ids", lambda t: t.pull([1.5]), "ids have to be integers, not float64"),
    ("bools", lambda t: t.pull([True]), "ids have to be integers, not bool"),
    ("shape", lambda t: t.push([1], [1.0]), "have shape [1, 4], not [1]"),
    ("nan", lambda t: t.push([3], [[0, 0, np.nan, 0]]), "the gradient of id 3 is nan in element 2"),
    ("inf", lambda t: t.push([3], [[0, 0, np.inf, 0]]), "the gradient of id 3 is inf"),
    ("dim", lambda t: corro.table.Table(t.name, 5), "dim is 5 here and 4 there"),
    ("none", lambda _: corro.table.Table("none", 0), "dim has to be a whole number from 1"),
    ("wide", lambda _: corro.table.Table("wide", 5000), "4096"),
    ("name", lambda _: corro.table.Table("a b", 4), "letters, digits"),
    ("dtype", lambda _: table("dtype", dtype="int8"), "float32, bfloat16, float16"),
    ("optimizer", lambda _: table("optimizer", optimizer="rmsprop"), "sgd, momentum"),
    ("lr", lambda _: table("lr", optimizer=corro.table.SGD(lr=-1.0)), "lr is -1"),
    ("set", lambda t: setattr(t, "lr", float("nan")), "lr"),
    ("replicas", lambda _: table("replicas", replicas=-1), "replicas has to be a whole number"),
    ("mode", lambda _: table("mode", mode="eager"), "sync, bounded, async, not 'eager'"),
    ("ahead", lambda _: table("ahead", mode="bounded"), "staleness is 0, and has to be 1 to 64"),
    ("stale", lambda _: table("stale", staleness=1), "has to be 0 in mode sync"),
    ("far", lambda _: table("far", mode="async", staleness=65), "has to be 0 to 64 in mode async"),
    ("depth", lambda _: table("depth", prefetch_depth=0), "prefetch_depth has to be a whole"),
    ("fetched", lambda t: t.prefetch([1.5]), "ids have to be integers, not float64"),
    ("unlike", lambda t: table(t.name, mode="async"), "mode is async here and sync there"),
    ("initial", lambda _: table("initial", initial=3), "Constant, Uniform or Normal"),
]


@pytest.mark.parametrize(("case", "call", "words"), BAD, ids=[case for case, _, _ in BAD])
def test_bad_input_is_one_clear_line(
    case: str, call: Callable[[corro.table.Table], object], words: str
) -> None:
    made = table("bad")
    before = made.pull([1, 3])
    with pytest.raises(corro.InvalidArgumentError) as raised:
        call(made)
    assert words in str(raised.value), case
    assert "\n" not in str(raised.value)
    assert (made.pull([1, 3]) == before).all()
