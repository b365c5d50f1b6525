"""What a user of Horovod does wrong: one clear error on every rank, and no hang."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import packaging
import pytest
from conftest import Finished, Launch

import corro
import horovod

# CORRO_TIMEOUT: no rank waits longer for another one.
PATIENCE = {"CORRO_TIMEOUT": "3"}


def errors_of(job: Finished) -> list[str]:
    """The line that each rank's traceback ends with, by rank."""
    assert job.code == 1, job.output
    lines = [
        line for line in job.output.splitlines() if line.startswith("[rank ") and "Error: " in line
    ]
    return [line.partition("] ")[2] for line in sorted(lines)]


def without_torch(directory: Path) -> dict[str, str]:
    """Variables of a Python that has corro and horovod, and nothing that a user has installed."""
    for package in (corro, horovod, packaging, cloudpickle):
        folder = Path(str(package.__file__)).parent
        (directory / folder.name).symlink_to(folder)
    return {"PYTHONPATH": str(directory)}


def test_a_torch_that_is_missing(launch: Launch, tmp_path: Path) -> None:
    job = launch("-S", "-c", "import horovod.torch", **without_torch(tmp_path))
    assert (
        errors_of(job)
        == [
            "ModuleNotFoundError: corro.torch needs PyTorch, which is not installed here: "
            "pip install torch"
        ]
        * 2
    )


def test_a_torch_that_is_too_old(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text('__version__ = "1.13.1+cpu"\n')
    job = launch("-S", "-c", "import horovod.torch", **without_torch(tmp_path))
    assert (
        errors_of(job)
        == [
            "ImportError: corro.torch needs torch 2.2 or newer, and 1.13.1+cpu is installed here: "
            "pip install --upgrade torch"
        ]
        * 2
    )


BEGIN = "import horovod.torch as hvd, torch\nhvd.init()\nx = torch.ones(2)\n"


VERBS = ("allgather_async(x)", "broadcast_(x, 0)", "size()", "join()", "allreduce(x)")
# The last one ends the program.
ALL_VERBS = f"""
for verb in {VERBS}:
    try:
        eval("hvd." + verb)
    except Exception as error:
        print(verb, "fails:", repr(error), flush=True)
        if verb == {VERBS[-1]!r}:
            raise
"""


def test_an_operation_after_shutdown(launch: Launch) -> None:
    job = launch("-c", f"{BEGIN}hvd.barrier()\nhvd.shutdown()\n{ALL_VERBS}")
    text = "Horovod has not been initialized; use hvd.init()."
    assert errors_of(job) == [f"ValueError: {text}"] * 2
    for verb in VERBS:
        assert job.output.count(f"{verb} fails: ValueError('{text}')") == 2, verb


# By mistake, what each rank runs, and what rank 0 is told.
DIFFERENT = {
    "names": (
        ('hvd.allreduce(x, name="a")', 'hvd.allreduce(x, name="b")'),
        ['"allreduce.a" on rank 0', "3 s: not submitted by rank 1"],
    ),
    "verbs": (
        ('hvd.allreduce(x, name="c")', 'hvd.broadcast(x, 0, name="c")'),
        ['"allreduce.c" on rank 0', "3 s: not submitted by rank 1"],
    ),
    "shapes": (
        ('hvd.allreduce(x, name="d")', 'hvd.allreduce(x[:1], name="d")'),
        [
            "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [",
            "rank 0 submitted allreduce(f32[2], sum)",
            "rank 1 submitted allreduce(f32[1], sum)",
        ],
    ),
}
# None goes on before the other one has its error, too.
MEET = f"""
for mistake, texts in { ({name: texts for name, (texts, _) in DIFFERENT.items()})!r}.items():
    try:
        exec(texts[hvd.rank()])
    except hvd.HorovodInternalError as error:
        print(mistake, "differ:", error, flush=True)
        hvd.barrier()
"""


def test_ranks_that_run_different_programs(launch: Launch) -> None:
    job = launch("-c", BEGIN + MEET, **PATIENCE).check()
    for mistake, (_, wants) in DIFFERENT.items():
        said = sorted(line for line in job.output.splitlines() if f"] {mistake} differ: " in line)
        assert len(said) == 2, job.output
        assert said[0].startswith("[rank 0] ")
        for want in wants:
            assert want in said[0]


def test_a_rank_that_ends_earlier(launch: Launch) -> None:
    program = f"{BEGIN}hvd.rank() == 0 and hvd.allreduce(x)"
    job = launch("-c", program, **PATIENCE)
    [line] = errors_of(job)
    assert "HorovodInternalError: Horovod has been shut down. " in line
    assert line.endswith("rank 1 has left the job")
    assert job.output.count("Traceback (most recent call last)") == 1
    assert "or join() when it has no more batches" in " ".join(job.output.split())


TRAIN = (
    BEGIN
    + """
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
import os, signal
for step in range(3):
    if hvd.rank() == 1 and step == 2:
        {end}
    optimizer.zero_grad()
    try:
        model(x).sum().backward()
        optimizer.step()
    except hvd.HorovodInternalError as error:
        print("caught", error)
        raise
"""
)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "signal.pause()"])
def test_a_rank_that_is_lost_in_training(launch: Launch, end: str) -> None:
    job = launch("-c", TRAIN.format(end=end), **PATIENCE)
    assert "caught" in job.output, job.output
    if "pause" in end:
        variable = "raise HOROVOD_STALL_SHUTDOWN_TIME_SECONDS if it is only slow"
        assert variable in " ".join(job.output.split())


def test_fewer_slots_than_ranks() -> None:
    with pytest.raises(ValueError, match="-np 3: the hosts have 2 slots"):
        horovod.run(print, num_proc=3, hosts="localhost:2")
