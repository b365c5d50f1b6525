"""What the benchmark of tables computes: streams of ids, requests, rows and their bars."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cpp/bench"))

import rows
import table_figures as figures
import table_redis
import table_streams as streams
from table_figures import BYTES, RATE, Case, Taken

CASE = Case("pull", "pull", "uniform", 8.0, {"torch": 0.5})


def run(seconds: float, wall: float = 1.0, others: float = 0.0) -> Taken:
    return Taken(16_000_000, wall, seconds, others=others)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: streams.uniform(1000, 500, seed),
        lambda seed: streams.zipf(1000, 500, 1.05, seed),
        lambda seed: streams.criteo(1000, 20, seed),
    ],
)
def test_a_stream_is_a_function_of_its_seed(make):
    assert np.array_equal(make(3), make(3))
    assert not np.array_equal(make(3), make(4))
    assert make(3).dtype == np.uint64
    assert make(3).max() < 1000


def test_the_most_frequent_row_of_zipf_has_its_share():
    ids = streams.zipf(100, 200_000, 1.2)
    share = np.bincount(ids.astype(int)).max() / ids.size
    assert share == pytest.approx(1 / (np.arange(1, 101) ** -1.2).sum(), rel=0.02)


def test_a_click_has_an_id_of_each_column():
    columns = streams.scaled_columns(100_000)
    assert len(columns) == 26
    assert min(columns) >= 1
    assert sum(columns) <= 100_000
    ids = streams.criteo(100_000, 50).reshape(50, 26)
    ends = np.cumsum(columns)
    assert (ids < ends).all()
    assert (ids >= ends - columns).all()


def test_other_ids_have_other_keys():
    ids = np.arange(100_000, dtype=np.uint64)
    assert np.unique(streams.keys_of(ids)).size == ids.size


def test_no_row_holds_a_zero():
    held = streams.rows_of(np.arange(2000, dtype=np.uint64), 16)
    assert held.dtype == np.float32
    assert (held > 0).all()


def test_requests_to_redis_are_as_its_protocol_has_them():
    keys = np.frombuffer(b"abcdefgh12345678", np.uint64)
    values = np.frombuffer(b"wxyzWXYZ", np.float32).reshape(2, 1)
    assert table_redis.mget(keys) == (b"*3\r\n$4\r\nMGET\r\n$8\r\nabcdefgh\r\n$8\r\n12345678\r\n")
    assert table_redis.mset(keys, values) == (
        b"*5\r\n$4\r\nMSET\r\n$8\r\nabcdefgh\r\n$4\r\nwxyz\r\n$8\r\n12345678\r\n$4\r\nWXYZ\r\n"
    )


def test_a_figure_counts_the_processor_time_of_all_processes():
    taken = {"corro": [Taken(16_000_000, wall=8.0, client=1.0, server=3.0)]}
    row = figures.rates(CASE, taken)[0]
    assert row.median == 4.0
    shown = [row.columns[name] for name in ("wall", "client_cpu", "server_cpu")]
    assert shown == [2.0, 16.0, pytest.approx(16 / 3)]


def test_who_has_no_server_has_no_figure_of_one():
    row = figures.rates(CASE, {"corro": [run(2.0)]})[0]
    assert row.columns["server_cpu"] is None


def test_a_peer_is_judged_by_the_median_of_the_ratios_of_each_run():
    taken = {"corro": [run(2.0), run(1.0), run(4.0)], "torch": [run(1.0), run(1.0), run(1.0)]}
    corro, torch = figures.rates(CASE, taken)
    assert (corro.median, corro.ratio, corro.bar, corro.ok) == (8.0, None, 8.0, True)
    assert (torch.median, torch.ratio, torch.bar, torch.ok) == (16.0, 0.5, 0.5, True)
    assert (corro.columns["min"], corro.columns["max"]) == (4.0, 16.0)


def test_more_rows_reach_a_bar_and_more_bytes_do_not():
    assert not RATE.reached(7.9, 8.0)
    assert RATE.reached(8.0, 8.0)
    assert BYTES.reached(18.0, 18.0)
    assert not BYTES.reached(18.1, 18.0)
    assert RATE.reached(0.0, None)


def test_a_peer_that_is_not_there_has_a_reason_and_no_figure():
    row = figures.unmeasured(CASE, RATE, "torch", "not installed")
    assert (row.median, row.ratio, row.bar, row.ok) == (None, None, 0.5, False)
    assert row.columns["note"] == "not installed"


def test_cores_of_others_are_their_processor_time_by_the_clock():
    assert figures.cores_of_others([run(1, 2.0, 1.0), run(1, 2.0, 3.0)]) == 1.0


def test_one_call_of_a_hundred_is_later():
    calls = [call / 1e6 for call in range(1, 201)]
    case = Case("small", "times", "small", 198.5)
    row = figures.latencies(case, {"corro": [calls]})[0]
    assert row.median == pytest.approx(198)
    assert row.ok
    assert row.columns["note"] == "half take up to 100 us"


def test_all_rows_of_tables_stand_in_one_table_with_their_unit():
    rates = figures.rates(CASE, {"corro": [run(2.0)]})
    unmeasured = figures.unmeasured(CASE, RATE, "torch", "not installed")
    text = rows.tables([*rates, unmeasured])
    assert text.count("| op |") == 1
    assert "| 8 | M rows/CPU s |" in text
    assert list(rates[0].cells())[-5:] == ["median", "unit", "ratio", "bar", "ok"]


def test_a_row_of_time_keeps_its_column():
    assert rows.timed("launch", {}, 3.0, 4.0).cells() == {
        "op": "launch",
        "median_us": 3.0,
        "ratio": None,
        "bar": 4.0,
        "ok": True,
    }


def test_a_step_is_compared_with_sync_mode_of_the_same_ranks():
    found = figures.steps(
        {
            "sync": [2.0, 4.0],
            "sync, prefetch": [1.0, 1.0],
            "sync, uneven ranks": [8.0, 8.0],
            "bounded, uneven ranks": [4.0, 4.0],
        }
    )
    assert [row.ratio for row in found] == [1.0, 0.375, 1.0, 0.5]
    assert found[1].median == 1e6
    assert found[1].columns["case"] == "step of 2 ranks, sync, prefetch"


def test_changes_of_servers_and_snapshots_have_a_row_each():
    frozen, beside = Case("come", "push", "", 50.0), Case("beside", "push", "", 0.85)
    rounds = [
        {"alone": 100.0, "snapshot": 90.0, "usual_ms": 1.0, "longest_ms": longest}
        for longest in (30.0, 51.0, 52.0)
    ]
    come, shared = figures.changes(frozen, beside, rounds)
    assert (come.median, come.unit, come.ok) == (51.0, "ms, the longest", False)
    assert come.columns["max"] == 52.0
    assert (shared.median, shared.bar, shared.ok) == (0.9, 0.85, True)
    assert shared.columns["note"] == "100 pushes/s without"
