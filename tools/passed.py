"""Remembers which suites have passed, and what they read, so that nobody waits for them twice.

A suite's inputs are what was opened in the tree while it ran: its program and libraries, modules,
data, documents, and the names in folders that it listed. inotify tells of them, whichever process
opened them, so no table has to name them and none can be forgotten. Two suites side by side count
each other's inputs as well: that runs a suite too often, never too seldom. A suite that compiles
says what it reads (`reads`), since a compiler leaves alone what it finds built; so does one that
asks whether a file is there, which opens nothing.

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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What was noted under another number counts no more: its inputs were found in another way.
VERSION = b"2"
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
MADE = {
    ".git",
    "build",
    "dist",
    "corro-runs",
    "pictures",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}
PYTHON_CACHE = "__pycache__"
PROGRAMS = ("_test", "_fuzz")  # How the programs that CMake makes of tests end.

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


def file_clock_ns() -> int:
    """Now, by the clock that stamps files: it ticks some milliseconds behind the other one."""
    clock_realtime_coarse = 5
    return time.clock_gettime_ns(clock_realtime_coarse)


def wait_for_tick() -> None:
    """Waits until file_clock_ns() is later than the times of all that has changed. Kernels stamp
    some of that by the exact clock, so one tick is not enough."""
    now = time.time_ns()
    while file_clock_ns() <= now:
        time.sleep(0.001)


class Digests:
    """Digests of files and of folders' listings. Paths are relative to the root; one that ends in a
    slash is a folder, of which the names count.

    A digest is made again if the file is another one by its times, size and inode. What was written
    within the clock's last tick may be written once more without a difference, so its digest is not
    kept.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._listings: dict[str, Digest] = {}
        self._known: dict[str, tuple[tuple[int, ...], Digest]] = {}
        self._lock = threading.Lock()

    def of(self, path: str) -> Digest:
        now = file_clock_ns()
        try:
            at = (self.root / path).stat()
        except OSError:
            return "none"
        state = (at.st_mtime_ns, at.st_ctime_ns, at.st_size, at.st_ino)
        with self._lock:
            known = self._known.get(path)
        if known and known[0] == state:
            return known[1]
        digest = self._make(path)
        if at.st_ctime_ns < now:
            with self._lock:
                self._known[path] = state, digest
        return digest

    def keep_listings(self, folders: Iterable[str]) -> None:
        """Keeps which names these folders hold now, before any suite starts."""
        self._listings = {path: self._make(path) for path in folders}

    def is_younger(self, path: str, time_ns: int) -> bool:
        """Whether the file or folder was changed at a time of file_clock_ns() or after. A file that
        is gone may have gone just now, if its folder has changed. The time of the change counts,
        not that of the contents, which `touch` and `mv` keep or set. A folder that holds the names
        that were kept is not younger: what came, or came and went, counts in no listing."""
        at = self.root / path
        if path.endswith("/") and self._listings.get(path) == self.of(path):
            return False
        for each in (at, at.parent):
            with contextlib.suppress(OSError):
                return each.stat().st_ctime_ns >= time_ns
        return True

    def _make(self, path: str) -> Digest:
        at = self.root / path
        try:
            if path.endswith("/"):
                names = sorted(filter(is_listed, os.listdir(at)))
                return digest_of(*(os.fsencode(name) for name in names))
            return digest_of(at.read_bytes())
        except OSError:
            return "none"


def area_of(path: str) -> str:
    """What a text has to name so that somebody reads this path: see Suite.inputs_of()."""
    parts = path.split("/")
    if parts[0] == "build" and len(parts) > 2:
        return parts[1]
    return "cpp" if parts[0] == "cpp" and parts[1] else ""


