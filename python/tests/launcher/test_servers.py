"""`corro run --servers`: table servers beside the ranks."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from .conftest import Job, Launcher, is_alive, pids_in, wait_until
from .test_events import events_in

pytestmark = pytest.mark.faults

TESTS = str(Path(__file__).resolve().parents[1])
PID = re.compile(r"corro: server (\d+) has pid (\d+)")

MEETS = f"""
import os, socket, sys
sys.path.insert(0, {TESTS!r})
from agent_socket import server_addresses
found = server_addresses()
for address in found:
    socket.create_connection(address).close()
print(os.environ["CORRO_SERVERS"], "CORRO_SERVER" in os.environ, len(set(found)))
"""

WAITS = """
import os, time
open(f"pid-{os.getpid()}", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
"""

SAVES = f"""
import os, signal, socket, sys, time
sys.path.insert(0, {TESTS!r})
from agent_socket import server_addresses
found = server_addresses()
def save(number, frame):
    open(f"asked-{{os.getpid()}}", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
    for address in found:
        socket.create_connection(address).close()
    print("saved", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, save)
open(f"pid-{{os.getpid()}}", "w").close()
while True:
    time.sleep(0.01)
"""


def server_pids(text: str) -> list[int]:
    """By server, of what `--verbose` says."""
    found = {int(server): int(pid) for server, pid in PID.findall(text)}
    return [found[server] for server in sorted(found)]


class Waiting:
    """A job of two ranks that go on once they are told to, and two servers."""

    def __init__(self, launcher: Launcher, *arguments: object, **options: Any) -> None:
        self.launcher = launcher
        self.screen = launcher.directory / "screen"
        with self.screen.open("wb") as err:
            run = ("-np", 2, "--servers", 2, "--verbose", *arguments, launcher.script(WAITS))
            self.job: Job = launcher.start(*run, stderr=err, **options)
        self.ranks = pids_in(launcher.directory, 2)
        wait_until(lambda: len(server_pids(self.said())) == 2, "both servers")
        self.servers = server_pids(self.said())

    def said(self) -> str:
        return self.screen.read_text()

    def go_on(self) -> int:
        (self.launcher.directory / "go").touch()
        return self.job.wait()

    def left(self) -> list[int]:
        return [pid for pid in self.ranks + self.servers if is_alive(pid)]


def test_ranks_reach_each_server_and_the_job_ends_with_them(launcher: Launcher) -> None:
    job = launcher.run("-np", 2, "--servers", 2, "--verbose", launcher.script(MEETS))
    assert job.process.returncode == 0, job.err
    assert [job.log(rank).split() for rank in (0, 1)] == [[b"2", b"False", b"2"]] * 2
    pids = server_pids(job.err.decode())
    assert len(pids) == 2
    assert not [pid for pid in pids if is_alive(pid)]
    assert "was lost" not in job.err.decode(), "it was asked to end"
    assert sorted(path.name for path in job.logs.iterdir()) == [
        *("history.jsonl", "rank-0.log", "rank-1.log", "server-0.log", "server-1.log")
    ]


def test_without_servers_ranks_hear_of_none(launcher: Launcher) -> None:
    script = launcher.script("import os; print('CORRO_SERVERS' in os.environ)")
    job = launcher.run("-np", 1, script, env={"CORRO_SERVERS": "3"})
    assert job.out == b"False\n"


def test_a_job_goes_on_without_a_server_that_is_lost(launcher: Launcher) -> None:
    events = launcher.directory / "events.jsonl"
    waiting = Waiting(launcher, "--events", events)
    os.kill(waiting.servers[0], signal.SIGKILL)

    def lost() -> list[object]:
        return [event["cause"] for event in events_in(events) if event["event"] == "server_lost"]

    wait_until(lambda: lost() == ["server 0 was lost: killed by SIGKILL"], "an event")
    assert all(is_alive(pid) for pid in [*waiting.ranks, waiting.servers[1]])
    wait_until(lambda: len(server_pids(waiting.said())) == 3, "another one in its place")
    assert "corro: server 2 is started in the place of server 0\n" in waiting.said()
    assert waiting.go_on() == 0
    assert waiting.said().count("corro: server 0 was lost: killed by SIGKILL\n") == 1
    assert not waiting.left()
    assert [event["rank"] for event in events_in(events) if event["event"] == "ended"] in (
        *([0, 1], [1, 0]),
    )


def test_ranks_that_are_asked_to_stop_still_have_their_servers(launcher: Launcher) -> None:
    job = launcher.start("-np", 2, "--servers", 2, launcher.script(SAVES))
    ranks = pids_in(launcher.directory, 2)
    job.send(signal.SIGTERM)
    wait_until(lambda: len(list(launcher.directory.glob("asked-*"))) == 2, "both were asked")
    (launcher.directory / "go").touch()
    assert job.wait() == 0
    assert [job.log(rank) for rank in (0, 1)] == [b"saved\n"] * 2
    assert b"was lost" not in job.err
    assert not [pid for pid in ranks if is_alive(pid)]


def test_servers_end_with_a_rank_that_fails(launcher: Launcher) -> None:
    script = launcher.script("import sys; sys.exit(3)")
    job = launcher.run("-np", 2, "--servers", 1, "--verbose", script)
    assert job.process.returncode == 3
    assert "was lost" not in job.err.decode()
    assert not [pid for pid in server_pids(job.err.decode()) if is_alive(pid)]


def test_servers_end_with_a_launcher_that_is_killed(launcher: Launcher) -> None:
    waiting = Waiting(launcher)
    waiting.job.process.kill()
    waiting.job.wait()
    wait_until(lambda: not waiting.left(), "the end of all")


def test_what_a_server_says_is_shown_and_kept(launcher: Launcher) -> None:
    # 192.0.2.1 is nobody's address.
    waiting = Waiting(launcher, env={"CORRO_LISTEN": "192.0.2.1"})
    ends = [f"corro: server {server} was lost: status 1\n" for server in (0, 1)]
    wait_until(lambda: all(end in waiting.said() for end in ends), "both fail")
    assert waiting.go_on() == 0
    for server in (0, 1):
        (line,) = (waiting.job.logs / f"server-{server}.log").read_text().splitlines()
        assert line.startswith("corro server: ")
        assert f"[server {server}] {line}\n" in waiting.said()


ASKS = f"""
import sys
sys.path.insert(0, {TESTS!r})
from agent_socket import server_addresses
try:
    print(server_addresses())
except RuntimeError as error:
    print(error)
"""


def test_no_rank_waits_for_a_server_that_never_listened(launcher: Launcher) -> None:
    script = launcher.script(ASKS)
    job = launcher.run("-np", 2, "--servers", 1, script, env={"CORRO_LISTEN": "192.0.2.1"})
    assert job.process.returncode == 0
    for rank in (0, 1):
        assert b"table server 0 ended before it had said where it listens" in job.log(rank)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, r"--servers: \S+/libexec/corro/corro-server is not there: .*"),
        (b"not a program", r"server 0: \S+/corro-server: .*"),
    ],
)
def test_a_server_that_cannot_start_refuses_the_job(
    launcher: Launcher, content: bytes | None, why: str
) -> None:
    own = launcher.directory / "bin" / "corro"
    own.parent.mkdir()
    shutil.copy(launcher.program, own)
    if content is not None:
        server = launcher.directory / "libexec" / "corro" / "corro-server"
        server.parent.mkdir(parents=True)
        server.write_bytes(content)
        server.chmod(0o755)
    launcher.program = str(own)
    job = launcher.run("-np", 1, "--servers", 1, launcher.script("import time; time.sleep(1e6)"))
    assert job.process.returncode == 2
    (line,) = job.err.decode().splitlines()
    assert re.fullmatch(f"corro run: {why}", line), line


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--servers", -1), "--servers -1: give 0 to 1024"),
        (("--servers", 1025), "--servers 1025: give 0 to 1024"),
        (("--servers", "few"), '--servers few: give a number of table servers, or "ranks"'),
        (("--servers", "ranks", "--min-np", 1), "--servers: elastic jobs have no table servers"),
        (("--servers", 1, "--min-np", 1), "--servers: elastic jobs have no table servers"),
        (("--servers", 1, "--max-np", 4), "--servers: elastic jobs have no table servers"),
        (("--servers", 1, "--host-discovery", "x"), "--servers: elastic jobs have no"),
        (("--servers", 1, "--on", "kubernetes"), "--servers means nothing with --on kubernetes"),
    ],
)
def test_mistakes_are_one_line(launcher: Launcher, arguments: tuple[object, ...], why: str) -> None:
    job = launcher.run("-np", 2, *arguments, launcher.script(""))
    assert job.process.returncode == 2
    (line,) = job.err.decode().splitlines()
    assert line.startswith(f"corro run: {why}")


def test_ranks_that_are_servers_have_no_processes_beside_them(launcher: Launcher) -> None:
    script = launcher.script("import os; print(os.environ['CORRO_SERVERS'])")
    job = launcher.run("-np", 2, "--servers", "ranks", "--verbose", script)
    assert [job.log(rank) for rank in (0, 1)] == [b"ranks\n"] * 2
    assert b"corro: table servers: the ranks\n" in job.err
    assert not list(job.logs.glob("server-*"))


def test_a_dry_run_shows_them(launcher: Launcher) -> None:
    job = launcher.run("-np", 2, "--servers", 2, "--dry-run", launcher.script(""))
    shown = [line for line in job.lines() if line.startswith("server ")]
    assert [line.split(" on ")[0] for line in shown] == ["server 0", "server 1"]
    assert shown[1].endswith("server-1.log")
    assert not job.logs.exists()
