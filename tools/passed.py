"""Remembers which suites have passed, and what they read, so that nobody waits for them twice.

A suite's inputs are what was opened in the tree while it ran: its program and libraries, modules,
data, documents, and the names in folders that it listed. inotify tells of them, whichever process
opened them, so no table has to name them and none can be forgotten. Two suites side by side count
each other's inputs as well: that runs a suite too often, never too seldom. A suite that compiles
says what it reads (`reads`), since a compiler leaves alone what it finds built.

What lies outside of the tree is one digest for all suites, the facts: Debian's packages, the
machine, what this process may do, and the environment variables that tests look at. A suite of
Python adds what its environment has installed.

The memory is a folder outside of the tree ($CORRO_PASSED, or ~/.cache/corro/passed): one file for
each suite, command and facts. A file holds the last few sets of inputs that passed, each with its
digests. CI_FULL=1 finds nothing in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import platform
import re
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Sets of inputs that a suite's file keeps: branches that are worked on in turn.
MOST_PASSES = 8
# What tests are told by the environment.
TOLD = re.compile(
    r"(CORRO|HOROVOD|OMP|MKL|TORCH|CUDA|NCCL|PYTHON|PYTEST|GTEST|ASAN|TSAN|UBSAN|LSAN|LD|LC)_?"
    r"|(TMPDIR|LANG|LANGUAGE|NO_COLOR)$"
)
# Of the kernel, what tests look at before they skip.
SETTINGS = (
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "/sys/fs/cgroup/cgroup.controllers",
)
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # Its size is asked for, and nothing written.
# No inputs: what is made, and what tools keep for themselves.
MADE = {".git", "build", "dist", "corro-runs", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
PYTHON_CACHE = "__pycache__"

Digest = str


def digest_of(*parts: bytes) -> Digest:
    """Where one part ends and the next begins counts."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def is_told(name: str) -> bool:
    """Whether tests look at this variable of the environment."""
    return TOLD.match(name) is not None and name != "CORRO_PASSED"


def is_listed(name: str) -> bool:
    return name not in MADE and name != PYTHON_CACHE and not name.startswith(".venv")


def source_of(folder: str, name: str) -> str:
    """The file that is meant by an opened one: Python opens a module's cache, not the module."""
    if folder.rsplit("/", 1)[-1] == PYTHON_CACHE:
        return os.path.join(os.path.dirname(folder), name.split(".", 1)[0] + ".py")
    return os.path.join(folder, name)


