"""Tables: rows by key, kept by servers for all ranks of a job.

    corro run -np 2 --servers 1 python train.py

    table = corro.table.Table("users", 16, optimizer=corro.table.Adagrad(lr=0.05))
    rows = table.pull(ids)        # [n, 16]
    table.push(ids, gradients)    # on all ranks: one step of the table

Rows may be asked for while this step computes, and pushes may return before they are taken:

    table = corro.table.Table("users", 16, mode="bounded", staleness=2)
    table.prefetch(next_ids)      # begins the pull of the next batch

A table has a row for each of 2^64 keys. A row that nobody has pushed to has its initial values,
which are a function of the table's seed, its name and the key, and takes no memory. In a job
without servers that has one rank the table lies in this process, and gives the same bits.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy
from numpy.typing import ArrayLike, NDArray

from corro import _arguments, _context, _native

try:
    from corro import _tables
except ImportError as error:
    message = f"this corro was installed without tables ({error}); install the whole wheel"
    raise ImportError(message) from error
from corro.errors import (
    CancelledError,
    CorroError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    MismatchError,
)

__all__ = [
    "FTRL",
    "SGD",
    "Adagrad",
    "Adam",
    "Constant",
    "Momentum",
    "Normal",
    "RowwiseAdagrad",
    "Table",
    "Uniform",
]

_DTYPES = {"float32": _native.F32, "bfloat16": _native.BF16, "float16": _native.F16}
_MODES = ("sync", "bounded", "async")
_MOST_PREFETCHED = 64
_DEFAULT_TIMEOUT = 60.0  # Seconds; that of the engine.


@dataclass(frozen=True, kw_only=True)
class _Optimizer:
    """How a gradient changes a row. The C++ type has a field for each of all optimizers."""

    kind: ClassVar[int]
    lr: float = 0.01

    def _values(self) -> _tables.Optimizer:
        def value(name: str, default: float) -> float:
            return _arguments.number(name, getattr(self, name, default))

        return (
            self.kind,
            value("lr", 0.0),
            value("momentum", 0.0),
            value("beta1", 0.0),
            value("beta2", 0.0),
            value("epsilon", 0.0),
            value("initial_accumulator", 0.0),
            value("l1", 0.0),
            value("l2", 0.0),
            value("beta", 0.0),
        )


@dataclass(frozen=True, kw_only=True)
class SGD(_Optimizer):
    """w -= lr * g."""

    kind: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True)
class Momentum(_Optimizer):
    """m = momentum * m + g; w -= lr * m. `momentum`: in [0, 1)."""

    kind: ClassVar[int] = 1
    momentum: float = 0.9


@dataclass(frozen=True, kw_only=True)
class Adagrad(_Optimizer):
    """s += g^2; w -= lr * g / (sqrt(s) + epsilon), by element (Duchi et al. 2011)."""

    kind: ClassVar[int] = 2
    initial_accumulator: float = 0.0
    epsilon: float = 1e-8


@dataclass(frozen=True, kw_only=True)
class RowwiseAdagrad(_Optimizer):
    """Adagrad with one sum a row: s += mean(g^2). A row takes dim - 1 numbers less."""

    kind: ClassVar[int] = 3
    initial_accumulator: float = 0.0
    epsilon: float = 1e-8


@dataclass(frozen=True, kw_only=True)
class Adam(_Optimizer):
    """Adam (Kingma and Ba 2015), with each row's own count of steps for the bias."""

    kind: ClassVar[int] = 4
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


@dataclass(frozen=True, kw_only=True)
class FTRL(_Optimizer):
    """FTRL-Proximal (McMahan et al. 2013, algorithm 1): sparse weights by `l1`."""

    kind: ClassVar[int] = 5
    lr: float = 0.1
    initial_accumulator: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    beta: float = 1.0


@dataclass(frozen=True)
class Constant:
    """Initial values: all are this."""

    value: float = 0.0

    def _values(self) -> _tables.Initial:
        return 0, _arguments.number("value", self.value), 0.0


