"""horovodrun over several hosts: network namespaces, and a real ssh between them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import netns
import pytest
import ssh

pytestmark = [pytest.mark.faults, pytest.mark.beside]
OWN, OTHER, NO_KEY = "localhost", "node2", "nokey"
DEADLINE = 120

TRAIN = """
import json
import os
import torch
import horovod.torch as hvd

hvd.init()
total = hvd.allreduce(torch.full((1000,), hvd.rank() + 1.0), op=hvd.Sum)
assert total[0] == hvd.size() * (hvd.size() + 1) / 2
names = "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE".split()
verbs = [getattr(hvd, name.lower())() for name in names]
assert verbs == [int(os.environ["HOROVOD_" + name]) for name in names], verbs
address = os.popen("ip -4 -o address show dev eth0").read().split()[3].partition("/")[0]
facts = {"verbs": verbs, "address": address, "listen": os.environ["CORRO_LISTEN"]}
facts["homogeneous"] = hvd.is_homogeneous()
facts["host"] = os.environ["HOROVOD_HOSTNAME"]
with open(f"facts-{hvd.rank()}", "w") as file:
    json.dump(facts, file)
print("rank", hvd.rank())
"""


class Cluster:
    """Two hosts; the launcher is on the first one."""

    def __init__(self, directory: Path) -> None:
        self.hosts = netns.Hosts(2, lonely=True)
        self.servers = ssh.Servers(self.hosts, directory / "ssh")
        self.key = directory / "ssh" / "user_key"

    def run(self, directory: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        return self.call(directory, Path(sys.executable).with_name("horovodrun"), *arguments)

    def call(self, directory: Path, *command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.hosts.inside(0), *map(str, command)],
            cwd=directory,
            env=self.servers.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    def end(self) -> None:
        self.servers.end()
        self.hosts.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = ssh.refusal()
    if reason:
        pytest.skip(reason)
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


def train(directory: Path) -> tuple[str, Path]:
    script = directory / "train.py"
    script.write_text(TRAIN)
    return sys.executable, script


def facts_of(directory: Path, ranks: int) -> list[dict[str, object]]:
    return [json.loads((directory / f"facts-{rank}").read_text()) for rank in range(ranks)]


def test_two_hosts(cluster: Cluster, tmp_path: Path) -> None:
    hosts = f"{OWN}:2,{OTHER}:2"
    job = cluster.run(tmp_path, "-np", 4, "-H", hosts, "--output-filename", "out", *train(tmp_path))
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == [f"[{r}]<stdout>:rank {r}" for r in range(4)]
    for rank, facts in enumerate(facts_of(tmp_path, 4)):
        assert facts["verbs"] == [rank, 4, rank % 2, 2, rank // 2, 2]
        assert facts["address"] == f"10.77.0.{rank // 2 + 1}"
        assert facts["host"] == (OWN, OTHER)[rank // 2]
        assert facts["homogeneous"]
        written = (tmp_path / f"out/rank.{rank}/stdout").read_text()
        assert written == f"[{rank}]<stdout>:rank {rank}\n", "where the launcher is"


def test_hosts_of_a_file_with_unequal_slots(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"{OWN} slots=1\n{OTHER} slots=3\n")
    job = cluster.run(tmp_path, "-np", 3, "--hostfile", "hosts", *train(tmp_path))
    assert job.returncode == 0, job.stderr
    found = facts_of(tmp_path, 3)
    assert [facts["verbs"] for facts in found] == [
        [0, 3, 0, 1, 0, 2],
        [1, 3, 0, 2, 1, 2],
        [2, 3, 1, 2, 0, 1],
    ]
    assert not any(facts["homogeneous"] for facts in found)


CALLS = """
import os
import sys
import horovod

def work(fails):
    rank, size = (int(os.environ[name]) for name in ("HOROVOD_RANK", "HOROVOD_SIZE"))
    if fails and rank == 0:
        raise RuntimeError("as expected")
    return rank, size

hosts = sys.argv[1]
assert horovod.run(work, (False,), num_proc=4, hosts=hosts) == [(rank, 4) for rank in range(4)]
try:
    horovod.run(work, (True,), num_proc=4, hosts=hosts)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("hosts", ["localhost:4", "localhost:2,node2:2", "node1:2,node2:2"])
def test_a_function_and_a_command_that_fail_and_do_not(
    cluster: Cluster, tmp_path: Path, hosts: str
) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    job = cluster.call(tmp_path, sys.executable, "calls.py", hosts)
    assert job.returncode == 0, job.stderr
    assert "Horovod detected that one or more processes exited with non-zero status" in job.stdout
    assert cluster.run(tmp_path, "-np", 4, "-H", hosts, "true").returncode == 0
    assert cluster.run(tmp_path, "-np", 4, "-H", hosts, "false").returncode == 1


def test_network_interfaces(cluster: Cluster, tmp_path: Path) -> None:
    where = ("-np", 2, "-H", f"{OWN}:1,{OTHER}:1")
    job = cluster.run(tmp_path, *where, "--network-interfaces", "eth0,ib0", *train(tmp_path))
    assert job.returncode == 0, job.stderr
    assert [facts["listen"] for facts in facts_of(tmp_path, 2)] == ["10.77.0.1", "10.77.0.2"]
    for interface, text in (("ib0", "no interface by NCCL_SOCKET_IFNAME=ib0"), ("lonely0", "")):
        job = cluster.run(tmp_path, *where, "--network-interfaces", interface, "true")
        assert job.returncode == 2
        [line] = job.stderr.splitlines()
        assert line.startswith("corro run: ")
        assert text in line


def test_port_and_key_of_ssh(cluster: Cluster, tmp_path: Path) -> None:
    where = ("-np", 2, "-H", f"{OWN}:1,{NO_KEY}:1")
    with_key = ("-p", ssh.OTHER_PORT, "-i", cluster.key)
    job = cluster.run(tmp_path, *where, *with_key, *train(tmp_path))
    assert job.returncode == 0, job.stderr
    job = cluster.run(tmp_path, *where, "true")
    assert job.returncode != 0
    assert "Permission denied" in job.stderr
    job = cluster.run(tmp_path, *where, "-p", ssh.OTHER_PORT + 1, "-i", cluster.key, "true")
    assert job.returncode != 0
    assert "Connection refused" in job.stderr


def test_fewer_slots_than_ranks_start_nothing(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"{OWN} slots=1\n{OTHER} slots=1\n")
    for where, text in (
        (("-H", f"{OWN}:1,{OTHER}:1"), "more processes (3) than there are available slots (2)"),
        (("--hostfile", "hosts"), "-np 3: the hosts have 2 slots"),
    ):
        job = cluster.run(tmp_path, "-np", 3, *where, "touch", "started")
        assert job.returncode == 2
        [line] = job.stderr.splitlines()
        assert text in line
    assert not (tmp_path / "started").exists()
