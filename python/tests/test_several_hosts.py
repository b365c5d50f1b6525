"""`corro run -H`: one command, ranks on several hosts, by real ssh between network namespaces."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netns
import pytest
import ssh
from launcher.conftest import is_alive, wait_until
from test_examples import EXAMPLES, needs_images, some_images

pytestmark = [pytest.mark.faults, pytest.mark.beside]
OWN, OTHER, THIRD = "localhost", "10.77.0.2", "10.77.0.3"
DEADLINE = 120


class Cluster:
    """Three hosts; the launcher is on the first, and so is the only key to the others."""

    def __init__(self, directory: Path, hosts: netns.Hosts | None = None) -> None:
        self.hosts = hosts or netns.Hosts(3)
        self.servers = ssh.Servers(self.hosts, directory / "ssh")
        beside_python = str(Path(sys.executable).with_name("corro"))
        self.program = os.environ.get("CORRO_PROGRAM") or beside_python

    def start(self, directory: Path, *arguments: object, **popen: Any) -> subprocess.Popen[str]:
        run = [self.program, "run", "--log-dir", str(directory / "logs"), *map(str, arguments)]
        environment = self.servers.environment()
        for name in list(environment):
            if name.startswith(("SLURM_", "CORRO_", "PET_", "OMPI_", "TORCHELASTIC_")):
                del environment[name]
        return subprocess.Popen(
            [*self.hosts.inside(0), "env", "--default-signal=HUP,INT,QUIT", *run],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **({"stdin": subprocess.DEVNULL, "cwd": directory} | popen),
        )

    def run(self, directory: Path, *arguments: object, **popen: Any) -> tuple[int, str, str]:
        job = self.start(directory, *arguments, **popen)
        out, err = job.communicate(timeout=DEADLINE)
        return job.returncode, out, err

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


def script(directory: Path, text: str) -> Path:
    path = directory / "script.py"
    path.write_text(text)
    return path


MEETS = """
import json
import os
import numpy
import corro
import corro.numpy as cn

corro.init()
assert cn.allreduce(numpy.full(1000, corro.rank() + 1.0), corro.Sum)[0] == 10
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR CORRO_LISTEN"
facts = {name: os.environ[name] for name in names.split()}
facts["layout"] = [corro.rank(), corro.local_rank(), corro.cross_rank(), corro.cross_size()]
facts["addresses"] = os.popen("ip -4 -o address show dev eth0").read().split()[3]
facts["cwd"] = os.getcwd()
with open(f"facts-{corro.rank()}", "w") as file:
    json.dump(facts, file)
print("rank", corro.rank())
"""


def test_ranks_of_two_hosts_meet(cluster: Cluster, tmp_path: Path) -> None:
    code, out, err = cluster.run(
        tmp_path, "--verbose", "--show", "all", "-H", f"{OWN}:2,{OTHER}:2", script(tmp_path, MEETS)
    )
    assert code == 0, err
    assert sorted(line.split("] ")[1] for line in out.splitlines()) == [
        f"rank {r}" for r in range(4)
    ]
    facts = [json.loads((tmp_path / f"facts-{rank}").read_text()) for rank in range(4)]
    assert [fact["layout"] for fact in facts] == [[r, r % 2, r // 2, 2] for r in range(4)]
    for rank, fact in enumerate(facts):
        here = f"10.77.0.{rank // 2 + 1}"
        assert fact["addresses"].split("/")[0] == here, "the rank is on its host"
        assert fact["CORRO_LISTEN"] == here
        assert fact["MASTER_ADDR"] == "10.77.0.1"
        assert (fact["RANK"], fact["LOCAL_RANK"]) == (str(rank), str(rank % 2))
        assert (fact["WORLD_SIZE"], fact["LOCAL_WORLD_SIZE"]) == ("4", "2")
        assert fact["cwd"] == str(tmp_path)
    assert f"ranks 2-3 on {OTHER}, reached at 10.77.0.2" in err
    assert (tmp_path / "logs" / "rank-3.log").read_text() == "rank 3\n"


SERVED = f"""
import os, socket, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from agent_socket import server_addresses
found = server_addresses()
for address in found:
    socket.create_connection(address).close()
print(*(host for host, port in found))
"""


def test_table_servers_of_all_hosts_are_reached_from_all(cluster: Cluster, tmp_path: Path) -> None:
    code, out, err = cluster.run(
        *(tmp_path, "--show", "all", "--servers", "3", "-H", f"{OWN}:1,{OTHER}:1"),
        script(tmp_path, SERVED),
    )
    assert code == 0, err
    there = "10.77.0.1 10.77.0.2 10.77.0.1"
    assert sorted(out.splitlines()) == [f"[rank {rank}] {there}" for rank in range(2)]
    logs = sorted(path.name for path in (tmp_path / "logs").glob("server-*"))
    assert logs == ["server-0.log", "server-1.log", "server-2.log"]
    assert "was lost" not in err


KEEPS_ROWS = """
import os, time
import numpy as np
import corro.table
table = corro.table.Table("t", 2, optimizer=corro.table.SGD(lr=1.0), replicas=0)
table.push(range(64), np.ones((64, 2)))
if os.environ["CORRO_RANK"] == "1":
    time.sleep(0.5)  # The other rank is through.
