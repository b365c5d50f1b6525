"""Checkpoints of states: in a world of one, and of jobs whose ranks are killed."""

from __future__ import annotations

import json
import math
import os
import re
import struct
import subprocess
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Finished, Launch
from elastic_member import be_no_rank
from torch import nn

import corro.torch as corro
from corro._plain import from_text, to_text
from corro.checkpoint import Checkpointer
from corro.elastic import State

pytestmark = pytest.mark.torch22
WORKER = Path(__file__).with_name("checkpoint_worker.py")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    be_no_rank(monkeypatch)
    corro.init()
    yield
    corro.shutdown()


class Odd(nn.Module):
    """Tensors of all kinds: odd dtypes and names, tied, transposed, without dims, empty."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(3, 4)
        self.tied = nn.Linear(3, 4, bias=False)
        self.tied.weight = self.first.weight
        self.bfloat = nn.Parameter(torch.randn(5).to(torch.bfloat16))
        self.turned = nn.Parameter(torch.randn(4, 6).t())
        buffers = {
            "flags": torch.rand(7) > 0.5,
            "scalar": torch.tensor(seed),
            "nothing": torch.empty(0, 3),
            'a "b"/ä\n': torch.randn(2),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tail = self.bfloat.float().sum() + self.turned.sum()
        return self.first(x).sum() + self.tied(x).sum() + tail


def state_of(seed: int, kind: Any = torch.optim.AdamW, **attributes: Any) -> Any:
    model = Odd(seed)
    optimizer = kind(model.parameters(), lr=0.1 * seed)
    optimizer = corro.DistributedOptimizer(optimizer, model.named_parameters())
    return corro.elastic.TorchState(model, optimizer, **attributes)


def train(state: Any, steps: int) -> None:
    for _ in range(steps):
        state.optimizer.zero_grad()
        state.model(torch.ones(1, 3)).backward()
        state.optimizer.step()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def check_same(a: Any, b: Any) -> None:
    assert same(a.model.state_dict(), b.model.state_dict())
    assert same(a.optimizer.state_dict(), b.optimizer.state_dict())


# -- plain values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -1, 2**80, 0.1, -0.0, math.inf, "ä\n\0", [], (), {}),
        *((1, [2, (3,)]), {"b": 1, "a": 2}, {3: "x", None: 1, (1, 2): {}}),
        *({"$tuple": [1]}, {"": 0}, OrderedDict(z=1, a=2), Counter({5: 2, 1: 1})),
    ],
    ids=repr,
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = from_text(to_text(value, lambda *_: None), lambda _, mark: dict(mark))
    assert back == value
    assert type(back) is type(value)
    if isinstance(value, dict):
        assert list(back) == list(value)


def test_not_a_number_comes_back() -> None:
    assert math.isnan(from_text(to_text(math.nan, lambda *_: None), lambda _, mark: dict(mark)))


# -- saving and loading ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_a_state_comes_back_bit_for_bit(tmp_path: Path, kind: Any) -> None:
    values = {"step": 3, "best": math.inf, "seen": [(1, "a")], "mean": torch.randn(3)}
    state = state_of(1, kind, **values)
    train(state, 2)
    writer = Checkpointer(tmp_path, every=2)
    assert writer.save(state)
    writer.wait()
    assert (writer.step, writer.failed, writer.skipped) == (2, 0, 0)
    other = state_of(2, kind, step=0, best=0.0, seen=[], mean=torch.zeros(3))
    assert Checkpointer(tmp_path, every=2).load(other) == 2
    check_same(state, other)
    assert (other.step, other.best, other.seen) == (3, math.inf, [(1, "a")])
    assert torch.equal(other.mean, values["mean"])
    train(state, 3)
    train(other, 3)
    check_same(state, other)


def test_training_goes_on_while_the_copy_is_written(tmp_path: Path) -> None:
    state = state_of(1)
    train(state, 1)
    copy = {name: value.clone() for name, value in state.model.state_dict().items()}
    writer = Checkpointer(tmp_path, every=1)
    writer.save(state)
    train(state, 5)
    writer.wait()
    other = state_of(2)
    assert Checkpointer(tmp_path, every=1).load(other) == 1
    assert same(copy, dict(other.model.state_dict()))


def test_checkpoints_are_written_every_so_many_steps_and_old_ones_go(tmp_path: Path) -> None:
    state, begun = state_of(1), []
    writer = Checkpointer(tmp_path, every=2, keep=2)
    assert not writer.save(state), "no step was done"
    for step in range(1, 8):
        train(state, 1)
        if writer.save(state):
            begun.append(step)
        writer.wait()
    assert begun == [2, 4, 6]
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-4", "step-6"]


def saved(folder: Path, state: Any, steps: int = 1) -> None:
    """Trains so far, and writes one checkpoint of that."""
    train(state, steps)
    writer = Checkpointer(folder, every=1)
    writer.save(state)
    writer.close()


def test_steps_are_counted_on_after_loading(tmp_path: Path) -> None:
    saved(tmp_path, state_of(1), steps=2)
    state = state_of(2)
    writer = Checkpointer(tmp_path, every=3)
    assert writer.load(state) == 2
    train(state, 1)
    assert writer.save(state)
    writer.wait()
    assert writer.step == 3


def test_a_state_without_torch_has_plain_values(tmp_path: Path) -> None:
    state: Any = State(step=0, seen={"a": (1, 2)})
    state.step = 5
    state.commit()
    writer = Checkpointer(tmp_path, every=1)
    assert writer.save(state)
    writer.wait()
    other: Any = State(step=0, seen=None)
    assert Checkpointer(tmp_path, every=1).load(other) == 1
    assert (other.step, other.seen) == (5, {"a": (1, 2)})


def test_objects_with_a_state_stay_and_get_theirs(tmp_path: Path) -> None:
    def made(seed: int) -> Any:
        state = state_of(seed)
        schedule = torch.optim.lr_scheduler.MultiStepLR(state.optimizer, [1, 3])
        return corro.elastic.TorchState(state.model, state.optimizer, schedule=schedule)

    state = made(1)
    for _ in range(2):
        train(state, 1)
        state.schedule.step()
    saved(tmp_path, state, steps=0)
    other = made(2)
    schedule = other.schedule
    Checkpointer(tmp_path, every=1).load(other)
    assert other.schedule is schedule
    assert schedule.state_dict() == state.schedule.state_dict()


def test_both_modules_have_the_checkpointer() -> None:
    assert corro.checkpoint.Checkpointer is Checkpointer
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = corro.checkpoint.Other


def test_an_empty_or_missing_folder_is_no_checkpoint(tmp_path: Path) -> None:
    state = state_of(1)
    assert Checkpointer(tmp_path / "new" / "one", every=1).load(state) is None


# -- what is damaged ------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_a_damaged_checkpoint_is_passed_over_and_the_reason_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = state_of(1)
    for _ in range(2):
        saved(tmp_path, state)
    flip(tmp_path / "step-2" / "rank-0.safetensors", -1)
    other = state_of(2)
    assert Checkpointer(tmp_path, every=1).load(other) == 1
    said = capfd.readouterr().err
    assert "corro: the checkpoint of step 2 is passed over: " in said
    assert "rank-0.safetensors: damaged between bytes 0 and " in said
    flip(tmp_path / "step-1" / "manifest.json", 100)
    before = state_of(2)
    with pytest.raises(corro.DataLossError, match=r"none in .* is valid"):
        Checkpointer(tmp_path, every=1).load(other := state_of(2))
    check_same(before, other)


def test_another_model_is_one_error_and_nothing_is_loaded(tmp_path: Path) -> None:
    saved(tmp_path, state_of(1, step=1))
    other, before = state_of(2, step=1, extra=1), state_of(2)
    other.model.register_buffer("more", torch.ones(1))
    other.model.register_buffer("scalar", torch.ones(2))
    del other.model.flags
    with pytest.raises(corro.InvalidArgumentError) as refusal:
        Checkpointer(tmp_path, every=1).load(other)
    for text in (
        "step-1 does not fit: it has no attributes extra; it has no tensors more",
        "it has tensors that are not here: flags",
        "scalar is int64 [], and float32 [2] here",
    ):
        assert text in str(refusal.value)
    assert torch.equal(other.model.first.weight, before.model.first.weight)


def test_another_optimizer_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path, state_of(1))
    with pytest.raises(corro.InvalidArgumentError, match="its optimizer is AdamW, and SGD is here"):
        Checkpointer(tmp_path, every=1).load(state_of(2, torch.optim.SGD))


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (deque([1]), "attributes.queue is a deque, and cannot be written without pickle"),
        ({"a": [object()]}, "attributes.queue.a.0 is a object"),
        (torch.zeros(2, dtype=torch.complex64), "attributes.queue has the dtype torch.complex64"),
        (torch.zeros(2).to_sparse(), "attributes.queue is a Tensor of layout torch.sparse_coo"),
    ],
)
def test_what_is_not_plain_is_named(tmp_path: Path, value: Any, why: str) -> None:
    state = state_of(1)
    train(state, 1)
    other = corro.elastic.TorchState(state.model, state.optimizer, queue=None)
    other.queue = value
    other._steps = 1
    with pytest.raises(corro.InvalidArgumentError, match=why):
        Checkpointer(tmp_path, every=1).save(other)
    assert not list(tmp_path.glob("step-*"))


def test_numbers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for arguments in ({"every": 0}, {"every": 1.5}, {"every": 1, "keep": 1}):
        with pytest.raises(corro.InvalidArgumentError, match="has to be an integer >= "):
            Checkpointer(tmp_path, **arguments)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(corro.FailedPreconditionError, match="file"):
        Checkpointer(tmp_path / "file", every=1)


def test_a_second_job_in_the_folder_is_refused(tmp_path: Path) -> None:
    state = state_of(1)
    train(state, 1)
    first = Checkpointer(tmp_path, every=1)
    first.save(state)
    with pytest.raises(corro.FailedPreconditionError, match="another job writes checkpoints here"):
        Checkpointer(tmp_path, every=1).save(state)
    first.close()
    second = Checkpointer(tmp_path, every=1)
    assert second.save(state)
    second.wait()


def test_a_disk_that_refuses_is_a_line_and_training_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = state_of(1)
    train(state, 1)
    writer = Checkpointer(tmp_path / "a", every=1)
    writer.save(state)
    writer.wait()
    (tmp_path / "a").rename(tmp_path / "b")  # As if the disk was gone.
    (tmp_path / "a").write_text("")
    train(state, 1)
    assert writer.save(state)
    writer.wait()
    assert (writer.step, writer.failed) == (1, 1)
    assert "corro: the checkpoint of step 2 was not finished: " in capfd.readouterr().err


# -- the files ------------------------------------------------------------------------------------


def test_files_are_safetensors(tmp_path: Path) -> None:
    state = state_of(1)
    saved(tmp_path, state)
    data = (tmp_path / "step-1" / "rank-0.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    entry = header["model.turned"]
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    read = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).view(entry["shape"])
    assert torch.equal(read, state.model.turned)
    assert header["model.bfloat"]["dtype"] == "BF16"
    assert "model.tied.weight" not in header, "tied weights are written once"


def test_the_library_of_safetensors_reads_the_files(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    state = state_of(1)
    saved(tmp_path, state)
    names = safetensors.load_file(tmp_path / "step-1" / "rank-0.safetensors")
    assert torch.equal(names["model.bfloat"], state.model.bfloat)


def test_the_last_checkpoint_is_finished_at_the_end_of_the_program(tmp_path: Path) -> None:
    program = (
        "import corro\nfrom corro.elastic import State\nfrom corro.checkpoint import Checkpointer\n"
        "corro.init()\nstate = State(step=1)\nstate.commit()\n"
        f"assert Checkpointer({str(tmp_path)!r}, every=1).save(state)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ), timeout=60)
    assert (tmp_path / "step-1" / "manifest.json").exists()


# -- jobs -----------------------------------------------------------------------------------------


def told(job: Finished, what: str) -> set[tuple[str, str]]:
    """Returns the steps and digests that ranks have said: one, if they agree."""
    return set(re.findall(rf"rank \d+ of \d+: {what} (\w+) (\w+)", job.output))


def test_a_job_of_any_size_goes_on_from_the_checkpoint_of_another(
    launch: Launch, tmp_path: Path
) -> None:
    folder = str(tmp_path / "run")
    before: set[tuple[str, str]] = set()
    for ranks, begin in ((2, 0), (1, 4), (3, 8)):
        job = launch(str(WORKER), folder, str(begin), str(begin + 4), ranks=ranks).check()
        ended = told(job, "ended")
        assert len(ended) == 1, job.output
        if begin:
            assert told(job, "loaded") == before, "all ranks have what was written"
        before = ended
    assert {path.name for path in Path(folder).glob("step-*")} == {"step-10", "step-12"}


@pytest.mark.parametrize("elastic", [(), ("--min-np", "1")])
def test_the_launcher_hears_of_each_checkpoint(
    launch: Launch, tmp_path: Path, elastic: tuple[str, ...]
) -> None:
    folder, events = tmp_path / "run", tmp_path / "events.jsonl"
    options = (*elastic, "--events", str(events))
    launch(str(WORKER), str(folder), "0", "4", ranks=2, options=options).check()
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    made = [
        (line["rank"], line["step"], line["cause"])
        for line in lines
        if line["event"] == "checkpoint"
    ]
    assert made == [(0, 2, str(folder / "step-2")), (0, 4, str(folder / "step-4"))]


@pytest.mark.faults
def test_survivors_write_the_next_checkpoint(launch: Launch, tmp_path: Path) -> None:
    """The first rank is killed while that of step 4 is written, another one with that of 6."""
    folder = str(tmp_path / "run")
    killed = launch(
        *(str(WORKER), folder, "0", "8", "0", "4", "2", "6"), ranks=4, options=("--min-np", "2")
    ).check()
    ended = told(killed, "ended")
    assert len(ended) == 1, killed.output
    job = launch(str(WORKER), folder, "8", "8", ranks=1).check()
    assert told(job, "loaded") == ended
    assert not list(Path(folder).glob("*.partial*"))


@pytest.mark.faults
def test_a_process_that_a_lost_rank_has_left_behind_ends_nothing(
    launch: Launch, tmp_path: Path
) -> None:
    """It has the lock of the folder, too: the next checkpoints are left out."""
    folder = str(tmp_path / "run")
    job = launch(
        *(str(WORKER), folder, "0", "8", "0", "4"),
        ranks=3,
        options=("--min-np", "2"),
        LEAVES_A_CHILD="1",
    ).check()
    assert len(told(job, "ended")) == 1, job.output
    assert re.findall(r"skipped (\d+)", job.output) == ["2", "2"]


@pytest.mark.faults
def test_a_job_that_is_killed_leaves_a_checkpoint_to_go_on_from(
    launch: Launch, tmp_path: Path
) -> None:
    folder = str(tmp_path / "run")
    for victim, until in ((0, 2), (1, 4)):
        job = launch(str(WORKER), folder, "-1", "99", str(victim), str(until), ranks=2)
        assert job.code != 0
        steps = told(job, "loaded")
        assert len(steps) == 1, job.output
    launch(str(WORKER), folder, "-1", "20", ranks=1).check()
    assert {path.name for path in Path(folder).iterdir()} == {".lock", "step-18", "step-20"}