@dataclass(frozen=True)
class Uniform:
    """Initial values in [low, high)."""

    low: float
    high: float

    def _values(self) -> _tables.Initial:
        return 1, _arguments.number("low", self.low), _arguments.number("high", self.high)


@dataclass(frozen=True)
class Normal:
    """Initial values with this mean and standard deviation."""

    mean: float = 0.0
    std: float = 1.0

    def _values(self) -> _tables.Initial:
        return 2, _arguments.number("mean", self.mean), _arguments.number("std", self.std)


Optimizer = SGD | Momentum | Adagrad | RowwiseAdagrad | Adam | FTRL
Initial = Constant | Uniform | Normal
_OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adagrad": Adagrad,
    "rowwise_adagrad": RowwiseAdagrad,
    "adam": Adam,
    "ftrl": FTRL,
}


class Table:
    """Rows of `dim` float32 values by key. Thread-safe: calls of one process follow each other.

    All ranks make it alike, and take its steps together: every rank calls push() equally often, but
    in mode "async". A table of the same name that this process has made before is the same table.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        *,
        optimizer: str | Optimizer = "sgd",
        dtype: str = "float32",
        seed: int = 0,
        initial: Initial = Constant(0.0),
        admit_after: int = 1,
        evict_after: int = 0,
        budget: int | str = 0,
        spill: str | os.PathLike[str] | None = None,
        replicas: int = 1,
        mode: Literal["sync", "bounded", "async"] = "sync",
        staleness: int = 0,
        prefetch_depth: int = 2,
    ) -> None:
        """Makes the table, or finds it on its servers. Blocks until these have answered.

        Args:
            name: what servers know it by: letters, digits and "_.-/".
            dim: elements of a row, up to 4096.
            optimizer: "sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "ftrl", or one of
                this module's classes with its numbers.
            dtype: of weights as servers keep them: "float32", "bfloat16" or "float16". The latter
                two are rounded stochastically, alike in each run.
            seed: of the initial values and of the rounding.
            initial: the values of a row that nobody has pushed to.
            admit_after: a key gets its row with this push of it; earlier gradients are dropped. By
                a sketch of counts, so a few come too early.
            evict_after: a row goes that no push has changed for so many steps; 0: never.
            budget: bytes of rows and index in the memory of each server, or text such as "4GiB",
                beyond which rows that were not used lately go; 0: no limit.
            spill: a folder on a local disk of each server, where rows beyond the budget lie instead
                of going. It is made if it is not there, and nothing stays in it.
            replicas: further servers that have each row, up to 3; with fewer servers as many as
                there are. So many may be lost before rows are.
            mode: "sync": push() returns when the step is taken, and a pull has all steps up to this
                rank's last one. "bounded": the same steps, and push() returns while up to
                `staleness` of this rank's pushes are not taken, which a pull may lack. "async":
                each push is a step by itself when it arrives, and no rank waits for another.
            staleness: in mode "bounded" 1 to 64. In mode "async" 0 to 64, pushes of this rank that
                are not answered yet when push() returns.
            prefetch_depth: so many calls of prefetch() are kept for pulls, 1 to 64; may differ
                between ranks.

        Raises:
            InvalidArgumentError: a value is none of these, or other ranks have made the table
                otherwise.
            FailedPreconditionError: the job has several ranks and no servers, or a server cannot
                use the folder `spill`.
            UnavailableError: so many servers are lost that nobody has some rows.
        """
        self._name = str(name)
        self._dim = _arguments.whole("dim", dim, 1, _arguments.MOST_U32)
        self._optimizer = _read_optimizer(optimizer)
        if dtype not in _DTYPES:
            names = ", ".join(_DTYPES)
            raise InvalidArgumentError(f"dtype has to be one of {names}, not {dtype!r}")
        self._dtype = dtype
        self._seed = _arguments.whole("seed", seed, 0, _arguments.MOST_U64)
        self._initial = initial
        if not isinstance(initial, Initial):
            raise InvalidArgumentError(
                f"initial has to be a Constant, Uniform or Normal of corro.table, not {initial!r}"
            )
        self._lr = self._optimizer.lr
        retention = (
            _arguments.whole("admit_after", admit_after, 0, _arguments.MOST_U32),
            _arguments.whole("evict_after", evict_after, 0, _arguments.MOST_U32),
            _arguments.size("budget", budget),
            "" if spill is None else os.path.abspath(os.fspath(spill)),
        )
        if mode not in _MODES:
            raise InvalidArgumentError(f"mode has to be one of {', '.join(_MODES)}, not {mode!r}")
        self._mode = mode
        self._staleness = _arguments.whole("staleness", staleness, 0, _arguments.MOST_U32)
        self._prefetch_depth = _arguments.whole(
            "prefetch_depth", prefetch_depth, 1, _MOST_PREFETCHED
        )
        with _lock:
            self._tables = _tables_of_process(self._name)
            self._number = self._tables.open(
                self._name,
                self._dim,
                _DTYPES[dtype],
                self._seed,
                self._optimizer._values(),
                initial._values(),
                retention,
                _arguments.whole("replicas", replicas, 0, _arguments.MOST_U32),
                _MODES.index(mode),
                self._staleness,
            )
            _told.setdefault(self._number, "")

    @property
    def name(self) -> str:
        """What servers know the table by."""
        return self._name

    @property
    def dim(self) -> int:
        """Elements of a row."""
        return self._dim

    @property
    def dtype(self) -> str:
        """Of weights as servers keep them."""
        return self._dtype

    @property
    def seed(self) -> int:
        """Of the initial values and of the rounding."""
        return self._seed

    @property
    def optimizer(self) -> Optimizer:
        """As it was when the table was made."""
        return self._optimizer

    @property
    def initial(self) -> Initial:
        """The values of a row that nobody has pushed to."""
        return self._initial

    @property
    def mode(self) -> str:
        """When a push counts, and what a pull has of it: "sync", "bounded" or "async"."""
        return self._mode

    @property
    def staleness(self) -> int:
        """Pushes of this rank that may be unanswered when push() returns."""
        return self._staleness

    @property
    def steps(self) -> int:
        """Steps that the table has taken, as this rank knows: its own pushes that are answered."""
        with _lock:
            return self._tables.steps(self._number)

    @property
    def copies(self) -> int:
        """Servers that have each row, at least, as this rank knows; 1 in a process by itself.

        1 + replicas, or all servers if they are fewer; one less for each server that is lost, until
        what it had is copied to others. Does not block.
        """
        with _lock:
            return self._tables.copies(self._number)

    @property
    def lr(self) -> float:
        """The learning rate of the next push; it may be set, on all ranks alike."""
        return self._lr

    @lr.setter
    def lr(self, lr: float) -> None:
        value = _arguments.number("lr", lr)
        with _lock:
            self._tables.set_lr(self._number, value)
        self._lr = value

    def pull(self, ids: ArrayLike) -> NDArray[numpy.float32]:
        """Returns the rows of these ids: float32 of shape ids.shape + (dim,).

        `ids`: integers of any shape, which may repeat; negative ones are keys, too. Blocks. Changes
        nothing: a row that nobody has pushed to gives its initial values.

        Raises:
            InvalidArgumentError: ids are no integers.
            UnavailableError: so many servers are lost that nobody has some rows.
            DataLossError: a row cannot be read from a server's disk, or is not what was written.
            TimeoutError: a server has not answered in time.
        """
        keys = _keys(ids)
        values = numpy.empty((*keys.shape, self._dim), numpy.float32)
        with self._call():
            self._tables.pull(self._number, keys.ctypes.data, keys.size, values.ctypes.data)
        return values

    def prefetch(self, ids: ArrayLike) -> None:
        """Begins to pull the rows of these ids, while this rank does something else.

        A later pull() of the same ids in the same order takes them, and has what it would have
        without: of rows that are changed meanwhile it gets the new ones. Of more calls than
        `prefetch_depth` the oldest one is forgotten. Does not wait for servers. Does nothing
        where the table lies in this process.

        `ids`: integers of any shape, which may repeat.

        Raises:
            InvalidArgumentError: ids are no integers.
            UnavailableError: so many servers are lost that nobody has some rows.
        """
        keys = _keys(ids)
        with self._call():
            self._tables.prefetch(self._number, keys.ctypes.data, keys.size, self._prefetch_depth)

    def wait(self) -> None:
        """Blocks until all pushes of this rank are answered; at the end of the program, too.

        In mode "sync" they are when push() returns. Other ranks have to have pushed as often in
        mode "bounded".

        Raises:
            TimeoutError: names ranks that have not pushed in time.
            UnavailableError: so many servers are lost that nobody has some rows.
        """
        with self._call():
            self._tables.wait(self._number)

    def push(self, ids: ArrayLike, grads: ArrayLike) -> None:
        """Takes a step of the table, with all other ranks: each calls it, if need be with no ids.

        The gradients of an id are added up: those of a rank in its own order, then those of the
        ranks in theirs. Then the optimizer changes the row once. Blocks until all servers have done
        so; in modes "bounded" and "async" until they have for all pushes of this rank but the last
        `staleness`. What goes wrong with a push that has returned, the next call on the table
        raises, or wait(), or the end of the program, whose status is 1 then. In mode "async" a push
        is a step by itself, and ranks may push unequally often.

        Args:
            ids: integers of any shape, which may repeat.
            grads: float32 of shape ids.shape + (dim,).

        Raises:
            InvalidArgumentError: shapes do not fit, or a gradient is not finite; nothing has
                changed, and other ranks wait for this one.
            TimeoutError: names ranks that have not pushed in time. Whether the step was taken is
                not known after this and those below: the table takes no more pushes.
            ResourceExhaustedError: a server has no memory for new rows, or its disk no room. Pulls
                go on; one server may have taken the step where another one could not.
            FailedPreconditionError: another rank has ended, and pushes no more (--servers ranks).
            UnavailableError: so many servers are lost that nobody has some rows.
            DataLossError: a row cannot be read from a server's disk, or is not what was written.
        """
        keys = _keys(ids)
        gradients = numpy.ascontiguousarray(grads, numpy.float32)
        if gradients.shape != (*keys.shape, self._dim):
            raise InvalidArgumentError(
                f"table {self._name}: gradients of ids of shape {list(keys.shape)} have shape"
                f" {[*keys.shape, self._dim]}, not {list(gradients.shape)}"
            )
        with self._call():
            self._tables.push(self._number, keys.ctypes.data, keys.size, gradients.ctypes.data)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """One call of this process at a time; notes its failure, which the end need not tell."""
        with _lock:
            try:
                yield
            except CorroError as error:
                _told[self._number] = str(error)
                raise

    def save(self, folder: str | os.PathLike[str], *, keep: int = 2, full_every: int = 1) -> None:
        """Begins a snapshot: the rows after the steps that the table has taken, in `folder/step-N`.

        To be called by all ranks after the same step; each table has a folder of its own. Servers
        write it while ranks go on, on a file system that all hosts share. Waits for the snapshot
        before, if that is still being written; without servers, until this one is written. What
        goes wrong later is a line on stderr: the snapshots before stay. The end of the program
        waits for one that is being written.

        Args:
            folder: it is made, if it is not there. Relative to rank 0's working folder.
            keep: so many snapshots are left, this one among them, >= 2: an older one is there if
                the newest is damaged. Those on which they build are left, too.
            full_every: one of so many snapshots has all rows, >= 1; the others have the rows that
                have changed since the one before, on which they build. Servers remember what has
                changed in about a byte a row. The first one of a program, and the next one after
                restore(), have all rows, and so have all of a table with `evict_after`, or with
                `budget` and no `spill`.

        Raises:
            InvalidArgumentError: `keep` or `full_every` is too small, or another table is saved
                there.
            FailedPreconditionError: another job writes there; or the table's mode is "async", in
                which it has no step that all ranks know.
            UnavailableError: so many servers are lost that nobody has some rows; or the folder
                cannot be written.
        """
        self._check_step("save")
        left = _arguments.whole("keep", keep, 2, _arguments.MOST_U32)
        every = _arguments.whole("full_every", full_every, 1, _arguments.MOST_U32)
        with self._call():
            self._tables.save(self._number, os.path.abspath(folder), left, every)
            _saved[self._name] = self

    def wait_saved(self) -> int | None:
        """Blocks until no snapshot of the table is being written; so do calls of other threads.

        Returns the step of the newest one that was finished since the program began; None: there is
        none, or this rank is not rank 0.
        """
        with _lock:
            return self._tables.wait_for_save(self._number)

    def restore(self, folder: str | os.PathLike[str], *, weights_only: bool = False) -> int | None:
        """Takes rows, the optimizer's state and the steps of the newest valid snapshot in a folder.

        To be called by all ranks; blocks. The snapshot may be of any number of servers, or of none.
        A checkpoint of corro.checkpoint that has this table is one, too. Says on stderr why it
        takes an older one than the newest. Returns its step; None: there is no snapshot. If it
        fails, the table is as before. Servers need memory for their rows once more, if they have
        some.

        Args:
            folder: as save() has it; servers read there.
            weights_only: take the weights of a table with another optimizer, too, whose state then
                begins anew.

        Raises:
            InvalidArgumentError: the snapshot is of other tables; names what differs.
            DataLossError: there are snapshots, and none of them is valid.
            FailedPreconditionError: there are several ranks, and corro.init() was not called; or
                the table's mode is "async".
            MismatchError: it failed on rank 0, which says why.
        """
        self._check_step("restore")
        path = os.path.abspath(folder)
        ranks = _ranks()
        if ranks > 1 and not _context.is_initialized():
            raise FailedPreconditionError(
                "restore() needs corro.init() before: ranks wait for each other"
            )
        self._settle()
        if ranks > 1:  # Nobody uses the table from here on.
            _context.exchange(_context.world(), [0])
        if ranks > 1 and _context.rank() > 0:
            return self._hear_of_restore()
        step: int | None = None
        found = _FAILED
        try:
            step = self._restore_newest(path, weights_only)
            found = _NONE if step is None else step
        finally:
            if ranks > 1:
                _context.exchange(_context.world(), [found, self.steps])
        return step

    def _check_step(self, what: str) -> None:
        if self._mode == "async":
            raise FailedPreconditionError(
                f"table {self._name}: {what}() needs a step that all ranks know, which a table in"
                ' mode "async" has not'
            )

    def _restore_newest(self, path: str, weights_only: bool) -> int | None:
        steps = _tables.snapshots(path)
        for step in steps:
            try:
                self._load(path, step, weights_only)
                self._adopt()
                return step
            except DataLossError as error:
                _tell(f"table {self._name}: the snapshot of step {step} is passed over: {error}")
        if steps:
            raise DataLossError(
                f"table {self._name}: none of the snapshots in {path} is valid; see the lines above"
            )
        return None

    def _hear_of_restore(self) -> int | None:
        """What rank 0 has restored."""
        step, steps = _context.exchange(_context.world(), [0, 0])[0]
        if step == _FAILED:
            raise MismatchError(f"table {self._name}: rank 0 could not restore it, and says why")
        if step == _NONE:
            return None
        self._adopt_steps(steps)
        return step

    # -- for corro.checkpoint, on rank 0 but for _settle() and _adopt_steps() ----------------------

    def _begin_parts(self, folder: str, step: int, attempt: int, place: int) -> None:
        """Begins to write the rows, as they are, into a checkpoint that the caller commits."""
        with self._call():
            self._tables.save_into(self._number, folder, step, attempt, place)

    def _parts_written(self, attempt: int) -> int | None:
        """Returns how many parts it has; None: they are being written. Raises what went wrong."""
        with _lock:
            return self._tables.parts_written(self._number, attempt)

    def _settle(self) -> None:
        """Blocks until no push of this rank to any table is under way."""
        with self._call():
            for number in _told:
                self._tables.wait(number)

    def _load(self, path: str, step: int, weights_only: bool) -> int:
        """Has servers read their rows of a checkpoint, beside those that they have.

        Returns how many steps the table had taken.
        """
        with self._call():
            return self._tables.load(self._number, path, step, weights_only)

    def _adopt(self) -> None:
        """Goes on with what was loaded."""
        with self._call():
            self._tables.adopt(self._number)

    def _adopt_steps(self, steps: int) -> None:
        """Goes on with what rank 0 has adopted: on the other ranks."""
        with _lock:
            self._tables.adopt_steps(self._number, steps)

    def __repr__(self) -> str:
        return f"corro.table.Table({self._name!r}, {self._dim}, optimizer={self._optimizer!r})"


_lock = threading.Lock()
_of_process: _tables.Tables | None = None  # With the lock.
_told: dict[int, str] = {}  # With the lock: by a table's number the last failure that was raised.
_saved: dict[str, Table] = {}  # Tables whose snapshots the end of the program waits for.
_process = os.getpid()
_NONE, _FAILED = -1, -2  # What rank 0 says in the place of the step that it has restored.


@atexit.register  # What is registered later runs first: pushes and snapshots are finished then.
def _leave() -> None:
    """This process may keep rows that other ranks still need. It takes part in nothing else."""
    if _of_process is None or not _of_process.serves or not _ends_well():
        return
    _context.close_all()  # Who waits for this rank in a collective hears at once that it is gone.
    try:
        with _lock:
            _of_process.leave()
    except CorroError as error:
        _tell(f"tables of this rank end before those of others: {error}")


def _ends_well() -> bool:
    """This is no forked child, which has no tables, and no uncaught exception ends the program."""
    return os.getpid() == _process and getattr(sys, "last_value", None) is None


@atexit.register
def _wait_for_all() -> None:
    """Pushes that have returned before they were answered count, or the program has failed."""
    if _of_process is None or not _ends_well():
        return
    for number, told in _told.items():
        try:
            with _lock:
                _of_process.wait(number)
        except CancelledError:
            pass  # Somebody has interrupted a call, and knows.
        except CorroError as error:
            if str(error) != told:
                _context.fail(error)


@atexit.register
def _wait_for_snapshots() -> None:
    if os.getpid() != _process:  # A child that was forked, which has no tables.
        return
    for table in _saved.values():
        try:
            table.wait_saved()
        except CorroError as error:  # A line was printed for each snapshot; no rows are lost.
            _tell(f"table {table.name}: {error}")


def _tell(line: str) -> None:
    print(f"corro: {line}", file=sys.stderr, flush=True)


def _tables_of_process(name: str) -> _tables.Tables:
    global _of_process
    if _of_process is None:
        _of_process = _connect(name)
    return _of_process


def _connect(name: str) -> _tables.Tables:
    if (os.environ.get("CORRO_SERVERS") or "0") != "0":
        return _tables.served(float(os.environ.get("CORRO_TIMEOUT") or _DEFAULT_TIMEOUT))
    ranks = _ranks()
    if ranks > 1:
        raise FailedPreconditionError(
            f"table {name}: {ranks} ranks need servers to keep it: corro run --servers ranks ...,"
            " or --servers 2 for processes of their own"
        )
    return _tables.local()


def _ranks() -> int:
    if _context.is_initialized():
        return _context.size()
    return int(os.environ.get("CORRO_SIZE") or 1)


def _read_optimizer(optimizer: str | Optimizer) -> Optimizer:
    if isinstance(optimizer, str) and optimizer in _OPTIMIZERS:
        return _OPTIMIZERS[optimizer]()
    if isinstance(optimizer, _Optimizer):
        return optimizer
    raise InvalidArgumentError(
        f"optimizer has to be one of {', '.join(_OPTIMIZERS)}, or of corro.table's classes, not"
        f" {optimizer!r}"
    )


def _keys(ids: Any) -> NDArray[numpy.uint64]:
    array = numpy.asarray(ids)
    if array.size == 0 and array.dtype.kind == "f":  # An empty list.
        array = array.astype(numpy.int64)
    if array.dtype.kind not in "iu":
        raise InvalidArgumentError(f"ids have to be integers, not {array.dtype}")
    if array.dtype != numpy.uint64:
        array = array.astype(numpy.int64).view(numpy.uint64)
    return numpy.ascontiguousarray(array)