assert (table.pull(range(64)) == -2).all()
print("has all rows")
"""


def test_ranks_of_several_hosts_keep_rows_for_each_other(cluster: Cluster, tmp_path: Path) -> None:
    code, out, err = cluster.run(
        *(tmp_path, "--show", "all", "--servers", "ranks", "-H", f"{OWN}:1,{OTHER}:1"),
        script(tmp_path, KEEPS_ROWS),
    )
    assert code == 0, err
    assert sorted(out.splitlines()) == [f"[rank {rank}] has all rows" for rank in range(2)]


def test_a_network_that_is_asked_for_is_taken(cluster: Cluster, tmp_path: Path) -> None:
    for host, name in enumerate(cluster.hosts.names):
        address = f"10.99.0.{host + 1}/24"
        netns.sh("ip", "-n", name, "address", "add", address, "dev", "eth0")
    where = ("--show", "all", "-H", f"{OWN},{OTHER}", "sh", "-c", "echo at $CORRO_LISTEN")
    code, out, err = cluster.run(tmp_path, "--network", "10.99.0.0/16", *where)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[rank 0] at 10.99.0.1", "[rank 1] at 10.99.0.2"]
    code, out, err = cluster.run(tmp_path, *where)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[rank 0] at 10.77.0.1", "[rank 1] at 10.77.0.2"]


def test_a_script_for_torchrun_meets_over_gloo(cluster: Cluster, tmp_path: Path) -> None:
    text = (
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "x = torch.ones(4) * dist.get_rank()\ndist.all_reduce(x)\nassert x[0] == 1, x\n"
        "print('sum', x[0].item())\ndist.destroy_process_group()\n"
    )
    code, out, err = cluster.run(
        tmp_path, "--env", "GLOO_SOCKET_IFNAME=eth0", "--env", "CORRO_TORCH=keep",
        "-H", f"{OWN},{OTHER}", script(tmp_path, text),
    )  # fmt: skip
    assert code == 0, err
    assert "sum 1.0" in out


FAILS = """
import corro
import corro.numpy
corro.init()
corro.set_step(3)
corro.numpy.allreduce(1.0)
if corro.rank() == 1:
    raise ValueError("bad data")
corro.numpy.allreduce(1.0)
"""


def test_a_failure_elsewhere_names_host_and_rank(cluster: Cluster, tmp_path: Path) -> None:
    code, _, err = cluster.run(tmp_path, "-H", f"{OWN},{OTHER}", script(tmp_path, FAILS))
    assert code == 1
    assert f"corro: rank 1 failed on {OTHER} (pid " in err
    assert "ValueError: bad data" in err
    failure = json.loads((tmp_path / "logs" / "failure.json").read_text())
    assert (failure["host"], failure["rank"], failure["step"]) == (OTHER, 1, 3)


# Leaves a file pid-RANK-PID for itself and for a child that has left its session.
STAYS = """
import os, subprocess, time
rank = os.environ["RANK"]
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
for pid in (os.getpid(), child.pid):
    open(f"pid-{rank}-{pid}", "w")
