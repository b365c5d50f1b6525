"""corro.run(): functions of this file, of scripts and of notebooks, on ranks of their own."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netns
import numpy
import pytest
import ssh
from launcher.conftest import DEADLINE, is_alive, pids_in, wait_until

import corro
import corro.numpy

pytestmark = pytest.mark.faults
OWN, OTHER = "localhost", "10.77.0.2"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def scaled(factor: float, *, by: int = 1) -> float:
    corro.init()
    return float(corro.numpy.allreduce(factor * (corro.rank() + 1), corro.Sum)) * by


def test_results_come_by_rank() -> None:
    assert corro.run(scaled, (0.5,), {"by": 10}, np=3) == [30.0] * 3
    assert corro.run(lambda: int(os.environ["CORRO_RANK"]), np=3) == [0, 1, 2]
    assert len(corro.run(os.getpid)) == 4, "as many as the documents say"


def test_a_closure_takes_along_what_it_names() -> None:
    table = numpy.arange(5)

    class Box:
        def __init__(self, content: Any) -> None:
            self.content = content

    [one, two] = corro.run(lambda box: Box(box.content + table), (Box(1),), np=2)
    assert type(one) is Box, "a class of this process, not a copy"
    assert one.content.tolist() == two.content.tolist() == [1, 2, 3, 4, 5]


def test_large_functions_and_results() -> None:
    ballast = os.urandom(10 << 20)
    [zero, one] = corro.run(lambda: ballast * int(os.environ["CORRO_RANK"]) * 10, np=2)
    assert (zero, len(one)) == (b"", 100 << 20)
    assert one[-len(ballast) :] == ballast


def test_variables_and_options() -> None:
    values = corro.run(
        lambda: os.environ["COLOUR"], np=2, env={"COLOUR": "blue"}, options=["--log-dir", "logs"]
    )
    assert values == ["blue", "blue"]
    assert Path("logs/rank-1.log").exists()


def test_a_rank_finds_modules_as_the_caller_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "only_here.py").write_text("def answer(): return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    import only_here

    assert corro.run(only_here.answer, np=1) == [42]


class UnusualError(ValueError):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} of {second}")


def fails_on_1(error: Callable[[], BaseException]) -> None:
    corro.init()
    if corro.rank() == 1:
        raise error()
    corro.barrier()


def test_an_exception_has_its_type_and_where_it_was() -> None:
    with pytest.raises(ZeroDivisionError, match="by nothing") as caught:
        corro.run(fails_on_1, (lambda: ZeroDivisionError("by nothing"),), np=3)
    cause = str(caught.value.__cause__)
    assert cause.startswith(f"rank 1 on {os.uname().nodename}\n")
    assert "in fails_on_1\n    raise error()" in cause
    assert "_call.py" not in cause


def test_an_exception_that_cannot_be_made_again_is_its_text() -> None:
    for error in (lambda: UnusualError(1, 2), lambda: ValueError(x for x in "1 of 2")):
        with pytest.raises(corro.RankFailedError, match=r"rank 1 failed on") as caught:
            corro.run(fails_on_1, (error,), np=2)
        assert caught.value.rank == 1
        assert "in fails_on_1" in str(caught.value.__cause__)


def test_what_cannot_be_sent_is_said() -> None:
    with pytest.raises(TypeError, match="a generator was returned, which cannot be sent"):
        corro.run(lambda: (x for x in "abc"), np=1)
    with pytest.raises(TypeError, match="cannot pickle"):
        corro.run(print, (sys.stdout,), np=1)


def test_a_rank_that_is_killed_is_named() -> None:
    def dies() -> None:
        corro.init()
        if corro.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        corro.barrier()

    with pytest.raises(corro.RankFailedError, match="killed by SIGKILL") as caught:
        corro.run(dies, np=2)
    assert caught.value.rank == 1


def test_a_rank_that_leaves_without_a_result_is_named() -> None:
    def leaves() -> None:
        if os.environ["CORRO_RANK"] == "1":
            sys.exit(0)

    with pytest.raises(corro.RankFailedError, match="rank 1 has ended without a result"):
        corro.run(leaves, np=2)


def test_time_that_is_over_is_a_timeout() -> None:
    with pytest.raises(corro.TimeoutError, match=r"still running: ranks 0-1"):
        corro.run(time.sleep, (1000,), np=2, timeout=1)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"np": 0}, corro.InvalidArgumentError, "-np 0: give 1 to 1024 ranks"),
        ({"hosts": "a,a"}, corro.InvalidArgumentError, "is there twice"),
        ({"hosts": ""}, corro.InvalidArgumentError, "no host; give some"),
        ({"hosts": ["a", "b"]}, TypeError, "hosts is text such as 'a:4,b:4', not list"),
        ({"hosts": "no-such-host.invalid"}, corro.UnavailableError, "host no-such-host.invalid: "),
        ({"options": ["--nonsense"]}, corro.InvalidArgumentError, "ended with status 2"),
    ],
)
def test_what_is_wrong_is_said_before_any_rank_starts(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        corro.run(Path("started").touch, **arguments)
    assert not Path("started").exists()


def speaks() -> None:
    print("rank", os.environ["CORRO_RANK"], "größe")
    print("oh", file=sys.stderr)


def test_output_goes_where_this_process_writes() -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        corro.run(speaks, np=2)
    assert out.getvalue().splitlines() == ["rank 0 größe", "[rank 1] rank 1 größe"]
    assert err.getvalue() == "oh\n"


SCRIPT = """
import corro, os, subprocess, time

