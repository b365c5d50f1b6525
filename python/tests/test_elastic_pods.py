"""An elastic CorroJob: head and workers as processes, which come and go while ranks run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pods
import pytest
from said import PATIENCE, WORKER, Said, until
from shown_job import asked, job_at

pytestmark = [
    pytest.mark.faults,
    pytest.mark.beside,
    pytest.mark.skipif(not pods.program(), reason="the pods' program is not built"),
]


class ElasticJob(Said):
    """A job of one to three workers with a rank each."""

    def __init__(self, folder: Path, fewest: int, sync: Path | None = None) -> None:
        super().__init__(folder)
        self.pods = pods.Pods(folder, kind="CorroJob", limits=(fewest, 3), sync=sync)
        if sync:
            self.pods.bring_folder()
        self.head = self.pods.head()

    def worker(self, index: int, generation: int = 0) -> subprocess.Popen[bytes]:
        script = WORKER if self.pods.sync is None else Path(WORKER).name
        command = (sys.executable, script, self.said)
        log = self.folder / f"worker-{index}-{generation}.log"
        with log.open("wb") as output:
            return self.pods.agent(
                f"worker-{index}",
                *command,
                generation=generation,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def over(self, process: subprocess.Popen[bytes]) -> int:
        return process.wait(timeout=PATIENCE)

    def head_log(self) -> str:
        return self.pods.head_log.read_text(errors="replace")

    def logs(self) -> str:
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')}"
            for log in sorted(self.folder.glob("*.log"))
        )


Start = Callable[..., ElasticJob]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    jobs: list[ElasticJob] = []

    def begin(fewest: int, sync: Path | None = None) -> ElasticJob:
        jobs.append(ElasticJob(tmp_path, fewest, sync))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.pods.close()
        for pid in job.facts():
            until(f"the end of process {pid}", lambda pid=pid: not Path(f"/proc/{pid}").exists())


def kill(pod: subprocess.Popen[bytes]) -> None:
    """As the kubelet does with all of a container."""
    os.killpg(pod.pid, signal.SIGKILL)
    pod.wait()


def test_workers_are_lost_replaced_added_and_drained_while_ranks_run(start: Start) -> None:
    job = start(2)
    workers = [job.worker(0), job.worker(1)]
    job.size(2)
    # One is lost; the other one waits for its replacement: two are the fewest.
    kill(workers[1])
    workers[1] = job.worker(1, generation=1)
    job.size(2)
    job.steps(5)
    assert "host worker-1 was lost" in job.head_log(), job.logs()
    # One is added, and then drained: its rank leaves between two steps.
    added = job.worker(2)
    job.size(3)
    added.send_signal(signal.SIGTERM)
    assert job.over(added) == 0, job.logs()
    job.size(2)
    assert "host worker-2 is about to go" in job.head_log(), job.logs()
    first = job.process_on("worker-0")
    job.finish()
    assert job.over(job.head) == 0, job.logs()
    assert [job.over(worker) for worker in workers] == [0, 0], job.logs()
    steps = [fact["step"] for fact in job.facts()[first]]
    assert steps == sorted(steps), "worker-0's process has gone on"
    assert len(job.facts()) == 4


def test_who_may_run_a_command_in_the_head_is_shown_the_job(start: Start) -> None:
    job = start(1)
    workers = [job.worker(0), job.worker(1)]
    job.size(2)
    leader = int(Path(f"/proc/{job.head.pid}/task/{job.head.pid}/children").read_text())
    program = job.pods.bin / "corro"
    printed = asked(program, leader)
    until("the ranks", lambda: len(job_at(printed)["ranks"]) == 2, job.logs)
    status = subprocess.run([program, "status", str(leader)], capture_output=True, check=True)
    assert b"2 ranks run" in status.stdout
    job.finish()
    assert job.over(job.head) == 0, job.logs()
    assert [job.over(worker) for worker in workers] == [0, 0], job.logs()


@pytest.mark.parametrize("way", ["drained", "killed"])
def test_that_all_workers_go_is_no_failure_of_the_ranks(start: Start, way: str) -> None:
    job = start(1)
    workers = [job.worker(0), job.worker(1)]
    job.size(2)
    if way == "drained":
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        assert [job.over(worker) for worker in workers] == [0, 0], job.logs()
    else:
        for worker in workers:
            os.killpg(worker.pid, signal.SIGKILL)
        for worker in workers:
            worker.wait()
    assert job.over(job.head) == 75, job.logs()
    told = job.pods.log("head").read_text()
    assert told.startswith("corro: too few workers are left: "), told
    # Whoever replaces the head says the same.
    job.head = job.pods.head(listens=False)
    assert job.over(job.head) == 75, job.logs()
    assert job.pods.log("head").read_text() == told


def test_a_pod_that_replaces_one_of_which_nothing_was_heard_has_its_place(start: Start) -> None:
    job = start(1)
    old = job.worker(0)
    job.worker(1)
    job.size(2)
    new = job.worker(0, generation=1)
    until("the newer one", lambda: "a newer pod has its place" in job.head_log(), job.logs)
    until("its rank", lambda: len(job.facts()) == 3, job.logs)
    job.size(2)
    assert old.poll() is None, "who deletes pods ends it"
    job.finish()
    assert job.over(job.head) == 0, job.logs()
    assert job.over(new) == 0, job.logs()


def test_ranks_step_on_while_the_head_is_replaced(start: Start) -> None:
    job = start(1)
    workers = [job.worker(0), job.worker(1)]
    job.size(2)
    before = set(job.facts())
    job.head.send_signal(signal.SIGTERM)
    assert job.over(job.head) == 128 + signal.SIGTERM
    job.steps(20)
    job.head = job.pods.head()
    until("a head that leads", lambda: "leads in term 2" in job.head_log(), job.logs)
    job.steps(5)
    job.finish()
    assert job.over(job.head) == 0, job.logs()
    assert [job.over(worker) for worker in workers] == [0, 0], job.logs()
    assert set(job.facts()) == before, "no process was started again"


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_what_leads_is_started_again_when_it_is_killed(start: Start) -> None:
    job = start(1)
    job.head.send_signal(signal.SIGTERM)
    assert job.over(job.head) == 128 + signal.SIGTERM
    job.head = job.pods.head()  # At a port that it is given, as in a pod.
    workers = [job.worker(0), job.worker(1)]
    job.size(2)
    before = set(job.facts())
    for term in (3, 4):
        (leader,) = children(job.head.pid)
        os.kill(leader, signal.SIGKILL)
        until("one that leads", lambda t=term: f"leads in term {t}" in job.head_log(), job.logs)
        job.steps(5)
    assert "what leads was killed by SIGKILL; it begins again in 2 s" in job.head_log()
    job.finish()
    assert job.over(job.head) == 0, job.logs()
    assert [job.over(worker) for worker in workers] == [0, 0], job.logs()
    assert set(job.facts()) == before, "no process was started again"


def test_a_folder_comes_to_workers_of_the_next_head_too(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(Path(WORKER).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    job = start(1, folder)
    workers = [job.worker(0), job.worker(1)]
    job.size(2)
    job.head.send_signal(signal.SIGTERM)
    assert job.over(job.head) == 128 + signal.SIGTERM
    job.head = job.pods.head()
    until("a head that leads", lambda: "leads in term 2" in job.head_log(), job.logs)
    workers.append(job.worker(2))
    job.size(3)
    job.finish()
    assert job.over(job.head) == 0, job.logs()
    assert [job.over(worker) for worker in workers] == [0, 0, 0], job.logs()
    assert len(job.facts()) == 3, "no process was started again"


def test_a_head_does_nothing_before_its_folder_is_there(tmp_path: Path) -> None:
    job = pods.Pods(tmp_path, kind="CorroJob", limits=(1, 1), sync=tmp_path / "project")
    try:
        head = job.start(
            "head",
            "--listen",
            "127.0.0.1:0",
            env=job.environment("head") | {"CORRO_SYNC": "/workspace/project", "CORRO_HEAD": ""},
            stderr=subprocess.PIPE,
        )
        assert head.stderr is not None
        assert b"waits for /workspace/project" in head.stderr.readline()
        head.terminate()
        assert head.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    finally:
        job.close()


def test_a_program_that_is_not_there_is_named(start: Start) -> None:
    job = start(1)
    worker = job.pods.agent("worker-0", "no-such-program", "--steps", "3")
    assert job.over(job.head) not in (0, None), job.logs()
    assert "no-such-program" in job.head_log(), job.logs()
    assert job.over(worker) == 0


def test_why_a_job_has_failed_stands_where_the_kubelet_finds_it(start: Start) -> None:
    job = start(1)
    job.pods.agent("worker-0", sys.executable, "-c", "raise ValueError('root cause here')")
    assert job.over(job.head) == 1, job.logs()
    told = job.pods.log("head").read_text()
    assert told == "corro: the job has failed: ValueError: root cause here (rank 0 on worker-0)\n"
    # Whoever replaces the head says the same.
    job.head = job.pods.head(listens=False)
    assert job.over(job.head) == 1, job.logs()
    assert job.pods.log("head").read_text() == told


def test_a_worker_that_never_reaches_its_head_says_why_and_ends(start: Start) -> None:
    job = start(1)
    job.pods.nobody_listens(7)
    worker = job.worker(0)
    assert job.over(worker) == 75, job.logs()
    at = job.pods.address
    assert f"cannot reach the head at {at}: " in job.logs()
    word = job.pods.log("worker-0").read_text()
    assert word.startswith(f"corro: the head at {at} was never reached for 7.0 s: "), word
    assert "refused" in word


def test_a_worker_without_a_command_says_so(start: Start) -> None:
    job = start(1)
    agent = job.pods.agent("worker-0", stderr=subprocess.PIPE)
    _, said = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 2
    assert b"has no command" in said