while True: time.sleep(0.1)
"""


def pids_of(directory: Path, rank: int) -> list[int]:
    def found() -> list[int]:
        return [int(path.name.split("-")[2]) for path in directory.glob(f"pid-{rank}-*")]

    wait_until(lambda: len(found()) == 2, f"rank {rank} runs")
    return found()


def gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), "every process has ended")


def agent_above(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("victim", ["agent", "ssh", "cable"])
def test_a_host_that_is_lost_ends_the_job_and_leaves_nothing(
    cluster: Cluster, tmp_path: Path, victim: str
) -> None:
    job = cluster.start(tmp_path, "-H", f"{OWN},{OTHER}", script(tmp_path, STAYS))
    own, other = pids_of(tmp_path, 0), pids_of(tmp_path, 1)
    if victim == "agent":
        os.kill(agent_above(min(other)), signal.SIGKILL)
    elif victim == "ssh":
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        [shell] = [pid for pid in children if "ssh" in Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(int(shell), signal.SIGKILL)
    else:
        cluster.hosts.cut(1)
    try:
        _, err = job.communicate(timeout=DEADLINE)
    finally:
        if victim == "cable":
            cluster.hosts.mend(1)
    assert job.returncode == 128 + signal.SIGKILL
    assert f"corro: rank 1 failed on {OTHER}" in err
    assert f"host {OTHER} was lost: " in err
    gone(own)
    gone(other)


def test_kill_9_of_the_launcher_leaves_nothing_anywhere(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.start(tmp_path, "-H", f"{OWN},{OTHER}", script(tmp_path, STAYS))
    pids = pids_of(tmp_path, 0) + pids_of(tmp_path, 1)
    job.kill()
    job.communicate()
    gone(pids)


def test_ctrl_c_ends_all_hosts(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.start(tmp_path, "-H", f"{OWN},{OTHER}", script(tmp_path, STAYS))
    pids = pids_of(tmp_path, 0) + pids_of(tmp_path, 1)
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=DEADLINE)
    assert job.returncode == 128 + signal.SIGINT
    assert "corro: stopped by SIGINT" in err
    gone(pids)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-H", f"{OWN},no-such-host.invalid"), "host no-such-host.invalid: "),
        (("-H", f"{OWN},10.77.0.1"), "host 10.77.0.1: "),  # A key that is not known.
        (
            ("-H", f"{OWN},nokey"),
            "host nokey: root@10.77.0.2: Permission denied (publickey,password",
        ),
        (("-H", f"{OWN}:0"), "slots are 1 to 1024"),
        (("-H", f"{OWN}:-1"), "slots are 1 to 1024"),
        (("-H", f"{OWN},{OTHER}", "-np", "3"), "-np 3: the hosts have 2 slots"),
        (("-H", f"{OTHER},{OTHER}"), "is there twice"),
        (("-H", f"{OWN},{OTHER}", "--network", "10.0.0.0/40"), "--network 10.0.0.0/40: write it"),
        (("-H", f"{OWN},{OTHER}", "--network", "1.2.0.0/16"), "has no address in 1.2.0.0/16"),
        (("--hostfile", "none"), "--hostfile none: no such file"),
        (("--hostfile", "/dev/zero"), "--hostfile /dev/zero: larger than 16 MiB"),
        (("--hostfile", "/"), "--hostfile /: Is a directory"),
        (("-H", f"{OWN},{OTHER}", "--rsh", "no-such-shell"), "no-such-shell"),
    ],
)
def test_bad_hosts_are_one_line_before_any_rank_starts(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    if "10.77.0.1" in words:
        known = cluster.servers.directory / "known_hosts"
        before = known.read_text()
        known.write_text("\n".join(before.splitlines()[1:]) + "\n")
    code, out, err = cluster.run(tmp_path, *arguments, "touch", "started")
    if "10.77.0.1" in words:
        known.write_text(before)
    assert code == 2, err
    lines = err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("corro run: ")
    assert words in lines[0]
    assert not out
    assert not (tmp_path / "started").exists()


def test_a_program_or_corro_that_is_not_there_is_named_with_its_host(
    cluster: Cluster, tmp_path: Path
) -> None:
    shell = tmp_path / "rsh"
    shell.write_text('#!/bin/sh\nexec ssh "$1" "exec /nowhere/corro agent"\n')
    shell.chmod(0o755)
    code, _, err = cluster.run(tmp_path, "-H", f"{OWN},{OTHER}", "--rsh", shell, "true")
    assert code == 2
    assert f"corro run: host {OTHER}: no corro at " in err
    assert "install the same environment at the same place" in err


def test_a_script_that_is_not_there_is_named_with_its_host(
    cluster: Cluster, tmp_path: Path
) -> None:
    code, there = code_to_bring(tmp_path), tmp_path / "there"
    there.mkdir()
    shell = shell_with_own_folder(tmp_path, code, f"--bind {there}")
    status, _, err = cluster.run(
        code, "-H", f"{OWN},{OTHER}", "--rsh", shell, sys.executable, code / "main.py"
    )
    assert status == 2
    assert err == (
        f"corro run: host {OTHER}: {code}/main.py is not there;"
        " it has to be at the same place as here, or --sync brings it\n"
    )


def test_another_python_over_there_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """The same path leads to another version on the other host."""
    here, there = tmp_path / "bin", tmp_path / "there"
    for folder, version in ((here, "python3.12"), (there, "python3.11")):
        folder.mkdir()
        shutil.copy("/bin/sh", folder / version)
        (folder / "python").symlink_to(version)
    shell = shell_with_own_folder(tmp_path, here, f"--bind {there}")
    code, _, err = cluster.run(
        tmp_path, "-H", f"{OWN},{OTHER}", "--rsh", shell, here / "python", "-c", "touch started"
    )
    assert code == 2
    assert err == (
        f"corro run: host {OTHER}: the program is python3.11 there, python3.12 on {OWN};"
        " install the same environment\n"
    )
    assert not (tmp_path / "started").exists()


def test_hosts_of_two_users_meet(cluster: Cluster, tmp_path: Path) -> None:
    text = (
        "import getpass, corro, corro.numpy\ncorro.init()\n"
        "assert corro.numpy.allreduce(1.0, corro.Sum) == 3\nprint('I am', getpass.getuser())\n"
    )
    code, out, err = cluster.run(
        tmp_path, "-H", f"{OWN},guest@node2,guest@node3", "--show", "all", "--env", "HOME=/",
        sys.executable, "-c", text, cwd="/",
    )  # fmt: skip
    assert code == 0, err
    assert sorted(line.split("] ")[1] for line in out.splitlines()) == [
        "I am guest", "I am guest", "I am root",
    ]  # fmt: skip


def test_what_a_profile_prints_does_no_harm(cluster: Cluster, tmp_path: Path) -> None:
    shell = tmp_path / "rsh"
    shell.write_text('#!/bin/sh\nexec ssh "$1" "echo Welcome to this host; $2"\n')
    shell.chmod(0o755)
    code, out, err = cluster.run(tmp_path, "-H", f"{OTHER}", "--rsh", shell, "echo", "from there")
    assert (code, out) == (0, "from there\n"), err


def test_standard_input_reaches_rank_0_on_another_host(cluster: Cluster, tmp_path: Path) -> None:
    text = "a line\n" * 20_000  # More than a pipe holds.
    reads = ("python3", "-c", "import sys; print(len(sys.stdin.read()))")
    job = cluster.start(tmp_path, "-H", OTHER, *reads, stdin=subprocess.PIPE)
    out, err = job.communicate(text, timeout=DEADLINE)
    assert (job.returncode, out) == (0, f"{len(text)}\n"), err
    (tmp_path / "answers").write_text(text)
    with (tmp_path / "answers").open() as file:
        job = cluster.start(tmp_path, "-H", OTHER, *reads, stdin=file)
        out, err = job.communicate(timeout=DEADLINE)
    assert (job.returncode, out) == (0, f"{len(text)}\n"), err


def local_shell(directory: Path) -> Path:
    """For --rsh: every host is this one."""
    shell = directory / "rsh"
    shell.write_text('#!/bin/sh\nexec sh -c "$2"\n')
    shell.chmod(0o755)
    return shell


def test_many_agents_by_another_remote_shell(cluster: Cluster, tmp_path: Path) -> None:
    shell = local_shell(tmp_path)
    hosts = ",".join(f"node{i}:2" for i in range(8))
    text = (
        "import corro\nimport corro.numpy\ncorro.init()\n"
        "assert corro.numpy.allreduce(1.0, corro.Sum) == 16\nprint('done', corro.cross_size())\n"
    )
    code, out, err = cluster.run(
        tmp_path, "-H", hosts, "--rsh", shell, "--show", "all", script(tmp_path, text)
    )
    assert code == 0, err
    assert out.count("done") == 16, out


def test_agents_start_agents(cluster: Cluster, tmp_path: Path) -> None:
    text = (
        "import corro\nimport corro.numpy\ncorro.init()\n"
        "assert corro.numpy.allreduce(1.0, corro.Sum) == 7\nprint('done')\n"
    )
    hosts = ",".join(f"node{i}" for i in range(7))
    counted = tmp_path / "shells"
    shell = local_shell(tmp_path)
    shell.write_text(f'#!/bin/sh\necho $PPID >> {counted}\nexec sh -c "$2"\n')
    code, out, err = cluster.run(
        tmp_path, "--fan-out", 2, "-H", hosts, "--rsh", shell, "--show", "all",
        script(tmp_path, text),
    )  # fmt: skip
    assert code == 0, err
    assert out.count("done") == 7
    starters = counted.read_text().split()
    assert len(starters) == 7
    assert sorted(starters.count(one) for one in set(starters)) == [1, 2, 2, 2]


def test_hosts_that_an_agent_does_not_get_to_are_started_by_the_launcher(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The agent of the second host has no key to the third."""
    code, out, err = cluster.run(
        tmp_path, "--verbose", "--fan-out", 1, "-H", f"{OWN},{OTHER},{THIRD}", "--show", "all",
        "echo", "here",
    )  # fmt: skip
    assert code == 0, err
    assert out.count("here") == 3
    assert f"corro: {OTHER} does not get to {THIRD} (" in err
    assert "it is started from here" in err


