"""corro-horovod: its tests inside of jobs, and what can be seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from conftest import HERE, Launch
from packaging.version import parse

import horovod
from horovod.common.variables import unknown
from horovod.runner.util.streams import Pipe
from horovod.runner.util.threads import in_thread

HOROVODRUN = Path(sys.executable).with_name("horovodrun")
INSIDE = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=600")


def run_all(launch: Launch, ranks: int) -> None:
    tests = str(HERE / "horovod")
    launch(*INSIDE, tests, ranks=ranks, CORRO_TEST_IN_RANKS="1").check()


@pytest.mark.apart
def test_the_interface_for_torch_with_three_ranks(launch: Launch) -> None:
    run_all(launch, 3)


@pytest.mark.apart
@pytest.mark.torch22
def test_the_interface_for_torch_with_two_ranks(launch: Launch) -> None:
    run_all(launch, 2)


@pytest.mark.apart
def test_the_interface_for_torch_with_one_rank(launch: Launch) -> None:
    run_all(launch, 1)


@pytest.mark.apart
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("file", ["test_settings.py", "test_timeline.py"])
def test_the_timeline_and_variables(launch: Launch, file: str, ranks: int) -> None:
    test = HERE / "horovod" / file
    launch(*INSIDE, str(test), ranks=ranks, CORRO_TEST_IN_RANKS="1").check()


@pytest.mark.parametrize(("disable", "said"), [("0", True), ("1", False)])
def test_without_corros_launcher_a_rank_says_whom_it_waits_for(
    launch: Launch, tmp_path: Path, disable: str, said: bool
) -> None:
    program = tmp_path / "late.py"
    program.write_text(
        "import time, torch, horovod.torch as hvd\n"
        "hvd.init()\n"
        "time.sleep(4 * hvd.rank())\n"
        "hvd.allreduce(torch.ones(3), name='x')\n"
    )
    job = launch(
        str(program),
        launcher="torchrun",
        HOROVOD_STALL_CHECK_TIME_SECONDS="1",
        HOROVOD_STALL_CHECK_DISABLE=disable,
    ).check()
    line = "horovod: WARNING: rank 0 waits for rank 1 in allreduce 'allreduce.x' for "
    assert (line in job.output) == said, job.output
    assert "rank 1 waits" not in job.output


@pytest.mark.faults
@pytest.mark.parametrize("victim", [0, 1])
def test_a_timeline_can_be_parsed_while_it_grows_and_after_a_rank_was_killed(
    tmp_path: Path, victim: int
) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import os, signal, torch, horovod.torch as hvd\n"
        "hvd.init()\n"
        "for step in range(10_000_000):\n"
        "    hvd.allreduce(torch.ones(8), name=f'gradient.{step % 50}')\n"
        f"    if os.path.exists('{tmp_path}/now') and hvd.rank() == {victim}:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "timeline.json"
    job = subprocess.Popen(
        [
            str(HOROVODRUN),
            "-np",
            "2",
            "--timeline-filename",
            str(path),
            sys.executable,
            str(program),
        ],
        cwd=tmp_path,
    )
    try:
        sizes: set[int] = set()
        while len(sizes) < 20:
            assert job.poll() is None
            if path.exists():
                sizes.add(len(json.loads(path.read_text())))
        (tmp_path / "now").touch()
        assert job.wait() != 0
    finally:
        job.kill()
    events = json.loads(path.read_text())
    assert len(events) >= max(sizes)
    assert {event["tid"] for event in events if event.get("name") == "ALLREDUCE"} == {0, 1}


def test_without_a_launcher_there_is_one_rank() -> None:
    program = "import horovod.torch as hvd; hvd.init(); assert (hvd.rank(), hvd.size()) == (0, 1)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_versions() -> None:
    assert parse(horovod.__version__) >= parse("0.28.1"), "scripts compare it"
    assert metadata.version("corro-horovod") == metadata.version("corro")


def test_variables_that_horovod_does_not_know_are_named() -> None:
    environment = {
        "HOROVOD_FUSION_TRESHOLD": "1",
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_SOMETHING_ELSE": "1",
    }
    assert unknown(environment | {"HOME": "/"}) == [
        "HOROVOD_FUSION_TRESHOLD is not known; did you mean HOROVOD_FUSION_THRESHOLD?",
        "HOROVOD_SOMETHING_ELSE is not known",
    ]
    job = subprocess.run(
        [sys.executable, "-c", "import horovod.torch as hvd; hvd.init(); hvd.init()"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert job.stderr.count("did you mean HOROVOD_FUSION_THRESHOLD") == 1


def test_run_returns_results_by_rank() -> None:
    def work(factor: int) -> int:
        import horovod.torch as hvd

        hvd.init()
        return hvd.rank() * factor

    assert horovod.run(work, (10,), num_proc=2) == [0, 10]
    assert horovod.run(work, (10,)) == [0]


INTERACTIVE = """
import horovod
import horovod.torch as hvd
import torch
factor = 10

