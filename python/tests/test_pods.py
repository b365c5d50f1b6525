"""Head, agents and remote shell of a job's pods, as real processes over loopback."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import netns
import pods
import pytest
from cgroup import memory_cgroup
from launcher.conftest import is_alive
from pods import Pods, wait_for

pytestmark = [
    pytest.mark.faults,
    pytest.mark.beside,
    pytest.mark.skipif(pods.program() is None, reason="corro_pod_program was not built"),
]
BIG = 32 << 20


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Pods]:
    started = Pods(tmp_path)
    yield started
    started.close()


@pytest.fixture
def pair(job: Pods) -> Pods:
    """A head and the agents of two workers."""
    job.head()
    for member in ("worker-0", "worker-1"):
        job.agent(member)
        job.wait_until_there(member)
    return job


def number_in(file: Path) -> int:
    """The pid that a command has written, once it has."""
    return int(wait_for(lambda: file.exists() and file.read_text().strip(), f"{file} is written"))


def test_a_command_runs_on_the_host_with_its_status(pair: Pods) -> None:
    code, out, err = pair.run(
        "mnist-worker-1", "echo out; echo err >&2; echo $CORRO_MEMBER; exit 7"
    )
    assert (code, out, err) == (7, b"out\nworker-1\n", b"err\n")
    assert pair.run("root@mnist-worker-0.mnist.ns.svc", "true")[0] == 0
    assert pair.run("mnist-worker-0", "kill -9 $$")[0] == 128 + 9
    assert pair.run("mnist-worker-0", "no-such-program")[0] == 127


def test_it_is_found_as_ssh_with_ssh_s_options(pair: Pods) -> None:
    words = [str(pair.bin / "ssh"), "-x", "-o", "StrictHostKeyChecking=no", "-p", "22", "-tt"]
    run = subprocess.run(
        [*words, "mnist-worker-0", "command -v ssh"],
        env=pair.environment("launcher"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert run.stdout.decode().strip() == str(pair.bin / "ssh")
    refused = pair.run("mnist-worker-0", "true", options=["-L", "80:x:80"])
    assert refused[0] == 255
    assert b"-L" in refused[2]


def test_much_passes_both_ways(pair: Pods) -> None:
    data = os.urandom(1 << 20) * (BIG >> 20)
    code, out, err = pair.run("mnist-worker-0", "cat", data=data)
    assert (code, err) == (0, b"")
    assert out == data


def test_both_output_streams_pass_at_once(pair: Pods) -> None:
    script = "head -c 8000000 /dev/zero & head -c 8000000 /dev/zero >&2; wait"
    code, out, err = pair.run("mnist-worker-0", script)
    assert (code, len(out), len(err)) == (0, 8_000_000, 8_000_000)


def test_a_slow_reader_holds_the_command_back_and_nobody_else(pair: Pods) -> None:
    slow = pair.rsh("mnist-worker-0", "yes")
    time.sleep(12)  # longer than silence may be
    assert slow.poll() is None
    assert pair.run("mnist-worker-0", "echo quick")[1] == b"quick\n"
    assert slow.stdout
    assert slow.stdout.read(4) == b"y\ny\n"


def test_without_input_it_reads_nothing(pair: Pods) -> None:
    process = pair.rsh("mnist-worker-0", "cat", options=["-n"], stdin=subprocess.PIPE)
    assert process.wait(timeout=pods.PATIENCE) == 0


def test_what_detaches_lives_on(pair: Pods, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"sleep 600 >/dev/null 2>&1 </dev/null & echo $! > {file}"
    assert pair.run("mnist-worker-0", script)[0] == 0
    pid = number_in(file)
    time.sleep(0.5)  # whoever would end it has had time
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_signal_is_passed_on(pair: Pods, tmp_path: Path) -> None:
    file = tmp_path / "ready"
    script = f"trap 'echo told; exit 5' TERM; echo 1 > {file}; while :; do sleep 0.05; done"
    process = pair.rsh("mnist-worker-0", script)
    number_in(file)
    process.terminate()
    out, _ = process.communicate(timeout=pods.PATIENCE)
    assert (process.returncode, out) == (5, b"told\n")


def test_with_the_remote_shell_goes_its_command(pair: Pods, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    process = pair.rsh("mnist-worker-0", f"echo $$ > {file}; sleep 600; true")
    pid = number_in(file)
    process.kill()
    wait_for(lambda: not is_alive(pid), "the command was ended")


def test_with_the_agent_go_its_sessions(pair: Pods, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    agent = pair.started[1]
    process = pair.rsh("mnist-worker-0", f"echo $$ > {file}; sleep 600; true")
    pid = number_in(file)
    agent.kill()
    _, err = process.communicate(timeout=pods.PATIENCE)
    assert process.returncode == 255
    assert b"mnist-worker-0" in err
    wait_for(lambda: not is_alive(pid), "the command was ended")


def test_a_late_agent_is_waited_for(job: Pods) -> None:
    job.head()
    process = job.rsh("mnist-worker-0", "echo here")
    time.sleep(1.5)  # it has asked, and goes on waiting
    assert process.poll() is None
    job.agent("worker-0")
    out, _ = process.communicate(timeout=pods.PATIENCE)
    assert (process.returncode, out) == (0, b"here\n")


def test_a_late_head_is_waited_for(job: Pods) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    job.address = f"127.0.0.1:{port}"
    job.agent("worker-0")
    process = job.rsh("mnist-worker-0", "echo here")
    time.sleep(1)  # both have dialled in vain meanwhile
    job.head(port)
    out, _ = process.communicate(timeout=pods.PATIENCE)
    assert (process.returncode, out) == (0, b"here\n")


def test_the_newest_generation_wins(pair: Pods) -> None:
    pair.agent("worker-0", generation=1)
    pair.wait_until_there("worker-0", 1)
    assert pair.run("mnist-worker-0", "echo $CORRO_MEMBER_GENERATION")[1] == b"1\n"
    assert pair.started[1].wait(timeout=pods.PATIENCE) == 75, "the old one is refused and ends"
    old = pair.agent("worker-0", stderr=subprocess.PIPE)
    _, err = old.communicate(timeout=pods.PATIENCE)
    assert b"was replaced" in err
    assert pair.run("mnist-worker-0", "echo $CORRO_MEMBER_GENERATION")[1] == b"1\n"


def test_a_token_of_somebody_else_is_refused(pair: Pods) -> None:
    strange = pair.token("strange", pods.derive(os.urandom(32), pair.uid, "worker-1"))
    wrong = {
        "another member": {"CORRO_MEMBER": "launcher"},
        "another job": {"CORRO_JOB_UID": "other"},
        "another job's key": {"CORRO_TOKEN": str(strange)},
    }
    shells = {
        who: pair.rsh("mnist-worker-0", "echo in", env=pair.environment("worker-1") | variables)
        for who, variables in wrong.items()
    }
    for who, shell in shells.items():
        out, err = shell.communicate(timeout=pods.PATIENCE)
        assert (shell.returncode, out) == (255, b""), who
        assert b"mnist-worker-0" in err
    log = pair.head_log.read_text()
    assert "has not the key of launcher" in log
    assert "has not the key of worker-1" in log
    assert "is of job other" in log


def test_a_host_of_nobody_is_refused_at_once(pair: Pods) -> None:
    code, _, err = pair.run("mnist-worker-x", "true")
    assert code == 255
    assert b"is no host of job mnist" in err


def test_agents_come_back_to_a_new_head(pair: Pods) -> None:
    assert pair.run("mnist-worker-0", "true")[0] == 0
    pair.started[0].kill()
    pair.started[0].wait()
    pair.head()
    assert pair.run("mnist-worker-0", "echo again")[1] == b"again\n"


def test_with_the_head_go_sessions(pair: Pods, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    process = pair.rsh("mnist-worker-0", f"echo $$ > {file}; sleep 600; true")
    pid = number_in(file)
    pair.started[0].kill()
    _, err = process.communicate(timeout=pods.PATIENCE)
    assert process.returncode == 255
    assert b"was lost" in err
    wait_for(lambda: not is_alive(pid), "the command was ended")


def test_a_lost_head_ends_whoever_was_commanded_and_nobody_else(pair: Pods) -> None:
    assert pair.run("mnist-worker-0", "true")[0] == 0
    pair.started[0].kill()
    assert pair.started[1].wait(timeout=pods.PATIENCE) == 75
    assert b"was lost" in pair.log("worker-0").read_bytes()
    time.sleep(1)  # it would have ended with the other
    assert pair.started[2].poll() is None


def test_a_worker_with_a_command_ends_as_that_does(job: Pods) -> None:
    job.head()
    agent = job.agent("worker-0", "sh", "-c", "sleep 0.2; echo hi; exit 9", stdout=subprocess.PIPE)
    out, _ = agent.communicate(timeout=pods.PATIENCE)
    assert (agent.returncode, out) == (9, b"hi\n")
    assert job.agent("worker-0", "no-such-program").wait(timeout=pods.PATIENCE) == 127


def test_sigterm_reaches_the_command_which_has_its_grace(job: Pods, tmp_path: Path) -> None:
    job.head()
    file = tmp_path / "ready"
    script = f"trap 'sleep 1; exit 3' TERM; echo 1 > {file}; while :; do sleep 0.05; done"
    agent = job.agent("worker-0", "sh", "-c", script)
    number_in(file)
    agent.terminate()
    assert agent.wait(timeout=pods.PATIENCE) == 3


def test_sigterm_reaches_what_sessions_have_started(pair: Pods, tmp_path: Path) -> None:
    file, done = tmp_path / "ready", tmp_path / "done"
    script = f"trap 'echo 1 > {done}; exit 0' TERM; echo 1 > {file}; while :; do sleep 0.05; done"
    pair.rsh("mnist-worker-0", script)
    number_in(file)
    pair.started[1].terminate()
    assert pair.started[1].wait(timeout=pods.PATIENCE) == 128 + signal.SIGTERM
    assert done.exists()


def test_a_replacement_does_not_shorten_the_grace(pair: Pods, tmp_path: Path) -> None:
    """The operator makes it as soon as a pod is asked to end."""
    ready, told, done = (tmp_path / name for name in ("ready", "told", "done"))
    wait = "i=0; while [ $i -lt 70 ]; do sleep 0.1; i=$((i+1)); done"
    script = f"trap 'echo told >> {told}' TERM; echo 1 > {ready}; {wait}; echo 1 > {done}"
    pair.rsh("mnist-worker-0", script)
    number_in(ready)
    pair.started[1].terminate()
    wait_for(told.exists, "the command was told")
    pair.agent("worker-0", generation=1)
    pair.wait_until_there("worker-0", 1)
    wait_for(lambda: pair.started[1].poll() is not None, "the end of the old one")
    assert done.exists(), "its 7 s were cut short"
    assert told.read_text() == "told\n"


EAT = "import mmap; m = mmap.mmap(-1, 1 << 28); [m.write(b'x' * (1 << 20)) for _ in range(256)]"


def test_a_lack_of_memory_is_said_where_the_kubelet_reads(job: Pods) -> None:
    job.head()
    with memory_cgroup(96 << 20) as inside:
        # The agent's own end, with the pod's, is the kernel's on Kubernetes; here it lives on.
        agent = job.agent("worker-0", sys.executable, "-c", EAT, inside=inside)
        assert agent.wait(timeout=pods.PATIENCE) == 128 + signal.SIGKILL
    assert job.log("worker-0").read_bytes().startswith(b"corro: out of memory")


def test_an_agent_that_was_taken_for_lost_dials_again(pair: Pods) -> None:
    os.kill(pair.started[1].pid, signal.SIGSTOP)
    wait_for(lambda: "nothing was heard of it" in pair.head_log.read_text(), "silence")
    os.kill(pair.started[1].pid, signal.SIGCONT)
    assert pair.run("mnist-worker-0", "echo again")[1] == b"again\n"


# -- the launcher of an MPIJob ---------------------------------------------------------------------


def test_a_launcher_that_fails_by_itself_ends(pair: Pods, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    launcher = pair.agent("launcher", "sh", "-c", f"echo run >> {runs}; sleep 0.5; exit 4")
    assert launcher.wait(timeout=pods.PATIENCE) == 4
    assert runs.read_text() == "run\n"


def test_each_start_of_a_launchers_command_has_a_name_that_shells_hand_on(
    pair: Pods, tmp_path: Path
) -> None:
    """mpirun's own name of its job is the same again in a container that is started again."""
    runs = tmp_path / "runs"
    say = f"echo $CORRO_RUN >> {runs}; ssh mnist-worker-0 'echo $CORRO_RUN' >> {runs}"
    for generation in range(2):
        launcher = pair.agent("launcher", "sh", "-c", say, generation=generation)
        assert launcher.wait(timeout=pods.PATIENCE) == 0
    first, there, second, there_too = runs.read_text().split()
    assert first == there
    assert second == there_too
    assert first != second


