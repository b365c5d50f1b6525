"""What a plan offloads lies in files of a folder.

    optimizer   state, and main weights: read and written once a step, shard by shard
    gradients   sums of this rank's parts, too: written behind each call's backward
    weights     this rank's parts of parameters, too: read before each call, forward and backward

Each level has what is before it. Trainer and optimizer work on memory that threads fill ahead of
use, and write behind it, past the kernel's page cache. Between steps nothing is under way, and the
files are mapped: whoever else reads or writes a state, a part or a gradient, sees an ordinary
tensor. The files have no names: nothing is left of them, whatever ends the process. When training
moves to another plan (moving.py), what this rank has is read through that mapping, and what it gets
lies in Scratch until the next plan's files have it.

From Rajbhandari et al., "ZeRO-Infinity", SC'21, section 5. Storage is the only one who makes such
blocks: a model on a GPU would have others, of the host's pinned memory.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import accumulate
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from corro.errors import ResourceExhaustedError

LEVELS = ("off", "optimizer", "gradients", "weights")
STATE, GRADIENTS, PARAMETERS = 1, 2, 3  # Levels, of ZeRO as well: what is cut, and all before it.

_THREADS = 2  # One reads, one writes.
_FILE = 256 << 20  # Bytes of a file, unless a block has more.
_PAGE = 4096  # Bytes: of these disks read and write multiples.
_ALIGNED = 64  # Bytes: where a tensor begins in a block.
_PROBE = 32 << 20  # Bytes that are written and read to measure a disk.
_M_MMAP_THRESHOLD, _LARGE = -3, 256 << 10  # Of malloc.h; bytes.


class _File:
    """A file without a name, that is mapped whole."""

    def __init__(self, folder: str, size: int) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._descriptor = self._file.fileno()
        self.size, self.folder = size, folder
        os.truncate(self._descriptor, size)
        self.mapped = mmap.mmap(self._descriptor, size)
        with suppress(OSError):  # Memory that is a file system has no disk to go to directly.
            flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)

    def reserve(self, at: range) -> None:
        """Now: what the disk has no space for later would end the process."""
        os.posix_fallocate(self._descriptor, at.start, len(at))

    def read(self, memory: mmap.mmap, begin: int) -> None:
        """Fills memory. Blocks."""
        data = memoryview(memory)
        while data:
            count = os.preadv(self._descriptor, [data], begin)
            if not count:
                raise OSError(f"offload: {self.folder}: a file has become shorter")
            begin, data = begin + count, data[count:]

    def write(self, memory: mmap.mmap, begin: int) -> None:
        data = memoryview(memory)
        while data:
            count = os.pwrite(self._descriptor, data, begin)
            begin, data = begin + count, data[count:]


class _Memory:
    """What blocks are read into and written from, used again and again.

    New memory takes the kernel as long as the disk takes to fill it. Nothing is read ahead, written
    behind or kept for later that makes it more than a limit.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        """Bytes."""
        self.most = 0
        """Bytes that were in use at a time."""
        self._used = 0
        self._free: list[mmap.mmap] = []  # The oldest first.
        self._lock = threading.Lock()  # Threads give back what they have written.

    def has_room(self, length: int) -> bool:
        """Returns whether so many bytes more are within the limit."""
        return self._used + length <= self.limit

    def take(self, length: int) -> mmap.mmap:
        with self._lock:
            self._used += length
            self.most = max(self.most, self._used)
            found = next((each for each in self._free if len(each) == length), None)
            if found is not None:
                self._free.remove(found)
                return found
            self._free_some()
        return mmap.mmap(-1, length)

    def give(self, memory: mmap.mmap) -> None:
        """Nobody uses it any more."""
        with self._lock:
            self._used -= len(memory)
            self._free.append(memory)
            self._free_some()

    def _free_some(self) -> None:
        while self._free and self._used + sum(map(len, self._free)) > self.limit:
            self._free.pop(0)