@pytest.mark.parametrize("victim", ["agent", "branch"])
def test_an_agent_that_is_lost_takes_its_branches_with_it(
    cluster: Cluster, tmp_path: Path, victim: str
) -> None:
    job = cluster.start(
        tmp_path, "--fan-out", 1, "-H", "node0,node1,node2", "--rsh", local_shell(tmp_path),
        script(tmp_path, STAYS),
    )  # fmt: skip
    pids = [pids_of(tmp_path, rank) for rank in range(3)]
    number = {"agent": 0, "branch": 2}[victim]
    os.kill(agent_above(min(pids[number])), signal.SIGKILL)
    _, err = job.communicate(timeout=DEADLINE)
    assert job.returncode == 128 + signal.SIGKILL
    assert f"host node{number} was lost: " in err
    for some in pids:
        gone(some)


def test_a_launcher_that_is_cut_off_leaves_nothing_anywhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    hosts = f"{OWN},{OTHER},{THIRD}"
    job = cluster.start(tmp_path, "-H", hosts, script(tmp_path, STAYS))
    pids = [pid for rank in range(3) for pid in pids_of(tmp_path, rank)]
    cluster.hosts.cut(0)
    try:
        _, err = job.communicate(timeout=DEADLINE)
        gone(pids)
    finally:
        cluster.hosts.mend(0)
    assert job.returncode == 128 + signal.SIGKILL
    assert "was lost: nothing was heard of it for 10 s" in err


