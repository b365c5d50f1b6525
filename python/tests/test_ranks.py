"""Runs the tests under ranks/ inside of jobs, as a user's program would run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import HERE, Launch

INSIDE = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=600")
LONG = "test_transformers.py"  # Importing those models alone takes seconds.
ALL = sorted({file.name for file in (HERE / "ranks").glob("test_*.py")} - {LONG})
BACK_END = [name for name in ALL if name.startswith("test_process_group")]
TRAINING = [name for name in ALL if name.startswith(("test_parallel", "test_fit", "test_service"))]
# What has other plans with four ranks, the long ones and the short ones by turns.
OF_FOUR = [
    "test_parallel.py",
    "test_parallel_sharding.py",
    "test_parallel_tensor.py",
    "test_parallel_moving.py",
    "test_parallel_drawn.py",
    "test_parallel_exactness.py",
    "test_parallel_main_weights.py",
    "test_service.py",
]
OF_ONE = ["test_parallel.py", "test_parallel_resources.py", "test_fit.py", "test_service.py"]


def inside(*files: str) -> list[str]:
    """Returns the arguments of Python that run these files' tests."""
    return [*INSIDE, *(str(HERE / "ranks" / file) for file in files)]


def run_all(launch: Launch, ranks: int) -> None:
    """In one job: most of its time is `import torch`. The back end joins first, and leaves."""
    others = (name for name in ALL if name not in TRAINING)
    files = sorted(others, key=lambda name: name not in BACK_END)
    launch(*inside(*files), ranks=ranks, CORRO_TEST_IN_RANKS="1").check()


def run_training(launch: Launch, ranks: int, files: Sequence[str]) -> None:
    launch(*inside(*files), ranks=ranks, CORRO_TEST_IN_RANKS="1").check()


@pytest.mark.apart
def test_all_with_four_ranks(launch: Launch) -> None:
    run_all(launch, 4)


@pytest.mark.apart
@pytest.mark.torch22
def test_all_with_two_ranks(launch: Launch) -> None:
    run_all(launch, 2)


@pytest.mark.apart
def test_all_with_one_rank(launch: Launch) -> None:
    run_all(launch, 1)


@pytest.mark.apart
@pytest.mark.parametrize("half", [0, 1])
def test_training_with_four_ranks(launch: Launch, half: int) -> None:
    run_training(launch, 4, OF_FOUR[half::2])


@pytest.mark.apart
@pytest.mark.torch22
@pytest.mark.parametrize("half", [0, 1])
def test_training_with_two_ranks(launch: Launch, half: int) -> None:
    run_training(launch, 2, TRAINING[half::2])


@pytest.mark.apart
def test_training_with_one_rank(launch: Launch) -> None:
    run_training(launch, 1, OF_ONE)


@pytest.mark.apart
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
def test_models_of_transformers_with_two_ranks(launch: Launch) -> None:
    launch(*inside(LONG), ranks=2, CORRO_TEST_IN_RANKS="1").check()


@pytest.mark.apart
@pytest.mark.parametrize("ranks", [2, 4])
def test_torch_back_end_under_torchrun(launch: Launch, ranks: int) -> None:
    launch(*inside(*BACK_END), ranks=ranks, launcher="torchrun", CORRO_TEST_IN_RANKS="1").check()


def test_verbs_over_tcp(launch: Launch) -> None:
    files = inside("test_names.py", "test_numpy.py", "test_conformance_numpy.py")
    launch(*files, ranks=3, CORRO_TRANSPORT="tcp", CORRO_TEST_IN_RANKS="1").check()


def test_verbs_with_closing_rounds(launch: Launch) -> None:
    files = inside("test_names.py", "test_numpy.py", "test_conformance_numpy.py")
    launch(*files, ranks=2, CORRO_COMMIT="1", CORRO_TEST_IN_RANKS="1").check()


