"""`corro.Plan`: what the engine writes and refuses, Python reads and refuses, in the same words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import corro
from corro.graph import Channel, Lane, Operation, Plan, Service

pytestmark = pytest.mark.torch22

SOURCES = Path(__file__).resolve().parents[2] / "cpp/src/plan"
TABLE = json.loads((SOURCES / "bad_plans.json").read_text())

PAIR = Plan(
    ranks=2,
    lanes=(
        Lane(name="gpu0", ranks=(0,)),
        Lane(name="gpu1", ranks=(1,)),
        Lane(name="dp", order="agreed", depth=2, ranks=(0, 1)),
    ),
    channels=(Channel(name="data", slots=2, transfer_ns=5), Channel(name="gradient")),
    services=(
        Service(name="F0", lane="gpu0", priority=1, duration_ns=10, outputs=("data",)),
        Service(name="F1", lane="gpu1", inputs=("data",), outputs=("gradient",)),
        Service(
            name="reduce",
            lane="dp",
            lag=1,
            inputs=("gradient",),
            operation=Operation(kind="reduce", dtype="f32", count=4, reduce_op="sum", root=1),
        ),
    ),
)


def test_reads_and_writes_the_file_that_the_engine_writes(tmp_path: Path) -> None:
    plan = corro.Plan.load(SOURCES / "pipeline.json")  # plan_file_test: C++ writes these bytes.
    assert plan.ranks == 4
    assert plan.lanes[3] == Lane(name="stage3", ranks=(3,))
    assert plan.channels[4].transfer_ns == 1_000_000
    assert plan.services[1].inputs == ("stash0", "gradient0")
    plan.save(tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_bytes() == (SOURCES / "pipeline.json").read_bytes()


def test_what_is_saved_is_loaded_again(tmp_path: Path) -> None:
    PAIR.check()
    PAIR.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == PAIR


def test_a_plan_is_part_of_a_larger_document() -> None:
    document = json.loads(json.dumps({"decisions": 7, "graph": PAIR.to_dict()}))
    assert Plan.from_dict(document["graph"], "result.json: graph") == PAIR
    document["graph"]["services"][0]["lane"] = "line"
    with pytest.raises(corro.InvalidArgumentError) as caught:
        Plan.from_dict(document["graph"], "result.json: graph")
    expected = 'result.json: graph: services[0].lane: there is no lane "line"'
    assert str(caught.value) == expected


@pytest.mark.parametrize(("part", "text", "error"), [row[1:] for row in TABLE["cases"]])
def test_bad_files_have_the_errors_of_the_engine(
    part: str | None, text: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if part is not None:
        assert part in TABLE["good"]
        text = TABLE["good"].replace(part, text, 1)
    Path("plan.json").write_text(text)
    with pytest.raises(corro.InvalidArgumentError) as caught:
        Plan.load("plan.json")
    message = str(caught.value)
    if error.endswith(" "):  # What is wrong with the JSON is the parser's to say.
        assert message.startswith(f"plan.json: {error}")
    else:
        assert message == f"plan.json: {error}"
    assert "\n" not in message


@pytest.mark.parametrize("data", [b"\xff\xfe{}", b"[" * 1_000_000, b"9" * 10_000])
def test_bytes_that_no_parser_likes_are_an_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(data)
    with pytest.raises(corro.InvalidArgumentError, match=r"plan\.json: (is not JSON|is nested)"):
        Plan.load(tmp_path / "plan.json")


def test_a_file_beyond_the_limit_is_not_parsed(tmp_path: Path) -> None:
    with open(tmp_path / "plan.json", "wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(corro.InvalidArgumentError, match="has 67108865 bytes; at most 67108864"):
        Plan.load(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"ranks": 0}, "plan: ranks: must be an integer from 1 to 1048576"),
        ({"ranks": 2.0}, "plan: ranks: must be an integer from 1 to 1048576"),
        ({"lanes": PAIR.lanes[:2]}, 'plan: services[2].lane: there is no lane "dp"'),
        ({"channels": PAIR.channels[:1]}, "plan: services[1].outputs[0]: there is no channel"),
        ({"services": PAIR.services[:2]}, 'plan: channels[1]: "gradient" has 1 producers and 0'),
    ],
)
def test_check_names_the_place(change: dict[str, object], error: str, tmp_path: Path) -> None:
    plan = dataclasses.replace(PAIR, **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below.
        plan.check()
    assert str(caught.value).startswith(error)
    with pytest.raises(corro.InvalidArgumentError):
        plan.save(tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()


def test_only_a_service_of_one_rank_can_send() -> None:
    lanes = (*PAIR.lanes[:2], dataclasses.replace(PAIR.lanes[2], ranks=(1, 2)))
    channel = Channel(name="late")
    send = dataclasses.replace(PAIR.services[0], outputs=("data", "late"))
    reduce = dataclasses.replace(PAIR.services[2], inputs=("gradient", "late"))
    plan = Plan(
        ranks=3,
        lanes=lanes,
        channels=(*PAIR.channels, channel),
        services=(send, PAIR.services[1], reduce),
    )
    with pytest.raises(corro.InvalidArgumentError, match=r"late.* have no rank in common"):
        plan.check()


def test_filled_slots_are_on_one_side_of_a_transfer() -> None:
    channels = (dataclasses.replace(PAIR.channels[0], initial=1), PAIR.channels[1])
    dataclasses.replace(PAIR, channels=channels).check()
    near = Service(name="near", lane="gpu0", inputs=("data",))
    plan = dataclasses.replace(PAIR, channels=channels, services=(*PAIR.services, near))
    with pytest.raises(corro.InvalidArgumentError, match=r"channels\[0\]\.initial"):
        plan.check()
