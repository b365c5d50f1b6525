"""horovodrun and horovod.run() of elastic jobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import horovod
from horovod.runner.elastic.discovery import HostDiscoveryScript
from horovod.runner.elastic.options import Elastic
from horovod.runner.launch import command_of
from horovod.runner.options import parse_args

# -- what horovodrun's options are for corro run --------------------------------------------------


def options_of(*arguments: str) -> list[str]:
    """Those of elastic jobs alone."""
    words = command_of(parse_args(["-np", "2", *arguments, "python", "x.py"]))
    return words[words.index("--min-np") : words.index("--")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--min-np 1", "--min-np 1 --max-np 2"),
        ("--max-np 4", "--min-np 2 --max-np 4"),
        ("--min-np 2 -H a:2,b:4", "--min-np 2 --max-np 6"),
        ("--min-np 2 --max-np 8 -H a:2,b:4", "--min-np 2 --max-np 6"),
        ("--host-discovery-script ./s", "--min-np 2 --max-np 64 --host-discovery ./s"),
        (
            "--min-np 1 --max-np 4 --host-discovery-script s --reset-limit 3 --elastic-timeout 60",
            "--min-np 1 --max-np 4 --host-discovery s --elastic-timeout 60 --reset-limit 3",
        ),
        (
            "--min-np 1 --blacklist-cooldown-range 10 100",
            "--min-np 1 --max-np 2 --back-off 10,100",
        ),
    ],
)
def test_options(monkeypatch: pytest.MonkeyPatch, given: str, expected: str) -> None:
    monkeypatch.delenv("HOROVOD_ELASTIC_TIMEOUT", raising=False)
    words = options_of(*given.split())
    assert words == expected.split()
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "30")
    if "--elastic-timeout" not in given:
        assert "--elastic-timeout 30" in " ".join(options_of(*given.split()))


def test_hosts_without_slots_get_those_that_are_told(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("echo a; echo; echo b:2\n")
    (tmp_path / "fails").write_text("echo a; exit 3\n")

    def discover(script: str) -> subprocess.CompletedProcess[str]:
        options = Elastic(slots=4, host_discovery_script=f"sh {tmp_path}/{script}")
        words = options.options(1, None, None)
        line = words[words.index("--host-discovery") + 1]
        return subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, check=False, timeout=10
        )

    assert discover("hosts").stdout.split() == ["a:4", "b:2"]
    assert discover("fails").returncode == 3


def test_a_script_is_asked_for_hosts() -> None:
    script = HostDiscoveryScript("echo a; echo b:2; echo '[::1]:3'", slots=4)
    assert script.find_available_hosts_and_slots() == {"a": 4, "b": 2, "[::1]": 3}
    assert HostDiscoveryScript("true", None).find_available_hosts_and_slots() == {}
    with pytest.raises(ValueError, match="how many slots has a"):
        HostDiscoveryScript("echo a", None).find_available_hosts_and_slots()
    with pytest.raises(RuntimeError, match="status 4: no region"):
        HostDiscoveryScript("echo no region >&2; exit 4", 1).find_available_hosts_and_slots()


# -- jobs -----------------------------------------------------------------------------------------

# One rank trains until another one has joined.
TRAINS = """\
import sys
from pathlib import Path

import torch

import horovod.torch as hvd

hvd.init()
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())


@hvd.elastic.run
def train(state):
    while hvd.size() == 1 or state.step < state.joined + 5:
        if hvd.size() == 1:
            Path("gate").touch()
            state.joined = state.step
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        state.step += 1
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, step=0, joined=0))
print(f"rank {hvd.rank()} of {hvd.size()}")
"""
DISCOVERS = "echo localhost:1; if test -e gate; then echo 127.0.0.1:1; fi\n"  # As two hosts.

Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts the script that trains; it begins with one host."""
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "hosts.sh").write_text(DISCOVERS)

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("horovodrun")
        discovery = ("--host-discovery-script", "sh hosts.sh")
        return subprocess.run(
            [program, "-np", "1", *discovery, *options, sys.executable, "train.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.mark.faults
def test_a_host_that_is_discovered_is_taken_in(start: Start) -> None:
    job = start("--max-np", "2")
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == [
        "[0]<stdout>:rank 0 of 2",
        "[1]<stdout>:rank 1 of 2",
    ]


@pytest.mark.faults
def test_ranks_come_and_go_as_often_as_they_may(start: Start) -> None:
    job = start("--max-np", "2", "--reset-limit", "0")
    assert job.returncode == 1
    stopped = "corro: stopped: 1 rank joins: that would be more than 0 resets, the limit; logs in"
    assert stopped in job.stderr


def a_function() -> Callable[[], tuple[int, int]]:
    """As a user's: sent to the ranks as it is."""

    def train() -> tuple[int, int]:
        import torch

        import horovod.torch as hvd

        hvd.init()

        @hvd.elastic.run
        def steps(state: Any) -> None:
            while hvd.size() < 2 or state.step < 5:
                hvd.allreduce(torch.ones(1))
                state.step += hvd.size() == 2
                state.commit()

        steps(hvd.elastic.TorchState(step=0))
        return hvd.rank(), hvd.size()

    return train


@pytest.mark.faults
@pytest.mark.parametrize("script", [None, "echo localhost:2"])
def test_a_function_has_the_results_of_the_ranks_at_the_end(script: str | None) -> None:
    results: Sequence[Any] = horovod.run(
        a_function(), num_proc=1, min_num_proc=1, max_num_proc=2, host_discovery_script=script
    )
    assert results == [(0, 2), (1, 2)]