@needs_images
def test_fashion_mnist_learns_on_two_hosts_what_it_learns_on_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    images = some_images(tmp_path, 6400)
    example = (EXAMPLES / "fashion_mnist.py", "--data", images, "--epochs", "1")
    accuracies = []
    for where in (("-np", 4), ("-H", f"{OWN}:2,{OTHER}:2")):
        code, out, err = cluster.run(tmp_path, *where, sys.executable, *example)
        assert code == 0, err
        [line] = [line for line in out.splitlines() if "demo:" in line]
        facts = dict(re.findall(r"(\w+)=([\d.]+)", line))
        assert facts["ranks"] == "4"
        accuracies.append(float(facts["accuracy"]))
    assert accuracies[0] > 0.3
    assert accuracies[1] == pytest.approx(accuracies[0], abs=0.01)


# -- --sync ---------------------------------------------------------------------------------------


def shell_with_own_folder(directory: Path, code: Path, mount: str) -> Path:
    """For --rsh: ssh to a host that has a folder of its own at `code`."""
    shell = directory / "rsh"
    inside = f"mount {mount} {code} && $2"
    shell.write_text(f'#!/bin/sh\nexec ssh "$1" "unshare -m sh -c \'{inside}\'"\n')
    shell.chmod(0o755)
    return shell


def code_to_bring(directory: Path) -> Path:
    code = directory / "code"
    (code / "package").mkdir(parents=True)
    (code / "main.py").write_text("import package\nprint('value', package.VALUE)\n")
    (code / "package" / "__init__.py").write_text("VALUE = 1\n")
    (code / ".gitignore").write_text("*.pt\n/data/\n")
    (code / "weights.pt").write_text("large")
    (code / "data").mkdir()
    (code / "data" / "samples").write_text("many")
    return code


def test_sync_brings_the_code_and_a_second_time_what_has_changed(
    cluster: Cluster, tmp_path: Path
) -> None:
    code, there = code_to_bring(tmp_path), tmp_path / "there"
    there.mkdir()
    shell = shell_with_own_folder(tmp_path, code, f"--bind {there}")

    def run() -> tuple[int, str, str]:
        return cluster.run(
            code, "-H", f"{OWN},{OTHER}", "--rsh", shell, "--sync", ".", "--show", "all",
            sys.executable, "main.py",
        )  # fmt: skip

    status, out, err = run()
    assert status == 0, err
    assert sorted(out.splitlines()) == ["[rank 0] value 1", "[rank 1] value 1"]
    assert "corro: --sync .: 3 files, " in err
    assert sorted(path.name for path in there.iterdir() if path.name != "package") == [
        ".gitignore", "main.py",
    ]  # fmt: skip
    before = (there / "main.py").stat().st_mtime_ns
    # Of another length: for Python its compiled copy is current if length and second are the same.
    (code / "package" / "__init__.py").write_text("VALUE = 22\n")
    status, out, err = run()
    assert status == 0, err
    assert sorted(out.splitlines()) == ["[rank 0] value 22", "[rank 1] value 22"]
    assert "corro: --sync .: 1 file, " in err
    assert (there / "main.py").stat().st_mtime_ns == before, "what has not changed is not written"
    status, out, err = run()
    assert status == 0, err
    assert "--sync" not in err


def test_sync_keeps_what_is_private_private(cluster: Cluster, tmp_path: Path) -> None:
    code, there = code_to_bring(tmp_path), tmp_path / "there"
    there.mkdir()
    (code / "package").chmod(0o700)
    (code / "package" / "__init__.py").chmod(0o600)
    shell = shell_with_own_folder(tmp_path, code, f"--bind {there}")

    def modes() -> list[str]:
        status, _, err = cluster.run(
            code, "-H", f"{OWN},{OTHER}", "--rsh", shell, "--sync", ".", "true"
        )
        assert status == 0, err
        names = ("package", "package/__init__.py", "main.py")
        return [oct((there / name).stat().st_mode & 0o777) for name in names]

    (code / "main.py").chmod(0o644)
    assert modes() == ["0o700", "0o600", "0o644"]
    (code / "main.py").chmod(0o750)
    assert modes() == ["0o700", "0o600", "0o750"]


