"""Ranks that mpirun and torchrun have started on several hosts find each other: real launchers,
real ssh, network namespaces. Nothing of the user's is touched."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import netns
import pytest
import ssh
from other_launchers import MEETS, check_layout, script, without_launchers

DEADLINE = 120


class Cluster:
    """Two hosts, each with an sshd."""

    def __init__(self, directory: Path) -> None:
        self.hosts = netns.Hosts(2)
        self.servers = ssh.Servers(self.hosts, directory / "ssh")

    def start(
        self, directory: Path, host: int, command: Sequence[object], **variables: str
    ) -> subprocess.Popen[str]:
        environment = without_launchers(self.servers.environment())
        return subprocess.Popen(
            [*self.hosts.inside(host), *map(str, command)],
            cwd=directory,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self) -> None:
        self.servers.end()
        self.hosts.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := ssh.refusal():
        pytest.skip(reason)
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


def finish(jobs: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Returns status and output of each; none is left behind."""
    try:
        return [
            (job.returncode, out) for job in jobs for out, _ in [job.communicate(timeout=DEADLINE)]
        ]
    finally:
        for job in jobs:
            if job.poll() is None:
                job.kill()
                job.wait()


def mpirun(config: Path, hosts: str, *command: object, **variables: str) -> list[object]:
    """Open MPI's, as a user would call it who has set these variables."""
    passed = {"XDG_CONFIG_HOME": str(config)} | variables
    exports = [word for name, value in passed.items() for word in ("-x", f"{name}={value}")]
    network = ["--mca", "oob_tcp_if_include", "10.77.0.0/24"]
    return ["mpirun", "--allow-run-as-root", *network, "-H", hosts, *exports, *command]


def need_open_mpi() -> None:
    program = shutil.which("mpirun")
    if program is None:
        pytest.skip("no mpirun: install openmpi-bin")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" not in said.stdout:
        pytest.skip(f"{program} is not Open MPI's")


def test_ranks_of_mpirun_on_two_hosts_meet(cluster: Cluster, tmp_path: Path) -> None:
    need_open_mpi()
    program = (sys.executable, script(tmp_path, MEETS))
    command = mpirun(tmp_path / "config", "10.77.0.1:2,10.77.0.2:2", *program)
    [(code, out)] = finish([cluster.start(tmp_path, 0, command)])
    assert code == 0, out
    check_layout(tmp_path)
    secret = tmp_path / "config" / "corro" / "secret"
    assert secret.stat().st_mode & 0o777 == 0o600


def test_ranks_of_mpirun_meet_where_no_rank_is_beside_it(cluster: Cluster, tmp_path: Path) -> None:
    """Its ranks do not know where the first of them is, so the user says it."""
    need_open_mpi()
    text = "import corro\ncorro.init()\nprint('hosts', corro.cross_size())\n"
    program = (sys.executable, script(tmp_path, text))
    command = mpirun(
        tmp_path / "config", "10.77.0.2:2", *program, CORRO_BOOTSTRAP="tcp:10.77.0.2:23456"
    )
    [(code, out)] = finish([cluster.start(tmp_path, 0, command)])
    assert (code, out) == (0, "hosts 1\nhosts 1\n")


def test_hosts_whose_secrets_differ_are_told_so(cluster: Cluster, tmp_path: Path) -> None:
    need_open_mpi()
    text = (
        "import os\nos.environ['XDG_CONFIG_HOME'] += os.environ['OMPI_COMM_WORLD_RANK']\n"
        "os.environ['CORRO_TIMEOUT'] = '3'\nimport corro\ncorro.init()\n"
    )
    program = (sys.executable, script(tmp_path, text))
    command = mpirun(tmp_path / "config", "10.77.0.1,10.77.0.2", *program)
    [(code, out)] = finish([cluster.start(tmp_path, 0, command)])
    assert code != 0
    assert "the other side does not know the job's secret" in out or "no rank of another" in out


def rendezvous(backend: str, host: int) -> list[str]:
    if backend == "static":
        return ["--master-addr=10.77.0.1", "--master-port=29501", f"--node-rank={host}"]
    endpoint = "--rdzv-endpoint=10.77.0.1:29502"
    # These hosts have one name, by which torchrun would look whether it is to serve.
    serves = f"--rdzv-conf=is_host={int(host == 0)}"
    return [f"--rdzv-backend={backend}", endpoint, "--rdzv-id=job", serves]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_ranks_of_torchrun_on_two_hosts_meet(
    cluster: Cluster, tmp_path: Path, backend: str
) -> None:
    path = script(tmp_path, MEETS)
    jobs = []
    for host in range(2):
        run = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
        here = f"--local-addr=10.77.0.{host + 1}"
        variables = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "OMP_NUM_THREADS": "1"}
        job = cluster.start(
            tmp_path, host, [*run, here, *rendezvous(backend, host), path], **variables
        )
        jobs.append(job)
    ended = finish(jobs)
    assert [code for code, _ in ended] == [0, 0], ended
    assert len(list(tmp_path.glob("rank-*"))) == 4
    if backend == "static":  # c10d numbers hosts as they come.
        check_layout(tmp_path)