# mpijob different: mpirun-again
def test_a_launcher_starts_again_once_a_lost_worker_is_back(pair: Pods, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shells = "ssh mnist-worker-1 'sleep 600' & ssh mnist-worker-0 'sleep 1'; wait %1"
    script = f"echo run >> {runs}; {shells}"
    again = f"if [ -e {runs} ]; then echo again >> {runs}; exit 0; fi; {script}"
    launcher = pair.agent("launcher", "bash", "-c", again)
    wait_for(runs.exists, "the first run")
    time.sleep(1)  # the shells have begun; nothing outside tells
    pair.started[2].kill()
    time.sleep(1)  # it must not start before the worker is back
    assert launcher.poll() is None
    assert runs.read_text() == "run\n"
    pair.agent("worker-1", generation=1)
    assert launcher.wait(timeout=pods.PATIENCE) == 0
    assert runs.read_text() == "run\nagain\n"


def test_a_launcher_does_not_wait_for_a_host_that_was_taken_away(
    pair: Pods, tmp_path: Path
) -> None:
    """The operator makes the job smaller; the kubelet changes the launcher's hostfile later."""
    hostfile, runs, shells = (tmp_path / name for name in ("hostfile", "runs", "shells"))
    hostfile.write_text(
        "mnist-worker-0.mnist.ns.svc slots=2\nmnist-worker-1.mnist.ns.svc slots=2\n"
    )
    # As mpirun: it knows the hosts that it has begun with, and fails with the first that fails.
    script = f"""
    hosts=$(cut -d" " -f1 {hostfile})
    echo run >> {runs}
    for host in $hosts; do
      ssh $host "echo here >> {shells}; [ $(wc -l < {hostfile}) = 1 ] || sleep 600" &
    done
    for host in $hosts; do wait -n || exit 1; done
    """
    launcher = pair.agent(
        "launcher", "bash", "-c", script, hostfile=hostfile, stderr=subprocess.PIPE
    )
    wait_for(lambda: shells.exists() and shells.read_text() == 2 * "here\n", "both hosts run")
    pair.started[2].terminate()
    wait_for(lambda: runs.read_text() == 2 * "run\n", "the second run, by the old hostfile")
    fresh = tmp_path / "fresh"
    fresh.write_text("mnist-worker-0.mnist.ns.svc slots=2\n")
    fresh.rename(hostfile)
    _, err = launcher.communicate(timeout=pods.PATIENCE)
    assert launcher.returncode == 0, err.decode()
    assert runs.read_text() == 3 * "run\n"
    assert b"mnist-worker-1.mnist.ns.svc: it is no host of the job any more" in err


def test_a_launcher_outlives_its_head_and_starts_again(pair: Pods, tmp_path: Path) -> None:
    """Its pod's end would be counted by the backoffLimit of its Job."""
    runs, pid = tmp_path / "runs", tmp_path / "pid"
    # What was stopped has not succeeded, whatever it says.
    first = f"trap 'exit 0' TERM; echo $$ > {pid}; while :; do sleep 0.05; done"
    script = f"echo run >> {runs}; if [ ! -e {pid} ]; then {first}; fi"
    launcher = pair.agent("launcher", "sh", "-c", script)
    pair.wait_until_there("launcher")
    command = number_in(pid)
    pair.started[0].kill()
    pair.started[0].wait()
    wait_for(lambda: not is_alive(command), "the command was stopped")
    assert launcher.poll() is None
    pair.head()
    assert launcher.wait(timeout=pods.PATIENCE) == 0
    assert runs.read_text() == 2 * "run\n"


def test_a_launcher_that_waits_for_a_vanished_host_is_stopped(pair: Pods, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    script = f"if [ -e {runs} ]; then exit 0; fi; echo run >> {runs}; exec sleep 600"
    launcher = pair.agent("launcher", "sh", "-c", script)
    wait_for(runs.exists, "the first run")
    pair.wait_until_there("launcher")  # Else there is nobody to be told.
    os.kill(pair.started[2].pid, signal.SIGSTOP)
    pair.agent("worker-1", generation=1)
    wait_for(lambda: launcher.poll() is not None, "the launcher ends")
    assert launcher.returncode == 0


# -- the ranks of a CorroJob -----------------------------------------------------------------------


@pytest.fixture
def corro_job(tmp_path: Path) -> Iterator[Pods]:
    started = Pods(tmp_path, kind="CorroJob", workers=2, slots=2)
    started.head()
    yield started
    started.close()


def test_a_worker_that_never_reaches_its_head_says_why_and_ends(tmp_path: Path) -> None:
    job = Pods(tmp_path, kind="CorroJob", workers=1)
    job.nobody_listens(7)
    agent = job.agent("worker-0", "true", stderr=subprocess.PIPE)
    _, said = agent.communicate(timeout=pods.PATIENCE)
    assert agent.returncode == 75
    assert f"cannot reach the head at {job.address}: ".encode() in said
    word = job.log("worker-0").read_text()
    assert word.startswith(f"corro: the head at {job.address} was never reached for 7.0 s: "), word
    assert "refused" in word


def test_ranks_of_one_worker_run(tmp_path: Path) -> None:
    one = Pods(tmp_path, kind="CorroJob", workers=1, slots=2)
    try:
        one.head()
        agent = one.agent("worker-0", "sh", "-c", "echo rank $CORRO_RANK of $CORRO_SIZE")
        assert agent.wait(timeout=pods.PATIENCE) == 0
        assert "rank 1 of 2" in one.head_log.read_text()
    finally:
        one.close()


def test_ranks_start_when_all_workers_are_there(corro_job: Pods) -> None:
    script = 'echo "rank $CORRO_RANK of $CORRO_SIZE on $CORRO_MEMBER"'
    agents = [corro_job.agent("worker-0", "sh", "-c", script)]
    time.sleep(0.5)  # one of two workers must not be enough
    assert agents[0].poll() is None
    agents.append(corro_job.agent("worker-1", "sh", "-c", script))
    assert [agent.wait(timeout=pods.PATIENCE) for agent in agents] == [0, 0]
    log = corro_job.head_log.read_text()
    for rank in range(4):
        assert f"rank {rank} of 4 on worker-{rank // 2}" in log


def test_a_rank_that_fails_ends_all_pods_with_its_status(corro_job: Pods) -> None:
    script = "if [ $CORRO_RANK = 3 ]; then exit 9; fi; sleep 600"
    agents = [corro_job.agent(f"worker-{i}", "sh", "-c", script) for i in range(2)]
    assert [agent.wait(timeout=pods.PATIENCE) for agent in agents] == [9, 9]


def test_one_rank_s_lack_of_memory_is_what_all_pods_end_with(corro_job: Pods) -> None:
    """Whichever pod's end the operator sees first: the kernel kills the rank alone on version 1."""
    eat = f"exec {shlex.join([sys.executable, '-c', EAT])}"
    script = f"if [ $CORRO_RANK = 3 ]; then {eat}; fi; sleep 600"
    with memory_cgroup(96 << 20) as inside:
        agents = [corro_job.agent("worker-0", "sh", "-c", script)]
        agents.append(corro_job.agent("worker-1", "sh", "-c", script, inside=inside))
        status = 128 + signal.SIGKILL
        assert [agent.wait(timeout=pods.PATIENCE) for agent in agents] == [status, status]
    for member in ("worker-0", "worker-1"):
        assert corro_job.log(member).read_bytes().startswith(b"corro: out of memory"), member
    assert b"mnist-worker-1" in corro_job.log("worker-0").read_bytes()


def test_after_a_loss_the_ranks_start_again_beside_the_others(
    corro_job: Pods, tmp_path: Path
) -> None:
    script = f"echo $CORRO_RANK >> {tmp_path}/ranks; [ -e {tmp_path}/enough ] || sleep 600"
    ranks = tmp_path / "ranks"
    first = corro_job.agent("worker-0", "sh", "-c", script)
    lost = corro_job.agent("worker-1", "sh", "-c", script)
    wait_for(lambda: ranks.exists() and len(ranks.read_text().split()) == 4, "four ranks")
    (tmp_path / "enough").touch()
    lost.kill()
    second = corro_job.agent("worker-1", "sh", "-c", script, generation=1)
    assert [first.wait(timeout=pods.PATIENCE), second.wait(timeout=pods.PATIENCE)] == [0, 0]
    assert sorted(ranks.read_text().split()) == sorted("01230123")


def test_a_new_head_starts_the_ranks_again(corro_job: Pods, tmp_path: Path) -> None:
    script = f"echo $CORRO_RANK >> {tmp_path}/ranks; [ -e {tmp_path}/enough ] || sleep 600"
    ranks = tmp_path / "ranks"
    agents = [corro_job.agent(f"worker-{i}", "sh", "-c", script) for i in range(2)]
    wait_for(lambda: ranks.exists() and len(ranks.read_text().split()) == 4, "four ranks")
    (tmp_path / "enough").touch()
    corro_job.started[0].kill()
    corro_job.started[0].wait()
    corro_job.head()
    assert [agent.wait(timeout=pods.PATIENCE) for agent in agents] == [0, 0]
    assert sorted(ranks.read_text().split()) == sorted("01230123")


# -- mpirun ----------------------------------------------------------------------------------------


# mpijob same: case.e2e-open-mpi
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun: install openmpi-bin")
def test_open_mpi_s_mpirun_starts_ranks_through_it(pair: Pods, tmp_path: Path) -> None:
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("mnist-worker-0 slots=2\nmnist-worker-1 slots=2\n")
    script = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $CORRO_MEMBER"'
    environment = pair.environment("launcher") | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm_rsh_agent": str(pair.bin / "ssh"),
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": str(hostfile),
        # Both hosts are this machine: its daemons would write one shared file of the topology.
        "OMPI_MCA_rtc_hwloc_vmhole": "none",
    }
    run = subprocess.run(
        ["mpirun", "-np", "4", "sh", "-c", script],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=pods.PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stdout.decode()
    lines = sorted(run.stdout.decode().splitlines())
    assert lines == [f"{rank} of 4 on worker-{rank // 2}" for rank in range(4)]


# -- ranks of mpirun -------------------------------------------------------------------------------

MEETS = """
import sys
import corro
import corro.numpy as cn

corro.init()
assert cn.allreduce(corro.rank() + 1.0, corro.Sum) == 10
with open(f"{sys.argv[1]}/rank-{corro.rank()}", "a") as file:
    print(corro.cross_rank(), "of", corro.cross_size(), file=file)
"""


@pytest.fixture
def hosts() -> Iterator[netns.Hosts]:
    if reason := netns.refusal():
        pytest.skip(reason)
    made = netns.Hosts(3)
    yield made
    made.end()


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun: install openmpi-bin")
def test_ranks_of_mpirun_meet_where_no_rank_is_beside_it(
    job: Pods, hosts: netns.Hosts, tmp_path: Path
) -> None:
    """Pods without a home, or a name, that they share; mpirun's has no rank."""
    job.head(inside=hosts.inside(0), host=hosts.address(0))

    def inside(host: int) -> list[str]:
        """A folder for all, which no pods have, makes daemons of mpirun's fail at times."""
        own = tmp_path / f"tmp-{host}"
        own.mkdir()
        return [*hosts.inside(host), "env", f"TMPDIR={own}"]

    for worker in range(2):
        job.agent(f"worker-{worker}", inside=inside(worker + 1))
        job.wait_until_there(f"worker-{worker}")
    script, hostfile, out = (tmp_path / name for name in ("script.py", "hostfile", "out"))
    script.write_text(MEETS)
    hostfile.write_text("mnist-worker-0 slots=2\nmnist-worker-1 slots=2\n")
    mpirun = ["mpirun", "--allow-run-as-root", "-mca", "plm_rsh_agent", str(job.bin / "ssh")]
    mpirun += ["-mca", "orte_keep_fqdn_hostnames", "true", "-mca", "rtc_hwloc_vmhole", "none"]
    mpirun += ["-x", "HOME=/nowhere", "--hostfile", str(hostfile), sys.executable]
    mpirun += [str(script), str(tmp_path)]
    # Twice: the second run's ranks do not find those of the first.
    words = ["sh", "-c", f"{shlex.join(mpirun)} && {shlex.join(mpirun)}"]
    with out.open("wb") as file:
        launcher = job.agent(
            "launcher", *words, inside=inside(0), stdout=file, stderr=subprocess.STDOUT
        )
        assert launcher.wait(timeout=pods.PATIENCE) == 0, out.read_text()
    for rank in range(4):
        assert (tmp_path / f"rank-{rank}").read_text() == 2 * f"{rank // 2} of 2\n"


# -- the program ----------------------------------------------------------------------------------


def refusal_of_chroot() -> str:
    run = subprocess.run(["unshare", "-r", "true"], capture_output=True, check=False)
    return "" if run.returncode == 0 else "no user namespaces here"


@pytest.mark.skipif(bool(refusal_of_chroot()), reason=refusal_of_chroot() or "-")
def test_it_runs_where_there_is_nothing_else(pair: Pods, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in ("bin", "token", "proc"):
        (root / folder).mkdir(parents=True)
    shutil.copy(pair.bin / "corro", root / "bin/corro")
    shutil.copy(pair.bin / "corro", root / "bin/ssh")
    key = root / "token/key"
    key.touch(mode=0o600)
    key.write_text(pods.derive(pair.part, pair.uid, "launcher"))
    env = pair.environment("launcher") | {"CORRO_TOKEN": "/token"}
    inside = ["unshare", "-r", "chroot", str(root)]
    version = subprocess.run([*inside, "/bin/corro", "version"], capture_output=True, check=True)
    assert version.stdout.startswith(b"corro ")
    run = subprocess.run(
        [*inside, "/bin/ssh", "mnist-worker-0", "echo from nowhere"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=pods.PATIENCE,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, b"from nowhere\n"), run.stderr


def test_it_needs_no_loader(pair: Pods) -> None:
    content = (pair.bin / "corro").read_bytes()
    assert b"ld-linux" not in content[:4096], "it names a loader"
    assert (pair.bin / "ssh").is_symlink()