def test_a_quiet_sync_says_nothing(cluster: Cluster, tmp_path: Path) -> None:
    code, there = code_to_bring(tmp_path), tmp_path / "there"
    there.mkdir()
    shell = shell_with_own_folder(tmp_path, code, f"--bind {there}")
    status, _, err = cluster.run(
        code, "--quiet", "-H", f"{OWN},{OTHER}", "--rsh", shell, "--sync", ".", "true"
    )
    assert (status, err) == (0, "")
    assert (there / "main.py").exists()


def test_sync_writes_through_no_link(cluster: Cluster, tmp_path: Path) -> None:
    code, there, outside = code_to_bring(tmp_path), tmp_path / "there", tmp_path / "outside"
    there.mkdir()
    outside.mkdir()
    (there / "package").symlink_to(outside)
    shell = shell_with_own_folder(tmp_path, code, f"--bind {there}")
    status, _, err = cluster.run(
        code, "-H", f"{OWN},{OTHER}", "--rsh", shell, "--sync", ".", "touch", "started"
    )
    assert status == 2
    start = f"corro run: host {OTHER}: {code}/package is a link to {outside} there, a folder here"
    assert err.splitlines()[-1].startswith(start)
    assert not list(outside.iterdir())
    assert not (there / "started").exists()


@pytest.mark.parametrize("ended", ["launcher", "agent"])
def test_an_interrupted_sync_leaves_nothing(cluster: Cluster, tmp_path: Path, ended: str) -> None:
    code, there = code_to_bring(tmp_path), tmp_path / "there"
    there.mkdir()
    with (code / "package" / "large").open("wb") as large:
        large.truncate(1 << 30)
    shell = shell_with_own_folder(tmp_path, code, f"--bind {there}")
    sync = ("-H", f"{OWN},{OTHER}", "--rsh", shell, "--sync", ".", "true")
    job = cluster.start(code, *sync)
    files = there / "package"
    wait_until(lambda: any(path.stat().st_size for path in files.glob("*.corro-*")), "a part")
    if ended == "agent":
        [agent] = holders_of(files)
        os.kill(agent, signal.SIGKILL)
        assert job.wait(DEADLINE) == 2
        assert list(files.glob("*.corro-*")), "nobody was left to remove it"
        (code / "package" / "large").unlink()
        status, _, err = cluster.run(code, *sync)
        assert status == 0, err
    else:
        job.send_signal(signal.SIGINT)
        assert job.wait(DEADLINE) == 128 + signal.SIGINT
    job.communicate()
    wait_until(lambda: not list(files.glob("*.corro-*")), "it is removed")
    assert not (files / "large").exists()


def holders_of(folder: Path) -> set[int]:
    """Processes that have a part of a file of this folder open."""
    here = {path.stat().st_ino for path in folder.glob("*.corro-*")}
    holders = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            facts = descriptor.stat()
        except OSError:
            continue
        if facts.st_ino in here and facts.st_dev == folder.stat().st_dev:
            holders.add(int(descriptor.parts[2]))
    return holders


def test_sync_onto_a_full_disk_names_host_and_file(cluster: Cluster, tmp_path: Path) -> None:
    code = code_to_bring(tmp_path)
    (code / "large").write_bytes(bytes(3 << 20))
    shell = shell_with_own_folder(tmp_path, code, "-t tmpfs -o size=1m none")
    status, _, err = cluster.run(
        code, "-H", f"{OWN},{OTHER}", "--rsh", shell, "--sync", code, "touch", "started"
    )
    assert status == 2
    last = err.splitlines()[-1]
    assert last.startswith(f"corro run: host {OTHER}: ")
    assert f"{code}/large" in last
    assert "No space left on device" in last
    assert not (code / "started").exists()


def test_sync_of_no_folder_is_one_line(cluster: Cluster, tmp_path: Path) -> None:
    status, _, err = cluster.run(tmp_path, "-H", f"{OWN},{OTHER}", "--sync", "none", "true")
    assert (status, err) == (2, "corro run: --sync none: no such folder\n")


WAITS = """
import corro
corro.init()

def wait():
    open("go").close()

def elsewhere():
    wait()

elsewhere() if corro.rank() == 1 else wait()
"""