class Digests:
    """Digests of files and of folders' listings, each made once. Paths are relative to the root."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._known: dict[str, Digest] = {}
        self._lock = threading.Lock()

    def of(self, path: str) -> Digest:
        """A path that ends in a slash is a folder, of which the names count."""
        with self._lock:
            if path not in self._known:
                self._known[path] = self._make(path)
            return self._known[path]

    def is_younger(self, path: str, time_ns: int) -> bool:
        """Whether the file was written after a time of time.time_ns(); of a folder, a file in it,
        since Python puts its caches into folders that it reads."""
        at = self.root / path
        try:
            if not path.endswith("/"):
                return at.stat().st_mtime_ns > time_ns
            files = [each for each in os.scandir(at) if each.is_file(follow_symlinks=False)]
            return any(each.stat(follow_symlinks=False).st_ctime_ns > time_ns for each in files)
        except OSError:
            return False

    def _make(self, path: str) -> Digest:
        at = self.root / path
        try:
            if path.endswith("/"):
                names = sorted(filter(is_listed, os.listdir(at)))
                return digest_of(*(os.fsencode(name) for name in names))
            return digest_of(at.read_bytes())
        except OSError:
            return "none"


@dataclass(frozen=True)
class Suite:
    """What is run and remembered as a whole."""

    name: str
    command: tuple[str, ...]
    reads: tuple[str, ...] = ()  # Files and folders that count whether they are opened or not.
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = ROOT  # Where the command runs.
    venv: str = ""  # Whose distributions count: a folder of the tree.
    timeout: float = 3600
    alone: bool = False
    kind: str = ""  # Only suites of one kind run side by side, since they share their inputs.

    def inputs_of(self, opened: Iterable[str]) -> list[str]:
        """What of all that was opened can be an input: not the test programs that ran beside."""
        words = {os.path.relpath(word, ROOT) for word in self.command}
        return sorted(
            path for path in opened if not path.endswith(("_test", "_fuzz")) or path in words
        )


def below(root: Path, path: str) -> Iterator[str]:
    """The files below a path, and the folders, whose listings count; a file is itself."""
    at = root / path
    if at.is_file():
        yield path
        return
    for folder, folders, files in os.walk(at):
        folders[:] = filter(is_listed, folders)
        here = os.path.relpath(folder, root)
        yield here + "/"
        yield from (os.path.join(here, name) for name in files)


def debian_packages() -> bytes:
    try:
        return subprocess.run(["dpkg-query", "-W"], capture_output=True, check=True).stdout
    except OSError:
        return b""


def processor() -> str:
    text = Path("/proc/cpuinfo").read_text()
    wanted = re.findall(r"^(?:model name|flags|Features)\s*:.*$", text, re.MULTILINE)
    return "\n".join(sorted(set(wanted)))


def text_of(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return "none"


def machine() -> Iterator[str]:
    """What the machine is, and what this process may do there: tests skip what they cannot do."""
    yield f"{platform.release()} {os.cpu_count()} {os.geteuid()} {sys.version}"
    yield processor()
    yield from sorted(str(path) for path in Path("/dev").glob("nvidia*"))
    rights = r"^(?:CapEff|NoNewPrivs|Seccomp):.*$"
    yield from re.findall(rights, text_of("/proc/self/status"), re.MULTILINE)
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_MEMLOCK):
        yield f"limit {limit} {resource.getrlimit(limit)}"
    with contextlib.suppress(OSError):
        memory = os.statvfs(SHARED_MEMORY)
        yield f"{SHARED_MEMORY} {memory.f_blocks * memory.f_frsize}"
    loopback = "0" * 31 + "1"
    yield f"IPv6 {loopback in text_of('/proc/net/if_inet6')}"
    yield f"cgroups {os.access('/sys/fs/cgroup', os.W_OK)}"
    for path in SETTINGS:
        yield f"{path} {text_of(path)}"


def facts(environment: Mapping[str, str]) -> Digest:
    """One digest of what lies outside of the tree."""
    told = sorted(f"{name}={value}" for name, value in environment.items() if is_told(name))
    return digest_of(debian_packages(), "\n".join(told).encode(), "\n".join(machine()).encode())


def distributions(venv: Path) -> list[str]:
    """What Python has installed there, but for what is ours: that is watched file by file."""
    found = venv.glob("lib/python*/site-packages/*.dist-info")
    return sorted(path.name for path in found if not path.name.startswith("corro"))


def memory_folder() -> Path:
    return Path(os.environ.get("CORRO_PASSED") or Path.home() / ".cache/corro/passed")


def runs_all() -> bool:
    """Whether nothing that passed before is to be left out."""
    return os.environ.get("CI_FULL", "") not in ("", "0")


class Memory:
    """What has passed. Thread-safe."""

    def __init__(self, folder: Path, around: Digest, digests: Digests, full: bool = False) -> None:
        self._folder = folder
        self._around = around
        self._digests = digests
        self._full = full
        self._lock = threading.Lock()

    def _file(self, suite: Suite) -> Path:
        told = sorted(f"{name}={value}" for name, value in suite.environment.items())
        root = str(self._digests.root)
        installed = distributions(self._digests.root / suite.venv) if suite.venv else []
        words = [word.replace(root, "") for word in (suite.name, *suite.command, *told, *installed)]
        return self._folder / digest_of(self._around.encode(), *map(os.fsencode, words))

    def _passes(self, suite: Suite) -> list[dict[str, dict[str, str]]]:
        try:
            passes = json.loads(self._file(suite).read_text())
        except (OSError, ValueError):
            return []
        return passes if isinstance(passes, list) else []

    def find(self, suite: Suite) -> dict[str, str] | None:
        """What was noted when the suite passed with inputs that are all as they were."""
        if self._full:
            return None
        declared = set(self._declared(suite))
        for each in self._passes(suite):
            inputs = each["inputs"]
            same = all(self._digests.of(path) == digest for path, digest in inputs.items())
            if same and declared <= inputs.keys():
                return each["note"]
        return None

    def add(
        self, suite: Suite, opened: Iterable[str], started_ns: int, note: dict[str, str]
    ) -> None:
        """Remembers that the suite has passed, unless an input was written since it started: then
        nobody knows which of its contents the suite has read."""
        inputs = {path: self._digests.of(path) for path in (*opened, *self._declared(suite))}
        if any(self._digests.is_younger(path, started_ns) for path in inputs):
            return
        with self._lock:
            passes = [each for each in self._passes(suite) if each["inputs"] != inputs]
            passes = [{"inputs": inputs, "note": note}, *passes][:MOST_PASSES]
            self._folder.mkdir(parents=True, exist_ok=True)
            new = self._file(suite).with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps(passes))
            new.replace(self._file(suite))

    def _declared(self, suite: Suite) -> Iterator[str]:
        for path in suite.reads:
            yield from below(self._digests.root, path)


IN_OPEN, IN_ISDIR, IN_Q_OVERFLOW = 0x20, 0x40000000, 0x4000
EVENT = struct.Struct("iIII")


class Watch:
    """Tells which files of the tree are opened, and which folders listed, by any process.

    Between start() and stop() a set collects paths; several may. A set is given up, as None, if the
    kernel lost events or a folder could not be watched.
    """

    def __init__(self, root: Path, folders: Iterable[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._root = root
        self._folders: dict[int, str] = {}
        self._open: list[set[str]] = []
        self._whole = self._fd >= 0
        self._lock = threading.Lock()
        for folder in folders:
            wd = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), IN_OPEN)
            self._whole = self._whole and wd >= 0
            self._folders[wd] = os.path.relpath(folder, root)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def start(self) -> set[str]:
        with self._lock:
            self._drain()
            opened: set[str] = set()
            self._open.append(opened)
            return opened

    def stop(self, opened: set[str]) -> set[str] | None:
        with self._lock:
            self._drain()
            self._open = [each for each in self._open if each is not opened]
            return set(opened) if self._whole else None

    def drain(self) -> None:
        """Empties the kernel's queue, which holds some thousand events."""
        with self._lock:
            self._drain()

    def _drain(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:  # Nothing more has happened.
                return
            at = 0
            while at < len(data):
                wd, mask, _, length = EVENT.unpack_from(data, at)
                name = data[at + EVENT.size : at + EVENT.size + length].rstrip(b"\0")
                at += EVENT.size + length
                self._note(wd, mask, os.fsdecode(name))

    def _note(self, wd: int, mask: int, name: str) -> None:
        if mask & IN_Q_OVERFLOW:
            self._whole = False
        elif mask & IN_OPEN and wd in self._folders:
            folder = self._folders[wd]
            if not name:
                # What is built is known by its files: others come and go beside them.
                if folder.startswith("build/"):
                    return
                path = folder + "/"
            elif mask & IN_ISDIR:
                return  # The folder's own watch tells of it.
            else:
                path = os.path.normpath(source_of(folder, name))
            for opened in self._open:
                opened.add(path)


def folders_of(top: Path, leave_out: Callable[[str], bool]) -> Iterator[Path]:
    for folder, folders, _ in os.walk(top):
        folders[:] = [name for name in folders if not leave_out(name)]
        yield Path(folder)


def watched_folders(root: Path) -> Iterator[Path]:
    """Every folder of the tree that holds sources, and those where corro is installed or built."""
    for folder in folders_of(root, lambda name: not is_listed(name)):
        yield folder
        if (folder / PYTHON_CACHE).is_dir():
            yield folder / PYTHON_CACHE
    for venv in sorted(root.glob(".venv*")):
        tops = [venv / "bin", venv / "libexec"]
        for site in venv.glob("lib/python*/site-packages"):
            tops += [site / "corro", site / "horovod", site / "corro_horovod"]
        for top in tops:
            yield from folders_of(top, lambda _: False)
    for part in ("bin", "libexec", "pod", "cpp"):
        for built in sorted(root.glob(f"build/*/{part}")):
            yield from folders_of(built, lambda name: name == "CMakeFiles")
