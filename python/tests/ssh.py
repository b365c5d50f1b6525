"""Real sshd on hosts that a test has made, and an ssh that knows the way.

Host 0 is `node1` for ssh, host 1 `node2`, and so on; `guest@` is a user without rights, and nobody
has a key for `nokey`, which is host 1. Nothing of the user's is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import netns

SSHD = "/usr/sbin/sshd"
OTHER_PORT = 2222


def refusal() -> str:
    """Says why there is no sshd here, or nothing."""
    if not Path(SSHD).exists():
        return "no sshd: install openssh-server"
    return netns.refusal()


class Servers:
    """An sshd on each host, which lets in whoever has the key in `directory`; it listens at
    OTHER_PORT, too."""

    def __init__(self, hosts: netns.Hosts, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, exist_ok=True)
        for name in ("host_key", "user_key"):
            command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name))
            subprocess.run(command, check=True)
        # Every user has to read it.
        self.public = Path(tempfile.mkdtemp())
        self.public.chmod(0o755)
        shutil.copy(directory / "user_key.pub", self.public / "authorized_keys")
        host_key = (directory / "host_key.pub").read_text().split()[:2]
        count = len(hosts.names)
        known = [f"{hosts.address(host)} {' '.join(host_key)}" for host in range(count)]
        (directory / "known_hosts").write_text("\n".join(known) + "\n")
        self._write_configurations(hosts)
        Path("/run/sshd").mkdir(exist_ok=True)
        self.processes = [self._start(hosts, host) for host in range(len(hosts.names))]

    def _write_configurations(self, hosts: netns.Hosts) -> None:
        here = self.directory
        (here / "sshd_config").write_text(
            f"Port 22\nPort {OTHER_PORT}\nHostKey {here}/host_key\n"
            f"AuthorizedKeysFile {self.public}/authorized_keys\n"
            "PidFile none\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication yes\nPermitRootLogin yes\n"
            "UseDNS no\n"
        )
        names = [
            f"Host node{host + 1}\n  HostName {hosts.address(host)}\n"
            for host in range(len(hosts.names))
        ]
        (here / "ssh_config").write_text(
            "".join(names) + f"Host nokey\n  HostName {hosts.address(1)}\n  IdentityFile none\n"
            f"Host * !nokey\n  IdentityFile {here}/user_key\n"
            f"Host *\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {here}/known_hosts\n  StrictHostKeyChecking yes\n"
        )
        users = Path("/etc/passwd").read_text()
        (here / "passwd").write_text(users + "guest:x:65530:65530::/:/bin/sh\n")
        # ssh looks into the user's home whatever $HOME says, so the user's own ssh is this one.
        program = here / "bin" / "ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {here}/ssh_config "$@"\n')
        program.chmod(0o755)

    def _start(self, hosts: netns.Hosts, host: int) -> subprocess.Popen[bytes]:
        # With a user of its own.
        users = f"mount --bind {self.directory}/passwd /etc/passwd"
        start = f"{users} && exec {SSHD} -D -e -f {self.directory}/sshd_config"
        command = [*hosts.inside(host), "unshare", "-m", "sh", "-c", start]
        log = (self.directory / f"sshd-{host}.log").open("wb")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + 30
        probe = [*hosts.inside(host), "ss", "-Hltn", "sport", "=", ":22"]
        while not subprocess.run(probe, check=True, capture_output=True).stdout:
            assert process.poll() is None, (self.directory / f"sshd-{host}.log").read_text()
            assert time.monotonic() < end, "sshd does not listen"
            time.sleep(0.02)
        return process

    def know(self, *names: str) -> None:
        """Makes these names of hosts known to whoever calls ssh."""
        known = self.directory / "known_hosts"
        key = known.read_text().splitlines()[0].partition(" ")[2]
        with known.open("a") as file:
            file.writelines(f"{name} {key}\n" for name in names)

    def environment(self) -> dict[str, str]:
        """For whoever calls ssh."""
        return os.environ | {"PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}"}

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
            process.wait()
        shutil.rmtree(self.public)