def stays():
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    for pid in (os.getpid(), child.pid):
        open(f"pid-{pid}", "w")
    time.sleep(1000)

if __name__ == "__main__":
    print("begins")
    try:
        corro.run(stays, np=2)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def start(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    (folder / "script.py").write_text(SCRIPT)
    command = ["env", "--default-signal=HUP,INT,QUIT", sys.executable, "script.py"]
    caller = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return caller, pids_in(folder, 4)


def test_ctrl_c_ends_the_job_and_then_the_call(tmp_path: Path) -> None:
    caller, pids = start(tmp_path)
    caller.send_signal(signal.SIGINT)
    out, err = caller.communicate(timeout=DEADLINE)
    assert out == "begins\ninterrupted\n", err
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_caller_that_is_killed_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    caller, pids = start(tmp_path)
    caller.send_signal(number)
    caller.communicate(timeout=DEADLINE)
    wait_until(lambda: not any(map(is_alive, pids)), "every process has ended")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[netns.Hosts, ssh.Servers]]:
    reason = ssh.refusal()
    if reason:
        pytest.skip(reason)
    hosts = netns.Hosts(2)
    made = ssh.Servers(hosts, tmp_path_factory.mktemp("cluster") / "ssh")
    yield hosts, made
    made.end()
    hosts.end()


ELSEWHERE = """
import corro, corro.numpy, os, sys

def where(ballast):
    corro.init()
    if len(sys.argv) > 1:
        raise ValueError(f"rank {corro.rank()}")
    total = float(corro.numpy.allreduce(1.0, corro.Sum))
    address = os.popen("ip -4 -o address show dev eth0").read().split()[3]
    return corro.rank(), total, address, ballast[:-1] * 3

results = corro.run(where, (bytes(5 << 20),), hosts=HOSTS)
print([result[:3] for result in results], sum(len(result[3]) for result in results))
try:
    corro.run(lambda: 1 / 0, hosts=HOSTS)
except ZeroDivisionError as error:
    print(str(error.__cause__).splitlines()[0])
"""


@pytest.mark.parametrize("hosts", [f"{OWN},{OTHER}:2", f"{OTHER}:3"])
def test_ranks_of_other_hosts(
    servers: tuple[netns.Hosts, ssh.Servers], tmp_path: Path, hosts: str
) -> None:
    (tmp_path / "script.py").write_text(ELSEWHERE.replace("HOSTS", repr(hosts)))
    done = subprocess.run(
        [*servers[0].inside(0), sys.executable, "script.py"],
        env=servers[1].environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    first = "10.77.0.1/24" if OWN in hosts else "10.77.0.2/24"
    places = [(0, 3.0, first), (1, 3.0, "10.77.0.2/24"), (2, 3.0, "10.77.0.2/24")]
    lines = done.stdout.splitlines()
    assert lines[0] == f"{places} {9 * ((5 << 20) - 1)}", done.stderr
    assert lines[1] in {f"rank {rank} on {name}" for rank in range(3) for name in (OWN, OTHER)}