def work(x):
    hvd.init()
    return int(hvd.allreduce(x, op=hvd.Sum)[0]) * factor + hvd.rank()

horovod.run(work, (torch.ones(2),), num_proc=2)
"""


def test_run_takes_what_is_typed(tmp_path: Path) -> None:
    """As in a notebook: the function is in no file."""
    job = subprocess.run(
        [sys.executable, "-i", "-q"],
        cwd=tmp_path,
        input=INTERACTIVE,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "[20, 21]" in job.stdout, job.stderr


def test_run_says_what_a_rank_has_raised() -> None:
    def fail() -> None:
        raise KeyError("nothing here")

    with pytest.raises(
        RuntimeError, match=r"Horovod detected that one or more processes exited.*nothing here"
    ) as caught:
        horovod.run(fail, num_proc=2)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"hosts": "a:1", "hostfile": "f"}, ValueError, "only allow one"),
        ({"use_gloo": True, "use_mpi": True}, ValueError, "only allow one"),
        ({"executable": "/bin/python"}, NotImplementedError, "executable"),
        ({"num_proc": 1, "slots": 2}, ValueError, "that a script discovers"),
        ({"wrong": 1}, TypeError, "wrong"),
    ],
)
def test_run_refuses_what_it_does_not_do(
    arguments: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        horovod.run(print, **arguments)


def test_a_pipe_hands_over_piece_by_piece() -> None:
    pipe: Pipe[str] = Pipe()
    writer = in_thread(lambda: [pipe.write(text) for text in ("ab", "c")])
    assert [pipe.read(1), pipe.read(), pipe.read()] == ["a", "b", "c"]
    writer.join()
    pipe.close()
    assert pipe.read() is None
    with pytest.raises(RuntimeError):
        pipe.write("d")


@pytest.mark.parametrize(
    ("program", "status"),
    [("import horovod", 1), ("import corro_horovod; sys.exit(corro_horovod.horovodrun())", 2)],
)
def test_beside_a_real_horovod_it_refuses(tmp_path: Path, program: str, status: int) -> None:
    info = tmp_path / "horovod-0.28.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n")
    job = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {program}", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == status
    text = "pip uninstall horovod corro-horovod, then pip install corro-horovod"
    assert job.stderr.splitlines()[-1].endswith(text)
    assert len(job.stderr.splitlines()) == 1 or status == 1


def test_the_command_is_the_one_that_says_so() -> None:
    [command] = metadata.distribution("corro-horovod").entry_points
    assert (command.name, command.value) == ("horovodrun", "corro_horovod:horovodrun")


def test_it_is_of_one_version_with_corro() -> None:
    """A layer calls what its floor has at that version."""
    needed = metadata.distribution("corro-horovod").requires
    assert needed is not None
    assert f"corro=={metadata.version('corro')}" in needed
    assert metadata.version("corro-horovod") == metadata.version("corro")