def test_stacks_of_all_hosts_are_seen_where_the_launcher_is(
    cluster: Cluster, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    job = cluster.start(tmp_path, "-H", f"{OWN}:2,{OTHER}", script(tmp_path, WAITS))
    heads: list[str] = []

    def settled() -> bool:
        command = [*cluster.hosts.inside(0), cluster.program, "stacks", str(job.pid)]
        seen = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        heads[:] = [line for line in seen.splitlines() if line.startswith("rank")]
        return seen.count("in wait") == 2

    wait_until(settled, "all ranks wait")
    with (tmp_path / "go").open("w"):
        _, err = job.communicate(timeout=DEADLINE)
    assert job.returncode == 0, err
    assert heads == [f"ranks 0,2 on {OWN}, {OTHER}", f"rank 1 on {OWN}"]


def test_an_elastic_job_goes_on_without_ranks_of_other_hosts(
    cluster: Cluster, tmp_path: Path
) -> None:
    """First one rank of a host, then all that another host has."""
    said = tmp_path / "said"
    said.mkdir()
    kills = json.dumps({"1": [5, "backward"], "3": [9, "step"]})
    code, out, err = cluster.run(
        tmp_path, "-H", f"{OWN}:1,{OTHER}:2,{THIRD}:1", "--min-np", "2", "--env", f"KILLS={kills}",
        sys.executable, Path(__file__).with_name("elastic_worker.py"), "steps", said, "16",
    )  # fmt: skip
    assert code == 0, out + err
    lines = [json.loads(line) for path in said.iterdir() for line in path.read_text().splitlines()]
    ends = [line for line in lines if "end" in line]
    assert [(end["size"], end["epoch"]) for end in ends] == [(2, 2), (2, 2)]
    assert ends[0]["digest"] == ends[1]["digest"]
    assert {line["step"] for line in lines if "step" in line} == set(range(16))


def communicating(cluster: Cluster, tmp_path: Path, hosts: str) -> subprocess.Popen[str]:
    """Starts an elastic job, whose ranks communicate in step 5 until another epoch begins."""
    (tmp_path / "said").mkdir()
    job = cluster.start(
        tmp_path, "-H", hosts, "--min-np", "2", "--env", "BUSY=5", sys.executable,
        Path(__file__).with_name("elastic_worker.py"), "parted", tmp_path / "said", "16",
    )  # fmt: skip
    wait_until((tmp_path / "gate").exists, "ranks communicate")
    return job


def ends_in(said: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for path in said.iterdir() for line in path.read_text().splitlines()]
    return [line for line in lines if "end" in line]


def test_an_elastic_job_goes_on_without_a_host_that_is_cut_off(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Engines have lost its ranks, and the launcher has heard nothing of it for three seconds."""
    said = tmp_path / "said"
    job = communicating(cluster, tmp_path, f"{OWN}:1,{OTHER}:1,{THIRD}:2")
    cluster.hosts.cut(2)
    cut_at = time.monotonic()
    try:
        wait_until(lambda: '"step": 5' in "".join(p.read_text() for p in said.iterdir()), "step 5")
        print(f"the others go on after {time.monotonic() - cut_at:.1f} s")
        out, err = job.communicate(timeout=DEADLINE)
    finally:
        cluster.hosts.mend(2)
    assert job.returncode == 0, out + err
    assert [end["size"] for end in ends_in(said)] == [2, 2]
    assert f"host {THIRD} was lost: nothing was heard of it for 3.0 s" in err


def test_of_two_hosts_that_lose_each_other_one_goes_on_with_the_third(
    cluster: Cluster, tmp_path: Path
) -> None:
    """All of them reach the launcher."""
    job = communicating(cluster, tmp_path, f"{OWN}:1,{OTHER}:1,{THIRD}:1")
    cluster.hosts.part(1, 2)
    try:
        out, err = job.communicate(timeout=DEADLINE)
    finally:
        cluster.hosts.join(1, 2)
    assert job.returncode == 0, out + err
    ends = ends_in(tmp_path / "said")
    assert [end["size"] for end in ends] == [2, 2]
    assert ends[0]["digest"] == ends[1]["digest"]
    assert re.search(r"rank \d has lost rank \d, and both live", err), err


def grown(cluster: Cluster, tmp_path: Path, *options: object) -> tuple[list[dict[str, Any]], str]:
    """Runs an elastic job whose ranks wait at step 5 for one that joins; returns what all said."""
    said = tmp_path / "said"
    said.mkdir()
    code, out, err = cluster.run(
        tmp_path, *options, "--env", "GATE=5", sys.executable,
        Path(__file__).with_name("elastic_worker.py"), "steps", said, "16",
    )  # fmt: skip
    assert code == 0, out + err
    files = [path.read_text().splitlines() for path in said.iterdir()]
    return [json.loads(line) for lines in files for line in lines], err


def check_grown(lines: list[dict[str, Any]], ranks: int) -> None:
    ends = [line for line in lines if "end" in line]
    assert [end["size"] for end in ends] == [ranks] * ranks
    assert len({end["digest"] for end in ends}) == 1
    sizes = [line["size"] for line in lines if line.get("step") == 5]
    assert sizes == [ranks - 1] * (ranks - 1)
    assert len([line for line in lines if line.get("step") == 6]) == ranks


def test_a_rank_joins_on_another_host(cluster: Cluster, tmp_path: Path) -> None:
    lines, _ = grown(cluster, tmp_path, "-np", 1, "--max-np", 2, "-H", f"{OWN}:1,{OTHER}:1")
    check_grown(lines, 2)


def test_a_host_that_is_discovered_gets_a_rank(cluster: Cluster, tmp_path: Path) -> None:
    """One that cannot be used harms nobody."""
    hosts = f"echo {OWN}:2; if test -e {tmp_path}/gate; then echo nowhere; echo {OTHER}:1; fi"
    lines, err = grown(
        cluster, tmp_path, "-np", 2, "--min-np", 1, "--max-np", 3, "--host-discovery", hosts
    )
    check_grown(lines, 3)
    assert f"host {OTHER} is there" in err
    assert "host nowhere cannot be used: " in err


def test_a_job_begins_without_a_host_that_cannot_be_used(cluster: Cluster, tmp_path: Path) -> None:
    """It is the first one that is listed, and usable later: the last rank joins on it."""
    hosts = f"echo away:1; echo {OWN}:1; echo {OTHER}:1"
    shell = tmp_path / "shell"
    shell.write_text(
        "#!/bin/sh\n"
        f"test $1 != away || test -e {tmp_path}/gate || {{ echo away is off >&2; exit 1; }}\n"
        "shift\n"
        'exec /bin/sh -c "$*"\n'
    )
    shell.chmod(0o755)
    lines, err = grown(
        cluster, tmp_path, "-np", 2, "--min-np", 2, "--max-np", 3, "--rsh", shell,
        "--host-discovery", hosts,
    )  # fmt: skip
    check_grown(lines, 3)
    assert err.count("corro: host away: away is off; the job begins without it") == 1
    assert "host away is there" in err


def test_a_job_does_not_begin_where_usable_hosts_have_too_few_slots(
    cluster: Cluster, tmp_path: Path
) -> None:
    code, out, err = cluster.run(
        tmp_path, "-np", 2, "--host-discovery", f"echo nowhere:1; echo {OWN}:1", "true"
    )
    assert (code, out) == (2, "")
    assert err.startswith("corro run: host nowhere: ")


def test_sync_brings_the_code_to_a_host_that_is_discovered(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Also where the job has begun on its own host alone."""
    code, there = code_to_bring(tmp_path), tmp_path / "there"
    there.mkdir()
    shell = shell_with_own_folder(tmp_path, code, f"--bind {there}")
    hosts = f"echo {OWN}:1; if test -e {tmp_path}/gate; then echo {OTHER}:1; fi"
    lines, _ = grown(
        cluster, tmp_path, "-np", 1, "--min-np", 1, "--max-np", 2, "--host-discovery", hosts,
        "--rsh", shell, "--sync", code,
    )  # fmt: skip
    check_grown(lines, 2)
    assert (there / "package" / "__init__.py").read_text() == "VALUE = 1\n"


def test_a_discovered_host_that_is_refused_gets_no_rank(cluster: Cluster, tmp_path: Path) -> None:
    """It is asked again later, and its agent does not stay: here its script is missing there."""
    work = tmp_path / "work"
    work.mkdir()
    shell = tmp_path / "shell"
    hide = f"mount -t tmpfs none {work} && echo >> {tmp_path}/tried && "
    asked = tmp_path / "asked"
    hosts = f"echo {OWN}:1; if test -e {asked}; then echo hidden:1; fi; touch {asked}"
    shell.write_text(f"#!/bin/sh\nshift\nexec unshare -m sh -c '{hide}'\"$*\"\n")
    shell.chmod(0o755)
    code, out, err = cluster.run(
        tmp_path, "-np", 1, "--max-np", 2, "--rsh", shell, "--host-discovery", hosts,
        script(work, "import time; time.sleep(9)"), cwd=work,
    )  # fmt: skip
    assert code == 0, out + err
    assert f"host hidden cannot be used: {work}/script.py is not there" in err
    assert "does not start" not in err
    assert len((tmp_path / "tried").read_text().splitlines()) == 2


def test_the_launchers_own_host_comes_later(cluster: Cluster, tmp_path: Path) -> None:
    """Under one of its names; no remote shell is needed for it."""
    hosts = f"echo {OTHER}:1; if test -e {tmp_path}/gate; then echo localhost:1; fi"
    options = ("-np", 1, "--min-np", 1, "--max-np", 2, "--host-discovery", hosts)
    lines, err = grown(cluster, tmp_path, *options)
    check_grown(lines, 2)
    assert "host localhost is there" in err