# Rank 1 leaves in order while receives without a source are posted everywhere. That it has left is
# known on rank 0 once a receive from rank 1 alone fails; only then rank 2 is told to go on.
ANY_SOURCE = """
import os
import torch
import torch.distributed as dist
import corro
import corro.torch

dist.init_process_group("corro")
rank, number = dist.get_rank(), torch.zeros(1)
if rank == 1:
    dist.send(torch.ones(1), 0, tag=5)
elif rank == 0:
    assert dist.recv(number, tag=5) == 1 and number.item() == 1
    posted = dist.irecv(number, tag=5)
    try:
        dist.recv(torch.zeros(1), 1, tag=6)
    except corro.RankLostError as error:
        assert error.rank == 1 and "rank 1 has left the job" in str(error), error
    assert not posted.is_completed()
    dist.send(torch.ones(1), 2, tag=7)
    posted.wait()
    assert number.item() == 2 and posted._source_rank() == 2
    dist.send(torch.ones(1), 2, tag=8)
    for call in (lambda: dist.recv(number, tag=5), lambda: dist.recv(number, tag=9)):
        try:
            call()
        except corro.RankLostError as error:
            assert "ranks 1 and 2 have left the job or were lost" in str(error), error
        else:
            raise AssertionError("somebody has sent")
else:
    posted = dist.irecv(number, tag=7)
    posted.wait()
    assert posted._source_rank() == 0
    dist.send(torch.full((1,), 2.0), 0, tag=5)
    assert dist.recv(number, tag=8) == 0
dist.destroy_process_group()
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_receive_without_a_source_outlives_ranks_that_leave(
    launch: Launch, transport: str
) -> None:
    launch("-c", ANY_SOURCE, ranks=3, CORRO_TRANSPORT=transport).check()


# The messages of rank 0 have another size than the receives that were posted without a source.
MISFIT = """
import torch
import torch.distributed as dist
import corro
import corro.torch

dist.init_process_group("corro")
if dist.get_rank() == 0:
    for other in (1, 2):
        dist.send(torch.ones(4), other, tag=5)
else:
    try:
        dist.recv(torch.zeros(2), tag=5)
    except corro.MismatchError as error:
        assert error.rank == 0, error
    else:
        raise AssertionError("it fits")
dist.barrier()
dist.destroy_process_group()
"""


def test_a_receive_without_a_source_says_that_a_message_does_not_fit(launch: Launch) -> None:
    launch("-c", MISFIT, ranks=3).check()


# Leaves with works in flight on the world and on a group, and without a goodbye. Before that it
# makes groups again that were destroyed: torchrun keeps the store with their keys, and rank 0 comes
# late.
NO_GOODBYE = """
import os
import time
import torch
import torch.distributed as dist
import corro.torch  # torch before 2.5 finds no back end by itself

for turn in range(0 if "CORRO_RANK" in os.environ else 2):
    dist.init_process_group("corro")
    if turn and dist.get_rank() == 0:
        time.sleep(0.3)
    total = torch.ones(1)
    dist.all_reduce(total, group=dist.new_group([0, 1]))
    assert total.item() == 2
    if dist.get_rank() == 1:
        dist.new_group([1], use_local_synchronization=True)  # Rank 0 makes one group less.
    dist.destroy_process_group()
dist.init_process_group("corro")
pair = dist.new_group([0, 1])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
model(torch.ones(3, 4)).sum().backward()
works = [dist.all_reduce(torch.ones(1 << 16), group=pair, async_op=True) for _ in range(4)]
works[0].wait()
print("last line")
"""


@pytest.mark.torch22
@pytest.mark.parametrize("launcher", ["corro", "torchrun"])
def test_no_crash_at_exit_without_destroy_process_group(
    launch: Launch, launcher: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(NO_GOODBYE)
    job = launch(str(script), launcher=launcher).check()
    assert job.output.count("last line") == 2
    assert "Traceback" not in job.output
    assert "terminate" not in job.output


# In the first world torch's second group is of one rank, in the second one of both.
TWO_WORLDS = """
import sys
import torch
import torch.distributed as dist
import corro.torch

corro.torch.init()
rank = corro.torch.rank()
for turn, ranks in enumerate([[0], [0, 1]]):
    dist.init_process_group("corro", f"file://{sys.argv[1]}{turn}", rank=rank, world_size=2)
    group = dist.new_group(ranks)
    total = torch.ones(1)
    if rank in ranks:
        dist.all_reduce(total, group=group)
    assert total.item() == (len(ranks) if rank in ranks else 1)
    dist.destroy_process_group()
