"""Checkpoints of sharded models: whatever layout has written one, any other one loads it.

The whole tensors are compared by their digests: those that a job ends with, and those that the next
one has loaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import DEFAULTS, Finished, Launch, command
from torch_version import at_least

from corro.errors import InvalidArgumentError
from corro.torch.sharded import layout_on, local_of

pytestmark = [
    pytest.mark.torch22,
    pytest.mark.skipif(not at_least(2, 6), reason="torch has no fully_shard()"),
]
WORKER = Path(__file__).with_name("checkpoint_sharded_worker.py")


# -- boxes ----------------------------------------------------------------------------------------


@pytest.fixture
def no_group() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def be_rank(rank: int, size: int) -> None:
    """This process is that rank, for what does not communicate."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)


@pytest.mark.usefixtures("no_group")
@pytest.mark.parametrize("shape", [(8, 6), (5, 7), (1, 3), (2, 0), (13,)], ids=str)
@pytest.mark.parametrize("axes", [(3,), (2, 2), (4, 2), (2, 3, 2)], ids=str)
def test_boxes_are_those_that_torch_cuts(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    from itertools import product

    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    size = torch.Size(axes).numel()
    whole = torch.arange(torch.Size(shape).numel()).view(shape)
    for rank in range(size):
        be_rank(rank, size)
        mesh = init_device_mesh("cpu", axes)
        for placements in product([Replicate(), *map(Shard, range(len(shape)))], repeat=len(axes)):
            layout = layout_on(mesh, placements, shape)
            # src_data_rank: each rank cuts what it has.
            local = local_of(distribute_tensor(whole, mesh, placements, src_data_rank=None))
            slices = zip(layout.offsets, layout.lengths, strict=True)
            assert torch.equal(whole[tuple(slice(a, a + n) for a, n in slices)], local)


@pytest.mark.usefixtures("no_group")
def test_what_is_no_box_is_refused() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    be_rank(0, 4)
    mesh = init_device_mesh("cpu", (2, 2))
    for placements in (
        [Partial(), Shard(0)],
        [_StridedShard(0, split_factor=2), Shard(1)],  # Rows 0, 2, 4 and 6.
        [_StridedShard(0, split_factor=4), Shard(0)],
    ):
        with pytest.raises(InvalidArgumentError, match=r"w is a sharded .* cannot be written"):
            layout_on(mesh, placements, (8, 8), "w")
    assert layout_on(mesh, [_StridedShard(0, split_factor=2), Shard(0)], (8, 8)).lengths == (2, 8)
    with pytest.raises(InvalidArgumentError, match="cannot be written"):
        layout_on(mesh, [_StridedShard(0, split_factor=2), Shard(0)], (6, 8), "w")


# -- jobs -----------------------------------------------------------------------------------------


def told(job: Finished, what: str) -> tuple[str, str]:
    """Returns the step and the digest that all ranks have said."""
    said = set(re.findall(rf"rank \d+ of \d+: {what} (\w+) (\w+)", job.check().output))
    assert len(said) == 1, job.output
    (one,) = said
    return one[0], one[1]


def corro(*arguments: str) -> str:
    program = Path(sys.executable).with_name("corro")
    done = subprocess.run([program, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


@dataclass(frozen=True)
class Undisturbed:
    """A job that was never stopped: eight steps of three ranks, which share rows."""

    job: Finished
    folder: Path

    def copy_to(self, folder: Path) -> Path:
        """Returns the copy of its checkpoints, of steps 4 and 8, for a test that goes on."""
        return shutil.copytree(self.folder, folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    directory = tmp_path_factory.mktemp("undisturbed")
    folder = directory / "run"
    done = subprocess.run(
        [*command("corro", 3), str(WORKER), str(folder), "0", "8", "rows"],
        cwd=directory,
        env=os.environ | DEFAULTS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    return Undisturbed(Finished(done.returncode, done.stdout).check(), folder)


def test_the_same_layout_goes_on_bit_for_bit(
    launch: Launch, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    folder = undisturbed.copy_to(tmp_path / "run")
    shutil.rmtree(folder / "step-8")
    resumed = launch(str(WORKER), str(folder), "4", "8", "rows", ranks=3)
    assert told(resumed, "ended") == told(undisturbed.job, "ended")


def test_any_layout_goes_on_from_another(
    launch: Launch, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    folder, step = undisturbed.copy_to(tmp_path / "run"), 8
    before = told(undisturbed.job, "ended")  # The third rank has nothing of some tensors.
    names = set(header(folder / f"step-{step}" / "rank-1.safetensors"))
    assert {"model.0.weight[3:6,0:6]", "model.4.weight[1:2,0:6]"} <= names
    assert "optimizer.state.0.weight.exp_avg[3:6,0:6]" in names
    for ranks, layout in [
        (2, "columns"),
        (1, "whole"),
        (4, "both"),
        (4, "replicas"),
        (2, "whole"),
    ]:
        arguments = str(WORKER), str(folder), str(step), str(step + 2), layout
        job = launch(*arguments, ranks=ranks)
        assert told(job, "loaded") == before, (ranks, layout)
        before, step = told(job, "ended"), step + 2
        if layout == "replicas":
            shown = corro("checkpoint", "show", str(folder))
            # Each half of a tensor is written once, though two ranks have it.
            assert re.search(r"model.0.weight +f32 +192 +\[8, 6\]", shown)
            assert f"step {step}: valid" in corro("checkpoint", "verify", str(folder))


def header(path: Path) -> dict[str, object]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    read: dict[str, object] = json.loads(data[8 : 8 + length])
    return read