class Block:
    """Tensors that lie side by side in a file, and are used together.

    Used by one thread at a time.
    """

    def __init__(
        self,
        file: _File,
        at: range,
        like: Sequence[Tensor],
        pool: _Memory,
        threads: ThreadPoolExecutor,
    ) -> None:
        """
        Args:
            at: the pages of the file that are the block's.
            like: flat, with the lengths and dtypes of the tensors.
        """
        self._file, self._at, self._pool, self._threads = file, at, pool, threads
        begins = _begins(like)[:-1]
        self._likes = [
            (begin, each.numel(), each.dtype) for begin, each in zip(begins, like, strict=True)
        ]
        self.tensors = self._tensors_in(file.mapped, at.start)
        """What the file has; not while it is written."""
        self._reading: Future[mmap.mmap] | None = None
        self._writing: Future[None] | None = None
        self._memory: mmap.mmap | None = None

    def fits(self, tensors: Iterable[Tensor]) -> bool:
        """Returns whether it has room for just these."""
        return [(each.numel(), each.dtype) for each in tensors] == [
            (count, dtype) for _, count, dtype in self._likes
        ]

    def fetch(self) -> None:
        """Begins to read it into memory, if it is not there, and there is room."""
        if self._memory is None and self._reading is None and self._pool.has_room(len(self._at)):
            self._begin()

    def take(self) -> list[Tensor]:
        """Returns the tensors in memory. Blocks until they are read."""
        if self._memory is None:
            reading = self._reading or self._begin()
            self._memory, self._reading = reading.result(), None
        return self._tensors_in(self._memory, 0)

    def blank(self) -> list[Tensor]:
        """Returns tensors in memory for what is to be written, whatever was there before."""
        self.drop()
        self._memory = self._pool.take(len(self._at))
        return self._tensors_in(self._memory, 0)

    def put(self) -> None:
        """Begins to write what is in memory, which is nobody's any more.

        Blocks until it is written, if there is no room for more beside it.
        """
        assert self._memory is not None
        self._writing = self._threads.submit(self._write, self._memory, self._writing)
        self._memory = None
        if not self._pool.has_room(len(self._at)):
            self.settle()

    def drop(self) -> None:
        """Lets go of the memory, which has not changed."""
        if self._reading is not None:
            self._reading.add_done_callback(lambda done: self._pool.give(done.result()))
        if self._memory is not None:
            self._pool.give(self._memory)
        self._memory = self._reading = None

    def settle(self) -> None:
        """Blocks until it is written."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _begin(self) -> Future[mmap.mmap]:
        memory = self._pool.take(len(self._at))
        self._reading = self._threads.submit(self._read, memory, self._writing)
        return self._reading

    def _tensors_in(self, memory: mmap.mmap, at: int) -> list[Tensor]:
        return [
            torch.frombuffer(memory, dtype=dtype, count=count, offset=at + begin)
            if count
            else torch.empty(0, dtype=dtype)
            for begin, count, dtype in self._likes
        ]

    def _read(self, memory: mmap.mmap, before: Future[None] | None) -> mmap.mmap:
        if before is not None:
            before.result()
        self._file.read(memory, self._at.start)
        return memory

    def _write(self, memory: mmap.mmap, before: Future[None] | None) -> None:
        if before is not None:
            before.result()
        self._file.write(memory, self._at.start)
        self._pool.give(memory)


class Storage:
    """One rank's files. They live as long as their tensors."""

    def __init__(self, folder: str, level: int, room: float, room_in_step: float) -> None:
        """
        Args:
            level: a place in LEVELS, that says what they are for.
            room: bytes of memory to read ahead and write behind in forward and backward; at least
                what one shard needs is taken.
            room_in_step: in a step of the optimizer.
        """
        self.folder, self.level = folder, level
        self.bytes = 0
        self.memory = _Memory(room)
        self._rooms = room, room_in_step
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="corro-offload")
        self._file: _File | None = None
        self._end = 0  # Of what is taken of the file.
        _give_back_what_is_freed()

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """A step of the optimizer: what forward and backward need is free."""
        self.memory.limit = self._rooms[1]
        try:
            yield
        finally:
            self.memory.limit = self._rooms[0]

    def block(self, like: Sequence[Tensor]) -> Block:
        """Returns room for flat tensors of such lengths and dtypes.

        Raises:
            ResourceExhaustedError: the folder has no space for it.
        """
        length = max(1, -(-_begins(like)[-1] // _PAGE)) * _PAGE
        if self._file is None or self._end + length > self._file.size:
            self._file, self._end = _File(self.folder, max(_FILE, length)), 0
        at = range(self._end, self._end + length)
        try:
            self._file.reserve(at)
        except OSError as error:
            raise ResourceExhaustedError(
                f"offload: {self.folder}: has no space for {length} bytes beside {self.bytes}: "
                f"{error.strerror}"
            ) from error
        self._end = at.stop
        self.bytes += length
        return Block(self._file, at, like, self.memory, self._threads)

    def block_of(self, tensors: Sequence[Tensor]) -> Block:
        """Returns a block that has these. Blocks until it is written."""
        block = self.block(tensors)
        for memory, each in zip(block.blank(), tensors, strict=True):
            memory.copy_(each)
        block.put()
        block.settle()
        return block


class Scratch:
    """Tensors in files of a folder, for what memory has no room for while a training moves.

    A file lives as long as its tensors. Used by one thread at a time.
    """

    def __init__(self, folder: str) -> None:
        self._storage = Storage(folder, 0, 0.0, 0.0)

    def empty(self, elements: int, dtype: torch.dtype = torch.uint8) -> Tensor:
        """Returns a flat tensor of so many elements; raises as Storage.block() does."""
        like = torch.empty(elements, dtype=dtype, device="meta")
        return self._storage.block([like]).tensors[0]


class Offloaded:
    """What of one shard lies in files."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.rows: Block | None = None
        self.gradients: Block | None = None
        self.state: Block | None = None
        self.keys: list[tuple[int, Any]] = []
        """Of the state's tensors: the part's number, and the optimizer's key."""

    @property
    def blocks(self) -> list[Block]:
        return [each for each in (self.rows, self.gradients, self.state) if each is not None]

    def fetch(self) -> None:
        """Begins to read what a step of the optimizer needs."""
        for each in self.blocks:
            each.fetch()

    def settle(self) -> None:
        """Blocks until all is written."""
        for each in self.blocks:
            each.settle()

    def add_gradients(self, parts: Sequence[Tensor], sums: Sequence[Tensor | None]) -> None:
        """Adds to the parts' gradients; what is None, not."""
        if self.gradients is None:
            self.gradients = self.storage.block(parts)
        are_first = all(each.grad is None for each in parts)
        memory = self.gradients.blank() if are_first else self.gradients.take()
        for part, own, there, more in zip(parts, memory, self.gradients.tensors, sums, strict=True):
            if more is not None:
                own.copy_(more) if part.grad is None else own.add_(more)
                part.grad = there
        self.gradients.put()


def _begins(like: Iterable[Tensor]) -> list[int]:
    """Returns where each tensor begins in a block, and the block's end."""
    return list(accumulate((-(-each.nbytes // _ALIGNED) * _ALIGNED for each in like), initial=0))


def _give_back_what_is_freed() -> None:
    """From now on large memory that this process frees is the system's at once.

    Else the heap of glibc grows by several times what is used: torch asks for aligned memory, and
    glibc before 2.38 does not use such memory again.
    """
    with suppress(OSError, AttributeError):  # Another libc.
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


# --- A folder -------------------------------------------------------------------------------


def refusal_of_folder(folder: object) -> str | None:
    """Returns why this rank cannot offload to a folder."""
    if not isinstance(folder, str | os.PathLike):
        return f"parallelize: offload: a {type(folder).__name__} is no path of a folder"
    path = str(os.fspath(folder))
    try:
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        return f"parallelize: offload: {path}: {error.strerror}"
    return None


def space_of(folder: str) -> int:
    """Returns the bytes that are left on the folder's disk."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def bandwidth_of(folder: str) -> float:
    """Returns the bytes/s that the folder's disk writes and reads, one after the other."""
    file, memory = _File(folder, _PROBE), mmap.mmap(-1, _PROBE)
    file.reserve(range(_PROBE))
    memory.write(bytes(_PROBE))  # So that it is there.
    begin = perf_counter()
    file.write(memory, 0)
    file.read(memory, 0)
    return 2 * _PROBE / (perf_counter() - begin)