print("last line")
"""


@pytest.mark.torch22
def test_a_second_world_has_other_groups_of_the_same_names(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TWO_WORLDS)
    job = launch(str(script), str(tmp_path / "store"), CORRO_TIMEOUT="20").check()
    assert job.output.count("last line") == 2


# Leaves while another of its threads is inside of an operation, with and without a shutdown().
BUSY_THREAD = """
import threading
import numpy
import corro, corro.numpy

def reduce(begun):
    try:
        while True:
            corro.numpy.allreduce(numpy.ones(64))
            begun.set()
    except (corro.CancelledError, corro.RankLostError, corro.FailedPreconditionError):
        begun.set()

for turn in range(5):
    corro.init()
    begun = threading.Event()
    thread = threading.Thread(target=reduce, args=(begun,), daemon=True)
    thread.start()
    begun.wait()
    if turn < 4:
        corro.shutdown()
        thread.join()
print("last line")
"""


# What the script does at its end waits for a thread that is inside of an operation.
JOINED_THREAD = """
import atexit

def end():
    thread.join()
    print("last line")

atexit.register(end)  # Before corro's own, so it runs after that.
import threading
import numpy
import corro, corro.numpy

def reduce():
    try:
        while True:
            corro.numpy.allreduce(numpy.ones(4))
            begun.set()
    except corro.CorroError:
        begun.set()
        try:
            corro.barrier()
        except corro.CorroError:
            pass

corro.init()
begun = threading.Event()
thread = threading.Thread(target=reduce, daemon=True)
thread.start()
begun.wait()
"""


# Leaves while threads wait in operations, and others fight for the GIL that those want back.
WAITING_THREADS = """
import sys
import threading
import time
import numpy
import corro, corro.numpy

def wait(i):
    try:
        corro.numpy.allreduce(numpy.ones(4), name=f"{i} on {corro.rank()} only")
    except corro.CorroError:
        pass

def compute():
    while True:
        pass

corro.init()
threads = [threading.Thread(target=wait, args=(i,), daemon=True) for i in range(8)]
for thread in threads:
    thread.start()
for _ in range(2):
    threading.Thread(target=compute, daemon=True).start()
while {sys._current_frames()[thread.ident].f_code.co_name for thread in threads} != {"run"}:
    time.sleep(0.001)  # Until all are where Call.run() enters the engine.
corro.barrier()  # On both ranks: the first to leave ends what the other's threads wait for.
print("last line")
"""


@pytest.mark.parametrize(
    "script", [BUSY_THREAD, JOINED_THREAD, WAITING_THREADS], ids=["busy", "joined", "waiting"]
)
def test_threads_inside_operations_outlive_shutdown_and_exit(launch: Launch, script: str) -> None:
    for unbuffered in ("1", "", ""):  # A lock of the output's buffer must not outlive its thread.
        job = launch("-c", script, PYTHONUNBUFFERED=unbuffered).check()
        assert job.output.count("last line") == 2


# Rank 0's reducer gets an error instead of its gradients.
FAILS = """
import time
import torch
import torch.distributed as dist
import corro.torch  # torch before 2.5 finds no back end by itself

dist.init_process_group("corro")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
if dist.get_rank() == 1:
    {end}
model(torch.ones(3, 4)).sum().backward()
"""


@pytest.mark.parametrize(
    ("end", "seconds"),
    [
        pytest.param("raise ValueError('bad batch')", "60", marks=pytest.mark.torch22),
        ("time.sleep(1000)", "5"),
    ],
)
def test_a_rank_that_fails_below_ddp_is_blamed(launch: Launch, end: str, seconds: str) -> None:
    job = launch("-c", FAILS.format(end=end), ranks=2, CORRO_TIMEOUT=seconds)
    assert job.code != 0
    blocks = [line for line in job.output.splitlines() if line.startswith("corro: ")]
    assert blocks, job.output
    assert blocks[-1].startswith("corro: rank 1 "), job.output
    assert "Fatal Python error" not in job.output
