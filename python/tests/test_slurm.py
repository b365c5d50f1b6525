"""In a real Slurm of two nodes: ranks that srun starts meet, and `corro run` takes the hosts that
Slurm has given."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import netns
import pytest
import slurm
import ssh
from other_launchers import MEETS, check_layout, script, without_launchers

pytestmark = pytest.mark.slow
DEADLINE = 120


class Cluster:
    """A Slurm of two nodes that let each other in by ssh."""

    def __init__(self, directory: Path) -> None:
        self.hosts = netns.Hosts(2)
        self.servers = ssh.Servers(self.hosts, directory / "ssh")
        self.slurm = slurm.Slurm(self.hosts, directory / "slurm")
        self.servers.know(*self.slurm.names)
        beside_python = str(Path(sys.executable).with_name("corro"))
        self.program = os.environ.get("CORRO_PROGRAM") or beside_python

    def run(self, directory: Path, *command: object) -> tuple[int, str]:
        """Runs a command of Slurm's on the first node."""
        config = {"XDG_CONFIG_HOME": str(directory / "config")}
        environment = without_launchers(self.servers.environment())
        job = subprocess.run(
            [*self.hosts.inside(0), *map(str, command)],
            cwd=directory,
            env=environment | self.slurm.variables() | config,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        return job.returncode, job.stdout

    def batch(self, directory: Path, command: str, *options: str) -> tuple[int, str]:
        """Runs a shell's commands as a batch job of two nodes; its status and output."""
        job = directory / "job.sh"
        job.write_text(f"#!/bin/sh\ncd {directory}\n{command}\n")
        output = directory / "job.out"
        code, said = self.run(directory, "sbatch", "--wait", "-N2", f"-o{output}", *options, job)
        return code, output.read_text() if output.exists() else said

    def end(self) -> None:
        self.slurm.end()
        self.servers.end()
        self.hosts.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := slurm.refusal() or ssh.refusal():
        pytest.skip(reason)
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


def test_ranks_of_srun_on_two_nodes_meet(cluster: Cluster, tmp_path: Path) -> None:
    path = script(tmp_path, MEETS)
    code, out = cluster.run(tmp_path, "srun", "-N2", "--ntasks-per-node=2", sys.executable, path)
    assert code == 0, out
    check_layout(tmp_path)


def test_ranks_of_srun_on_one_node_meet_without_a_secret(cluster: Cluster, tmp_path: Path) -> None:
    text = "import corro\ncorro.init()\nassert (corro.size(), corro.cross_size()) == (2, 1)\n"
    path = script(tmp_path, text)
    code, out = cluster.run(tmp_path, "srun", "-N1", "-n2", sys.executable, path)
    assert (code, out) == (0, "")
    assert not (tmp_path / "config").exists()


def test_two_steps_at_once_are_two_jobs(cluster: Cluster, tmp_path: Path) -> None:
    text = (
        "import os\nimport corro\nimport corro.numpy as cn\ncorro.init()\n"
        "step = int(os.environ['SLURM_STEP_ID'])\n"
        "assert cn.allreduce(float(step), corro.Sum) == 2 * step\n"
    )
    path = script(tmp_path, text)
    step = f"srun --overlap -N2 -n2 {sys.executable} {path}"
    code, out = cluster.batch(tmp_path, f"{step} & one=$!; {step} && wait $one")
    assert (code, out) == (0, "")


@pytest.mark.parametrize("shell", ["", "--rsh srun"])
def test_a_batch_job_needs_no_hosts(cluster: Cluster, tmp_path: Path, shell: str) -> None:
    path = script(tmp_path, MEETS)
    run = f"{cluster.program} run --verbose --log-dir logs {shell} {path}"
    code, out = cluster.batch(tmp_path, run, "--ntasks-per-node=2")
    assert code == 0, out
    check_layout(tmp_path)
    assert "hosts from Slurm: SLURM_JOB_NODELIST=n[1-2], SLURM_TASKS_PER_NODE=2(x2)" in out


def test_a_shell_of_salloc_shows_the_plan(cluster: Cluster, tmp_path: Path) -> None:
    run = (cluster.program, "run", "--dry-run", "true")
    code, out = cluster.run(tmp_path, "salloc", "-Q", "-N2", "--ntasks-per-node=2", *run)
    assert code == 0, out
    assert "hosts from Slurm: SLURM_JOB_NODELIST=n[1-2]" in out
    assert "host n1: 2 ranks\nhost n2: 2 ranks\n" in out


def test_what_the_user_says_wins(cluster: Cluster, tmp_path: Path) -> None:
    salloc = ("salloc", "-Q", "-N2", cluster.program, "run", "--dry-run")
    assert "host other: 3 ranks\n" in cluster.run(tmp_path, *salloc, "-H", "other:3", "true")[1]
    code, out = cluster.run(tmp_path, *salloc, "-np", "3", "true")
    assert code == 2
    assert "SLURM_TASKS_PER_NODE=1(x2): -np 3: the hosts have 2 slots" in out
    assert "host n2" not in cluster.run(tmp_path, *salloc, "--allow-single-node", "true")[1]


def test_a_task_of_several_is_no_launcher(cluster: Cluster, tmp_path: Path) -> None:
    code, out = cluster.run(tmp_path, "srun", "-N2", "-n2", cluster.program, "run", "true")
    assert code != 0
    assert "srun announces 2 copies of this launcher" in out


def test_a_step_of_one_task_is_a_job_on_its_node(cluster: Cluster, tmp_path: Path) -> None:
    step = f"srun -N1 -n1 -w n2 {cluster.program} run -np 2 --show all --log-dir logs"
    code, out = cluster.batch(tmp_path, f"{step} sh -c 'echo on $SLURMD_NODENAME'")
    assert code == 0, out
    assert sorted(out.splitlines()) == ["[rank 0] on n2", "[rank 1] on n2"]
