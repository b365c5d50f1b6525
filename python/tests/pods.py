"""A job's pods on this machine: a head and agents as processes, with keys from files."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from etcd_server import free_ports

HERE = Path(__file__).resolve().parents[2]
JOB = "mnist"
PATIENCE = 60.0


def program() -> Path | None:
    """The program for pods: CORRO_POD_PROGRAM, or what was built here. That of a sanitizer's build
    is no static program."""
    if given := os.environ.get("CORRO_POD_PROGRAM"):
        return Path(given)
    built = [HERE / "build" / preset / "pod/corro" for preset in ("release", "dev")]
    return next((path for path in built if path.exists()), None)


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Waits until it is true, and returns it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not in {PATIENCE} s: {what}")


def derive(part: bytes, uid: str, member: str) -> str:
    """A member's key, as docs/wire.md says."""
    return hmac.new(part, f"corro member key 1 {uid} {member}".encode(), hashlib.sha256).hexdigest()


class Pods:
    """One job. Everything that was started is ended by close()."""

    def __init__(
        self,
        folder: Path,
        kind: str = "MPIJob",
        workers: int = 0,
        slots: int = 1,
        limits: tuple[int, int] | None = None,
        sync: Path | None = None,
    ) -> None:
        """Makes the folders, and starts nothing.

        `limits`: fewest and most workers of an elastic CorroJob. `sync`: a folder that is brought,
        which head and workers have in common here.
        """
        self.folder = folder
        self.uid = secrets.token_hex(8)
        self.part = secrets.token_bytes(32)
        self.kind, self.workers, self.slots = kind, workers, slots
        self.limits: dict[str, str] = {}
        if limits:
            self.limits = {
                "CORRO_SLOTS": str(slots),
                "CORRO_MIN_WORKERS": str(limits[0]),
                "CORRO_MAX_WORKERS": str(limits[1]),
            }
        self.sync = sync
        self.address = ""
        self.patience: dict[str, str] = {}
        self.started: list[subprocess.Popen[bytes]] = []
        self.bin = folder / "bin"
        self.bin.mkdir()
        built = program()
        assert built is not None
        subprocess.run([built, "install", self.bin], check=True)
        self.token("head", self.part.hex())

    def token(self, member: str, key: str) -> Path:
        """A folder with this key, as the kubelet would mount one."""
        folder = self.folder / f"token-{member}-{secrets.token_hex(4)}"
        folder.mkdir()
        file = folder / "key"
        file.touch(mode=0o600)
        file.write_text(key)
        return folder

    def environment(self, member: str, generation: int = 0) -> dict[str, str]:
        key = self.part.hex() if member == "head" else derive(self.part, self.uid, member)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CORRO_")}
        return (
            clean
            | {
                "CORRO_JOB": JOB,
                "CORRO_JOB_UID": self.uid,
                "CORRO_MEMBER": member,
                "CORRO_MEMBER_GENERATION": str(generation),
                "CORRO_KIND": self.kind,
                "CORRO_HEAD": self.address,
                "CORRO_TOKEN": str(self.token(member, key)),
                "CORRO_TERMINATION_LOG": str(self.log(member)),
                "TMPDIR": str(self.folder),
            }
            | self.limits
        )

    def bring_folder(self) -> None:
        """What `corro receive` does last: from then on the head does something."""
        (self.folder / f"corro-{self.uid}-folder").touch()

    def log(self, member: str) -> Path:
        file = self.folder / f"termination-{member}"
        file.touch()
        return file

    def start(
        self, *words: object, env: dict[str, str], inside: Sequence[str] = (), **popen: Any
    ) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = cast(Any, subprocess.Popen)(
            [*inside, str(self.bin / "corro"), *map(str, words)],
            env=env,
            **({"stdin": subprocess.DEVNULL, "start_new_session": True} | popen),
        )
        self.started.append(process)
        return process

    def nobody_listens(self, patience: int) -> None:
        """Has agents dial an address where there is no head, for so many seconds."""
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.patience = {"CORRO_HEAD_PATIENCE": str(patience)}

    def head(
        self,
        port: int = 0,
        inside: Sequence[str] = (),
        host: str = "127.0.0.1",
        *,
        listens: bool = True,
    ) -> subprocess.Popen[bytes]:
        """Starts the head; at the port that the one before had, if there was one.

        `listens`: it is waited for that; one whose job is over ends before.
        """
        log = self.folder / f"head-{len(self.started)}.log"
        if self.address and not port:
            port = int(self.address.rsplit(":", 1)[1])
        more = {"CORRO_SLOTS": str(self.slots)}
        if self.limits:
            (self.folder / "record").mkdir(exist_ok=True)
            more["CORRO_STORE"] = str(self.folder / "record")
        if self.sync:
            more["CORRO_SYNC"] = str(self.sync)
        if self.workers:
            more["CORRO_WORKERS"] = str(self.workers)
        with log.open("wb") as output:
            process = self.start(
                "head",
                "--listen",
                f"{host}:{port}",
                inside=inside,
                env=self.environment("head") | more | {"CORRO_HEAD": ""},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.head_log = log
        if not listens:
            return process
        said = wait_for(
            lambda: re.search(r"(?:listening at|agents dial) (\S+)", log.read_text()),
            "the head listens",
        )
        self.address = said.group(1)
        return process

    def agent(
        self,
        member: str,
        *command: object,
        generation: int = 0,
        inside: Sequence[str] = (),
        hostfile: Path | None = None,
        **popen: Any,
    ) -> subprocess.Popen[bytes]:
        """`inside`: the beginning of a command line that runs it in a cgroup."""
        words = ["agent", "--pod", *(["--", *command] if command else [])]
        env = self.environment(member, generation) | self.patience
        if hostfile:
            env["CORRO_HOSTFILE"] = str(hostfile)
        return self.start(*words, env=env, inside=inside, **popen)

    def rsh(
        self,
        host: str,
        *command: object,
        member: str = "launcher",
        options: Sequence[str] = (),
        env: dict[str, str] | None = None,
        **popen: Any,
    ) -> subprocess.Popen[bytes]:
        return self.start(
            "rsh",
            *options,
            host,
            *command,
            env=env or self.environment(member),
            **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | popen),
        )

    def run(self, host: str, *command: object, **more: Any) -> tuple[int, bytes, bytes]:
        """Runs a command there to its end."""
        data = more.pop("data", None)
        if data is not None:
            more["stdin"] = subprocess.PIPE
        process = self.rsh(host, *command, **more)
        out, err = process.communicate(data, timeout=PATIENCE)
        return process.returncode, out, err

    def wait_until_there(self, member: str, generation: int = 0) -> None:
        words = f"{member}, generation {generation}, is there"
        wait_for(lambda: words in self.head_log.read_text(), words)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                    process.kill()
            process.wait(timeout=PATIENCE)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
