"""The C ABI of libcorro.so as Python objects; use corro, corro.numpy or corro.torch."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

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
U16: int
U32: int
U64: int

SUM: int
AVERAGE: int
MIN: int
MAX: int
PRODUCT: int
ADASUM: int

def version() -> str: ...
def begin_exit() -> None: ...

# What this rank tells people who look at the job.
# FailedPreconditionError: no `corro run` has started this process.

def report_checkpoint(step: int, path: str) -> None: ...
def report_plan(name: str) -> None: ...
def report_training(step: int, text: str) -> None: ...
def report_decisions(json: str) -> None: ...
def address(buffer: object) -> int: ...

class Store(Protocol):
    """What Engine(store=...) needs."""

    def put(self, key: str, value: bytes) -> None: ...
    def get(self, key: str, timeout: float) -> bytes: ...

class LateOutput:
    """Where the result of an Op goes that is of rows whose number the ranks tell each other."""

    def __init__(self, row: int, size: int, ranks: int) -> None:
        """`row`: elements of a row of this rank, `size`: bytes of an element."""

    @property
    def rows(self) -> list[int]: ...
    def memory(self) -> memoryview: ...

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
        codec: int = 0,
        element: str | None = None,
        late: LateOutput | None = None,
    ) -> None: ...

def cast_codec(dtype: int) -> int:
    """Returns the address of corro_cast_codec(dtype), which the library keeps; 0 for NULL."""

class Arrays:
    """How the engine reads the arrays of one library."""

    def __init__(
        self,
        type: type,
        empty_like: Callable[[Any], Any],
        dtypes: dict[Any, int] | None,
    ) -> None: ...

class Work:
    def wait(self, timeout: float | None = None) -> None: ...
    def done(self) -> bool: ...
    def notify(self, cookie: int) -> None: ...

class NamedWork:
    def wait(self) -> Any: ...
    def done(self) -> bool: ...

class Group:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def selection_table(self) -> str: ...
    def number(self, number: int) -> None: ...
    def run(self, ops: list[Op], buffers: object, named: bool = False) -> None: ...
    def submit(self, ops: list[Op], buffers: object, named: bool = False) -> Work: ...
    def join(self, last: int, buffers: object, timeout: float | None = None) -> Work: ...
    def load(
        self,
        spec: PlanSpec,
        first: int = 0,
        timeout: float | None = None,
        memory: Sequence[tuple[int, Sequence[object]]] = (),
    ) -> Plan: ...
    def run_array(
        self,
        arrays: Arrays,
        kind: int,
        source: Any,
        target: Any,
        reduce_op: int,
        root: int,
        prescale: float,
        postscale: float,
        timeout: float,
    ) -> Any: ...
    def submit_array(
        self,
        arrays: Arrays,
        kind: int,
        source: Any,
        target: Any,
        reduce_op: int,
        root: int,
        prescale: float,
        postscale: float,
        timeout: float,
        name: str | None = None,
    ) -> tuple[Work, Any] | None: ...
    def run_named(
        self,
        arrays: Arrays,
        kind: int,
        source: Any,
        target: Any,
        reduce_op: int,
        root: int,
        prescale: float,
        postscale: float,
        name: str,
    ) -> Any: ...
    def start_named(
        self,
        arrays: Arrays,
        kind: int,
        source: Any,
        target: Any,
        reduce_op: int,
        root: int,
        prescale: float,
        postscale: float,
        name: str,
    ) -> NamedWork | None: ...
    def claim(self, names: list[str]) -> None: ...
    def release(self, names: list[str]) -> None: ...
    def buckets(
        self,
        *,
        parts: Sequence[tuple[str, int, int, int, int]],
        reduce_op: int,
        passes: int,
        prescale: float,
        postscale: float,
        codec: int,
        buffers: object,
    ) -> BucketSet: ...

class PlanSpec:
    def __init__(
        self,
        ranks: int,
        lanes: Sequence[tuple[str, int, int, Sequence[int]]],
        channels: Sequence[tuple[str, int, int, int, int]],
        services: Sequence[
            tuple[
                str,
                int,
                int,
                int,
                int,
                int,
                Sequence[int],
                Sequence[int],
                tuple[int, int, int, int, int] | None,
                tuple[int, str, int, int, int] | None,
            ]
        ],
    ) -> None: ...

class Firing:
    @property
    def service(self) -> int: ...
    @property
    def micro(self) -> int: ...
    @property
    def inputs(self) -> list[memoryview]: ...
    @property
    def outputs(self) -> list[memoryview]: ...
    def fill(self, output: int, bytes: int) -> None: ...
    def done(self, code: int = 0, message: str = "") -> None: ...

class Plan:
    def run(self, until: int) -> Work: ...
    def stop(self, code: int, message: str) -> None: ...
    def stopped(self) -> bool: ...
    def completed(self) -> int: ...
    def completed_by(self, service: int) -> int: ...
    def slot(self, channel: int, slot: int) -> memoryview: ...
    def describe(self) -> str: ...
    def pulls(self, lane: int) -> bool: ...
    def next(self, lane: int, timeout: float | None = None) -> Firing: ...
    def unload(self) -> None: ...

class Epochs:
    """What this member of an elastic job hears of its epochs. Thread-safe."""

    def __init__(self) -> None: ...
    @property
    def prepared(self) -> int: ...
    @property
    def why(self) -> str: ...
    def leave(self) -> None:
        """Says that this process was asked to end."""

    def next(
        self, steps: int, lost: int = -1, timeout: float | None = None
    ) -> tuple[int, int, int, bool]:
        """Blocks until an epoch begins that was not returned before.

        Returns epoch, rank, size, and whether it is the last one.
        """

class BucketSet:
    def ready(self, part: int) -> None: ...
    def close(self, generation: int, word: int) -> None: ...
    def wait(self) -> None: ...
    def next(self) -> None: ...
    def join(self) -> None: ...
    @property
    def generation(self) -> int: ...
    def came(self, part: int) -> int: ...
    def missing(self) -> list[int]: ...
    def came_anywhere(self, part: int) -> bool: ...

class Engine:
    def __init__(
        self,
        *,
        rank: int | None = None,
        size: int | None = None,
        job: str | None = None,
        store: Store | None = None,
        timeout: float | None = None,
        join_timeout: float | None = None,
        epochs: Epochs | None = None,
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
    def node_of_ranks(self) -> list[int]: ...
    @property
    def world(self) -> Group: ...
    def group(self, ranks: list[int], name: str | None = None) -> Group | None: ...
    def end_epoch(self, why: str) -> None: ...
    def set_step(self, step: int) -> None: ...
    def log(self, step: int, values: Sequence[tuple[str, float]], of: int) -> None: ...
    def longest_wait(self) -> tuple[int, str, str, float] | None: ...
    def start_timeline(self, path: str, mark_cycles: bool) -> None: ...
    def stop_timeline(self) -> None: ...
    def counter(self, name: str) -> int: ...
    def next_completed(self, timeout: float | None = None) -> int | None: ...
    def alloc(self, size: int) -> memoryview: ...
