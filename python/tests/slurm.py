"""A Slurm of the test's own: a controller and a daemon on each host, from Debian's packages.

Nothing of the machine's is touched but /etc/netns, by which hosts know each other's names."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import netns

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo")
NAMES_OF_HOSTS = Path("/etc/netns")


def refusal() -> str:
    """Says why there can be no Slurm here, or nothing."""
    path = f"/usr/sbin:{os.environ['PATH']}"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"no {', '.join(missing)}: install slurmctld slurmd slurm-client munge"
    if os.geteuid() != 0:
        return "not root: a Slurm of the test's own starts processes as other users"
    return netns.refusal()


class Slurm:
    """Nodes n1, n2, ... on these hosts, with so many processors each; the controller is on n1."""

    def __init__(self, hosts: netns.Hosts, directory: Path, processors: int = 2) -> None:
        self.hosts = hosts
        self.directory = directory
        directory.mkdir(mode=0o755)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.made: list[Path] = []
        self.names = [f"n{host + 1}" for host in range(len(hosts.names))]
        self._name_hosts()
        self._configure(processors)
        try:
            self._start_all()
        except BaseException:
            self.end()
            raise

    def _name_hosts(self) -> None:
        """`ip netns exec` shows these files in the place of those in /etc."""
        text = "127.0.0.1 localhost\n"
        for host, name in enumerate(self.names):
            text += f"{self.hosts.address(host)} {name}\n"
        for name in self.hosts.names:
            folder = NAMES_OF_HOSTS / name
            folder.mkdir(parents=True)
            self.made.append(folder)
            (folder / "hosts").write_text(text)

    def _configure(self, processors: int) -> None:
        here = self.directory
        (here / "munge.key").write_bytes(os.urandom(1024))
        (here / "munge.key").chmod(0o600)
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": f"{socket.gethostname()}({self.hosts.address(0)})",
            "SlurmUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={here}/munge.sock",
            "CredType": "cred/munge",
            "StateSaveLocation": f"{here}/state",
            "SlurmdSpoolDir": f"{here}/spool-%n",
            "SlurmctldPidFile": f"{here}/slurmctld.pid",
            "SlurmdPidFile": f"{here}/slurmd-%n.pid",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "SchedulerType": "sched/backfill",
            "MpiDefault": "none",
            "JobAcctGatherType": "jobacct_gather/none",
            "ReturnToService": "2",
            "KillWait": "2",
            "SlurmdParameters": "config_overrides",
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        for host, name in enumerate(self.names):
            address = self.hosts.address(host)
            text += f"NodeName={name} NodeAddr={address} CPUs={processors} State=UNKNOWN\n"
        text += f"PartitionName=all Nodes={','.join(self.names)} Default=YES MaxTime=10\n"
        (here / "slurm.conf").write_text(text)
        (here / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for folder in ("state", *(f"spool-{name}" for name in self.names)):
            (here / folder).mkdir()

    def _start_all(self) -> None:
        here = self.directory
        options = ("key-file", "munge.key"), ("socket", "munge.sock"), ("pid-file", "munge.pid")
        files = [f"--{option}={here}/{file}" for option, file in options]
        logs = [f"--log-file={here}/munge.log", f"--seed-file={here}/munge.seed"]
        self._start("munged", ["/usr/sbin/munged", "--force", "--foreground", *files, *logs])
        self._wait("munged", (here / "munge.sock").exists)
        self._start("slurmctld", [*self.hosts.inside(0), "/usr/sbin/slurmctld", "-D"])
        for host, name in enumerate(self.names):
            daemon = [*self.hosts.inside(host), "/usr/sbin/slurmd", "-D", "-N", name]
            self._start(f"slurmd-{name}", daemon)
        self._wait("slurmctld", self._is_idle)

    def _start(self, name: str, command: list[str]) -> None:
        with (self.directory / f"{name}.out").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    command,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _wait(self, name: str, done: object) -> None:
        end = time.monotonic() + 60
        while not done():  # type: ignore[operator]
            late = time.monotonic() > end or any(p.poll() is not None for p in self.processes)
            logs = sorted(self.directory.glob("*.out"))
            assert not late, f"{name}: " + "\n".join(log.read_text()[-1500:] for log in logs)
            time.sleep(0.1)

    def _is_idle(self) -> bool:
        command = [*self.hosts.inside(0), "sinfo", "-h", "-o", "%T %D"]
        said = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, check=False
        )
        return said.stdout.split() == ["idle", str(len(self.names))]

    def variables(self) -> dict[str, str]:
        """For whoever talks to this Slurm."""
        return {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def _environment(self) -> dict[str, str]:
        return os.environ | self.variables()

    def end(self) -> None:
        """Ends the jobs and the daemons."""
        if len(self.processes) > 1:
            cancel = [*self.hosts.inside(0), "scancel", "--user=root", "--full"]
            subprocess.run(cancel, env=self._environment(), check=False, capture_output=True)
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for folder in self.made:
            shutil.rmtree(folder, ignore_errors=True)
        if NAMES_OF_HOSTS.is_dir() and not list(NAMES_OF_HOSTS.iterdir()):
            NAMES_OF_HOSTS.rmdir()