def is_named(text: bytes, area: str) -> bool:
    word = re.escape(area.encode())
    return re.search(rb"(?<![A-Za-z0-9])%b(?![A-Za-z0-9])" % word, text) is not None


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
    busy: float = 1  # How many processors it keeps busy, as long as it was not measured.

    def inputs_of(self, opened: Iterable[str], root: Path = ROOT) -> list[str] | None:
        """What of all that was opened can be an input; None if the suite's own program or file is
        not among it, since then the rest cannot be believed either.

        Compilers work beside the tests, and open all of cpp/ and of their folder below build/. The
        tests did so only if something told them to: the command, or a text that they read, names
        the folder, or cpp/ was listed. What is installed (.venv) is no such text: it works without
        the tree. Programs of other tests ran beside.
        """
        opened = set(opened)
        real = {os.path.realpath(root / path): path for path in opened}
        own = self._own_files()
        if not own <= real.keys():
            return None
        ours = {real[path] for path in own}
        foreign = self._not_named({area_of(path) for path in opened - ours} - {""}, opened, root)
        return sorted(
            path
            for path in opened
            if path in ours or not (path.endswith(PROGRAMS) or area_of(path) in foreign)
        )

    def _own_files(self) -> set[str]:
        words = (self.folder / word.split("::")[0] for word in self.command)
        return {
            os.path.realpath(word)
            for word in words
            if word.name.endswith((*PROGRAMS, ".py")) and os.path.isfile(word)
        }

    def _not_named(self, areas: set[str], opened: set[str], root: Path) -> set[str]:
        """Those of the areas that nothing names."""
        told = [*self.command, *self.environment.values(), *self.reads, str(self.folder)]
        told += [value for name, value in os.environ.items() if is_told(name)]
        left = {area for area in areas if not is_named(os.fsencode("\n".join(told)), area)}
        left -= {"cpp"} if "cpp/" in opened else set()
        for path in opened:
            if left and not area_of(path) and not path.startswith(".venv") and path[-1] != "/":
                with contextlib.suppress(OSError):
                    text = (root / path).read_bytes()
                    left = {area for area in left if not is_named(text, area)}
        return left


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
        """PATH is no input: the programs that it finds are of the suite's own environment, which is
        its name, or Debian's packages, which are facts. It is another one for each who asks."""
        told = sorted(f"{name}={value}" for name, value in suite.environment.items())
        told = [each for each in told if not each.startswith("PATH=")]
        root = str(self._digests.root)
        installed = distributions(self._digests.root / suite.venv) if suite.venv else []
        words = [word.replace(root, "") for word in (suite.name, *suite.command, *told, *installed)]
        key = digest_of(VERSION, self._around.encode(), *map(os.fsencode, words))
        return self._folder / key

    def _passes(self, suite: Suite) -> list[dict[str, dict[str, str]]]:
        try:
            passes = json.loads(self._file(suite).read_text())
        except (OSError, ValueError):
            return []
        return passes if isinstance(passes, list) else []

    def keep_listings(self, folders: Iterable[str]) -> None:
        """Before the first suite starts: see Digests.keep_listings()."""
        self._digests.keep_listings(folders)

    def newest_note(self, suite: Suite) -> dict[str, str]:
        """What was noted when the suite passed last, with whatever inputs."""
        return next((each["note"] for each in self._passes(suite)), {})

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
        """Remembers that the suite has passed, unless an input was changed since it started, by
        file_clock_ns(): then nobody knows which of its contents the suite has read."""
        read = suite.inputs_of(opened, self._digests.root)
        if read is None:
            return
        inputs = {path: self._digests.of(path) for path in (*read, *self._declared(suite))}
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


IN_OPEN, IN_MOVED_TO, IN_CREATE = 0x20, 0x80, 0x100
IN_ISDIR, IN_Q_OVERFLOW = 0x40000000, 0x4000
EVENT = struct.Struct("iIII")


class Watch:
    """Tells which files of the tree are opened, and which folders listed, by any process.

    Between start() and stop() a set collects paths; several may. Every set is given up, as None,
    once something may have been missed; `missed` says what: the kernel lost events, or a folder is
    not watched, because it cannot be or because it is new.
    """

    def __init__(self, root: Path, folders: Iterable[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._root = root
        self._folders: dict[int, str] = {}
        self._open: list[set[str]] = []
        self.missed = "" if self._fd >= 0 else "no inotify here"
        self._lock = threading.Lock()
        for folder in folders:
            mask = IN_OPEN | IN_CREATE | IN_MOVED_TO
            wd = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), mask)
            if wd < 0:
                self.missed = f"{folder} cannot be watched"
            self._folders[wd] = os.path.relpath(folder, root)
        wait_for_tick()  # The folders that were made for this are no change.

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def folders(self) -> list[str]:
        """Those whose listings are inputs, as a set names them."""
        return [f"{path}/" for path in self._folders.values() if not path.startswith("build/")]

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
            return None if self.missed else set(opened)

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
            self.missed = "the kernel lost events"
        elif wd not in self._folders:
            return
        elif not (mask & IN_ISDIR and name):
            if mask & IN_OPEN:
                self._note_opened(self._folders[wd], name)
        elif mask & (IN_CREATE | IN_MOVED_TO):
            self._note_new(self._folders[wd], name)

    def _note_new(self, folder: str, name: str) -> None:
        """A new folder has no watch. What is built beside the tests is no input, though, and a
        program without a watch is not seen itself."""
        counts = is_listed(name) or name == PYTHON_CACHE
        if counts and not folder.startswith("build/"):
            self.missed = f"{folder}/{name} is new, and not watched"

    def _note_opened(self, folder: str, name: str) -> None:
        if name:
            path = os.path.normpath(source_of(folder, name))
        elif folder.startswith("build/"):
            return  # What is built is known by its files: others come and go beside them.
        else:
            path = folder + "/"
        for opened in self._open:
            opened.add(path)


def folders_of(top: Path, leave_out: Callable[[str], bool]) -> Iterator[Path]:
    """The folders below, each that holds modules with that of their caches, which is made where
    there is none: the first suite fills it, and the later ones open nothing else."""
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name != PYTHON_CACHE and not leave_out(name)]
        cache = Path(folder, PYTHON_CACHE)
        if any(name.endswith(".py") for name in files):
            with contextlib.suppress(OSError):  # Where nobody can write, Python does not either.
                cache.mkdir(exist_ok=True)
        yield Path(folder)
        if cache.is_dir():
            yield cache


def watched_folders(root: Path) -> Iterator[Path]:
    """Every folder of the tree that holds sources, and those where corro is installed or built."""
    yield from folders_of(root, lambda name: not is_listed(name))
    for venv in sorted(root.glob(".venv*")):
        tops = [venv / "bin", venv / "libexec"]
        for site in venv.glob("lib/python*/site-packages"):
            tops += [site / "corro", site / "horovod", site / "corro_horovod"]
            tops += site.glob("corro*.dist-info")
        for top in tops:
            yield from folders_of(top, lambda _: False)
    for part in ("bin", "libexec", "pod", "cpp"):
        for built in sorted(root.glob(f"build/*/{part}")):
            yield from folders_of(built, lambda name: name == "CMakeFiles")
