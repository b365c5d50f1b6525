"""The C ABI of libcorro.so as Python objects; use corro, corro.numpy or corro.torch."""

from collections.abc import Sequence
from typing import Protocol

ALLREDUCE: int
ALLGATHER: int
REDUCESCATTER: int
ALLTOALL: int
BROADCAST: int
REDUCE: int
GATHER: int
SCATTER: int
BARRIER: int
SEND: int
RECV: int

BOOL: int
U8: int
I8: int
I16: int
I32: int
I64: int
F16: int
BF16: int
F32: int
F64: int

SUM: int
AVERAGE: int
MIN: int
MAX: int
PRODUCT: int

def version() -> str: ...
def begin_exit() -> None: ...
def address(buffer: object) -> int: ...

class Store(Protocol):
    """What Engine(store=...) needs."""

    def put(self, key: str, value: bytes) -> None: ...
    def get(self, key: str, timeout: float) -> bytes: ...

class Op:
    def __init__(
        self,
        *,
        kind: int,
        dtype: int = ...,
        reduce_op: int = ...,
        root: int = 0,
        tag: int = 0,
        input: int = 0,
        output: int = 0,
        count: int = 0,
        counts: list[int] | None = None,
        send_counts: list[int] | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        timeout: float | None = None,
        name: str | None = None,
        dims: Sequence[int] | None = None,
    ) -> None: ...

class Work:
    def wait(self, timeout: float | None = None) -> None: ...
    def done(self) -> bool: ...
    def notify(self, cookie: int) -> None: ...

class Group:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def selection_table(self) -> str: ...
    def run(self, ops: list[Op], buffers: object, named: bool = False) -> None: ...
    def submit(self, ops: list[Op], buffers: object, named: bool = False) -> Work: ...

class Engine:
    def __init__(
        self,
        *,
        rank: int | None = None,
        size: int | None = None,
        job: str | None = None,
        store: Store | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def node_rank(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def world(self) -> Group: ...
    def group(self, ranks: list[int], name: str | None = None) -> Group | None: ...
    def set_step(self, step: int) -> None: ...
    def counter(self, name: str) -> int: ...
    def next_completed(self, timeout: float | None = None) -> int | None: ...
    def alloc(self, size: int) -> memoryview: ...
