"""The verbs, once for every array library: what differs between libraries is a Frontend.

Each method describes an operation and returns it as a Call; corro.numpy and corro.torch make the
functions that run or start it (`_calls.running`, `_calls.starting`). Ranks in arguments are ranks
of the world, also with a group.

An allreduce is what training is made of, so it has functions of its own (`run_allreduce`,
`start_allreduce`). Arrays that the engine can use as they lie need no description: the operation is
one call of the engine, which reads the arrays itself. Whatever else there is to do, a copy or an
error, is the description's.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import index, itemgetter
from typing import Any, Generic, TypeVar

from corro import _arguments, _context, _native, _rules
from corro._calls import Call, Handle, present_as
from corro._context import Exchange, Group, exchange
from corro._reduce_op import Average, ReduceOp
from corro.errors import InvalidArgumentError, MismatchError

T = TypeVar("T")

_MOST = 1 << 40  # Elements of an array: the engine refuses more.
_ALLREDUCE = _native.ALLREDUCE


class Frontend(ABC, Generic[T]):
    """What the verbs need of an array library. *Host* arrays are contiguous and in CPU memory."""

    @abstractmethod
    def arrays(self) -> _native.Arrays:
        """Returns how the engine reads the library's arrays itself."""

    @abstractmethod
    def dtype(self, x: T) -> int | None:
        """Returns the engine's number of x's dtype; None if the engine can only move its bytes."""

    @abstractmethod
    def same_dtype(self, x: T, y: T) -> bool:
        """Returns whether x and y have one dtype, also one that the engine does not know."""

    @abstractmethod
    def itemsize(self, x: T) -> int:
        """Returns the size of an element in bytes."""

    @abstractmethod
    def shape(self, x: T) -> tuple[int, ...]:
        """Returns x's shape."""

    @abstractmethod
    def count(self, x: T) -> int:
        """Returns the number of x's elements."""

    @abstractmethod
    def type_name(self, x: T) -> str:
        """Returns what the library calls x's dtype, with its byte order if it is not the host's."""

    @abstractmethod
    def pointer(self, host: T) -> int:
        """Returns the address of a host array."""

    @abstractmethod
    def readable(self, x: T) -> T:
        """Returns a host array with x's content: x itself if it is one."""

    @abstractmethod
    def writable(self, x: T) -> T:
        """Returns a host array to write x's new content to: x itself if it is one."""

    @abstractmethod
    def empty(self, shape: Sequence[int], like: T) -> T:
        """Returns a new host array of like's dtype."""

    def of_memory(self, memory: memoryview, shape: Sequence[int], like: T) -> T:
        """Returns a host array of like's dtype whose bytes are those of the memory: a copy."""
        host = self.empty(shape, like)
        ctypes.memmove(self.pointer(host), _native.address(memory), len(memory))
        return host

    @abstractmethod
    def assign(self, target: T, host: T) -> None:
        """Copies a host array into target."""

    @abstractmethod
    def home(self, host: T, like: T) -> T:
        """Returns a host array's content where like's is."""


class Verbs(Generic[T]):
    """The operations on arrays of type T. Immutable."""

    def __init__(self, frontend: Frontend[T]) -> None:
        self._of = frontend
        self._arrays = frontend.arrays()

    def allreduce(
        self,
        x: T,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        out: T | None = None,
        group: Group | None = None,
        compression: Any = None,
    ) -> Call[T]:
        """Reduces x over all ranks and returns the result; the average by default.

        Args:
            x: the array; same shape and dtype on every rank.
            op: the reduction; averages of integers round toward zero. Adasum looks at each array
                as a whole, and needs floating-point ones.
            name: says which array this is: ranks may reduce named arrays in different orders, and
                small ones travel together. Without a name the order of the calls says it.
            prescale_factor: each rank's x is multiplied by it (and rounded) first.
            postscale_factor: the result is multiplied by it before it is rounded.
            out: where the result goes; may be x. A new array if not given.
            group: the ranks that take part; the world if not given.
            compression: a codec of the engine, on every rank alike: floating-point numbers travel
                in its smaller form.
        """
        source = self._of.readable(x)
        target, finish = self._target(x, out, self._of.shape(x))
        native = _native.Op(
            kind=_native.ALLREDUCE,
            dtype=self._reducible(x, "allreduce"),
            reduce_op=_checked_op(op),
            input=self._of.pointer(source),
            output=self._of.pointer(target),
            count=self._of.count(x),
            prescale=_arguments.number("prescale_factor", prescale_factor),
            postscale=_arguments.number("postscale_factor", postscale_factor),
            name=_arguments.name("name", name),
            dims=self._of.shape(x),
            codec=_address_of(compression),
        )
        return Call(
            _context.world_or(group), [native], (source, target), finish, named=name is not None
        )

    def run_allreduce(
        self,
        x: T,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        out: T | None = None,
        group: Group | None = None,
        compression: Any = None,
    ) -> T:
        if compression is None and name is None and op.__class__ is ReduceOp:
            try:
                made: T | None = _context.native_of(group).run_array(
                    self._arrays, _ALLREDUCE, x, out, op, 0, prescale_factor, postscale_factor, 0.0
                )
            except TypeError:  # Only what is not as it should be costs the time to find out.
                _check_scales(prescale_factor, postscale_factor)
                raise
            if made is not None:
                return made
        return self.allreduce(
            x,
            op,
            name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            out=out,
            group=group,
            compression=compression,
        ).run()

    def start_allreduce(
        self,
        x: T,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        out: T | None = None,
        group: Group | None = None,
        compression: Any = None,
    ) -> Handle[T]:
        if compression is None and op.__class__ is ReduceOp:
            if name is not None:
                name = _arguments.name("name", name)
            try:
                started: tuple[_native.Work, T] | None = _context.native_of(group).submit_array(
                    self._arrays,
                    _ALLREDUCE,
                    x,
                    out,
                    op,
                    0,
                    prescale_factor,
                    postscale_factor,
                    0.0,
                    name,
                )
            except TypeError:
                _check_scales(prescale_factor, postscale_factor)
                raise
            if started is not None:
                return Handle(*started)
        return self.allreduce(
            x,
            op,
            name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            out=out,
            group=group,
            compression=compression,
        ).start()

    def grouped_allreduce(
        self,
        xs: Sequence[T],
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        outs: Sequence[T] | None = None,
        group: Group | None = None,
        compression: Any = None,
    ) -> Call[list[T]]:
        """Reduces several arrays as one unit; otherwise as allreduce.

        With a name, the arrays have the names `name.0`, `name.1` and so on.
        """
        targets = outs if outs is not None else [None] * len(xs)
        names = names_of(xs, name, "grouped_allreduce")
        if len(targets) != len(xs):
            raise InvalidArgumentError(
                f"grouped_allreduce: {len(targets)} outs for {len(xs)} arrays"
            )
        return Call.joined(
            [
                self.allreduce(
                    x,
                    op,
                    own,
                    prescale_factor=prescale_factor,
                    postscale_factor=postscale_factor,
                    out=out,
                    group=group,
                    compression=compression,
                )
                for x, own, out in zip(xs, names, targets, strict=True)
            ]
        )

    def allgather(
        self,
        x: T,
        name: str | None = None,
        *,
        sizes: Sequence[int] | None = None,
        group: Group | None = None,
    ) -> Call[T]:
        """Returns every rank's x, one after the other along dim 0, which may differ between ranks.

        Args:
            x: the array, with at least one dim; the other dims are the same on every rank.
            name: as in allreduce.
            sizes: every rank's dim 0 if known; else the ranks tell each other first. All ranks give
                the same sizes, or none.
            group: the ranks that take part; the world if not given.
        """
        group = _context.world_or(group)
        rows, row, shape = self._rows(x, "allgather")
        source, name = self._of.readable(x), _arguments.name("name", name)
        if sizes is not None:
            sizes = _checked_sizes(sizes, group, rows, row)
        elif name is not None:
            late = self._late(_native.ALLGATHER, x, source, row, shape, group, name, count=rows)
            return late.mapped(itemgetter(0))
        else:
            sizes = self._sizes(group, rows, row, "allgather")
        counts = [size * row for size in sizes]
        return self._joined(_native.ALLGATHER, x, source, counts, sizes, shape, group, name=name)

    def gather_into(self, out: T, x: T, group: Group) -> Call[T]:
        """allgather() of as many rows on each rank into `out`, where x may lie at its place."""
        rows, row, shape = self._rows(x, "allgather")
        sizes = [rows] * group.size()
        counts = [size * row for size in sizes]
        source = self._of.readable(x)
        return self._joined(_native.ALLGATHER, x, source, counts, sizes, shape, group, out=out)

    def grouped_allgather(
        self, xs: Sequence[T], name: str | None = None, *, group: Group | None = None
    ) -> Call[list[T]]:
        """Returns every rank's arrays for each of several, as one unit; otherwise as allgather.

        With a name, the arrays have the names `name.0`, `name.1` and so on.
        """
        return self.gathered(xs, names_of(xs, name, "grouped_allgather"), group)

    def gathered(
        self, xs: Sequence[T], names: Sequence[str | None], group: Group | None
    ) -> Call[list[T]]:
        """grouped_allgather() of arrays, of which all have a name of their own, or none has."""
        group = _context.world_or(group)
        known: Sequence[Sequence[int] | None] = [None] * len(xs)
        if names[0] is None:
            known = self.rows_of(group, xs, names, "allgather")
        return Call.joined(
            [
                self.allgather(x, name, sizes=sizes, group=group)
                for x, name, sizes in zip(xs, names, known, strict=True)
            ]
        )

    def broadcast(
        self,
        x: T,
        root_rank: int = 0,
        name: str | None = None,
        *,
        out: T | None = None,
        group: Group | None = None,
    ) -> Call[T]:
        """Returns the root's x on every rank; name, out and group are as in allreduce."""
        group = _context.world_or(group)
        source = self._of.readable(x)
        target, finish = self._target(x, out, self._of.shape(x))
        dtype, count = self._bytes(x)
        op = _native.Op(
            kind=_native.BROADCAST,
            dtype=dtype,
            root=group.index_of(root_rank),
            input=self._of.pointer(source),
            output=self._of.pointer(target),
            count=count,
            name=_arguments.name("name", name),
            dims=self._of.shape(x),
            element=self._element(x),
        )
        return Call(group, [op], (source, target), finish, named=name is not None)

    def reduce(
        self,
        x: T,
        root_rank: int = 0,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        group: Group | None = None,
    ) -> Call[T | None]:
        """Reduces x over all ranks and returns the result on the root, None elsewhere.

        The name is as in allreduce.
        """
        group = _context.world_or(group)
        source, root = self._of.readable(x), group.index_of(root_rank)
        is_root = group.rank() == root
        target, finish = self._target(x, None, self._of.shape(x) if is_root else (0,))
        native = _native.Op(
            kind=_native.REDUCE,
            dtype=self._reducible(x, "reduce"),
            reduce_op=_checked_op(op),
            root=root,
            input=self._of.pointer(source),
            output=self._of.pointer(target),
            count=self._of.count(x),
            name=_arguments.name("name", name),
            dims=self._of.shape(x),
        )
        return Call(
            group,
            [native],
            (source, target),
            lambda: finish() if is_root else None,
            named=name is not None,
        )

    def reducescatter(
        self,
        x: T,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        group: Group | None = None,
    ) -> Call[T]:
        """Reduces x over all ranks and returns this rank's part of dim 0; name as in allreduce.

        If dim 0 cannot be divided evenly, the first ranks get one row more.
        """
        group = _context.world_or(group)
        return self.reduce_rows(
            x,
            even_rows(self._rows(x, "reducescatter")[0], group.size()),
            op,
            name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            group=group,
        )

    def reduce_rows(
        self,
        x: T,
        sizes: Sequence[int],
        op: ReduceOp,
        name: str | None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        group: Group | None = None,
    ) -> Call[T]:
        """reducescatter() that gives each rank as many rows as `sizes` says; alike on all ranks."""
        group = _context.world_or(group)
        _, row, shape = self._rows(x, "reducescatter")
        source = self._of.readable(x)
        target, finish = self._target(x, None, (sizes[group.rank()], *shape))
        native = _native.Op(
            kind=_native.REDUCESCATTER,
            dtype=self._reducible(x, "reducescatter"),
            reduce_op=_checked_op(op),
            input=self._of.pointer(source),
            output=self._of.pointer(target),
            count=sizes[group.rank()] * row,
            counts=[size * row for size in sizes],
            prescale=_arguments.number("prescale_factor", prescale_factor),
            postscale=_arguments.number("postscale_factor", postscale_factor),
            name=_arguments.name("name", name),
            dims=self._of.shape(x),
        )
        return Call(group, [native], (source, target), finish, named=name is not None)

    def grouped_reducescatter(
        self,
        xs: Sequence[T],
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        group: Group | None = None,
    ) -> Call[list[T]]:
        """Reduces several arrays and returns this rank's part of each; as one unit.

        Otherwise as reducescatter. With a name, the arrays have the names `name.0` and so on.
        """
        return self.scattered(
            xs,
            op,
            names_of(xs, name, "grouped_reducescatter"),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            group=group,
        )

    def scattered(
        self, xs: Sequence[T], op: ReduceOp, names: Sequence[str | None], **how: Any
    ) -> Call[list[T]]:
        """grouped_reducescatter() of arrays with names of their own; `how` as in reducescatter."""
        return Call.joined(
            [self.reducescatter(x, op, own, **how) for x, own in zip(xs, names, strict=True)]
        )

    def alltoall(
        self,
        x: T,
        splits: Sequence[int] | None = None,
        name: str | None = None,
        *,
        group: Group | None = None,
    ) -> Call[tuple[T, list[int]]]:
        """Sends splits[r] rows of dim 0 to each rank r.

        Returns what came, in rank order, and how many rows came from each rank.

        Args:
            x: the array, with at least one dim; the other dims are the same on every rank.
            splits: rows for each rank; equal parts if not given.
            name: as in allreduce.
            group: the ranks that take part; the world if not given.
        """
        group = _context.world_or(group)
        rows, row, shape = self._rows(x, "alltoall")
        parts = _rules.splits("alltoall", splits, group.size(), rows)
        source, name = self._of.readable(x), _arguments.name("name", name)
        if name is not None:
            return self._late(
                _native.ALLTOALL, x, source, row, shape, group, name, send_counts=parts
            )
        table = exchange(group, [row, *parts])
        self._same_rows(group, [line[0] for line in table], "alltoall")
        received = [line[1 + group.rank()] for line in table]
        target, finish = self._target(x, None, (sum(received), *shape))
        dtype, width = self._unit(x)
        native = _native.Op(
            kind=_native.ALLTOALL,
            dtype=dtype,
            input=self._of.pointer(source),
            output=self._of.pointer(target),
            counts=[n * row * width for n in received],
            send_counts=[n * row * width for n in parts],
            dims=shape,
            element=self._element(x),
        )
        return Call(group, [native], (source, target), lambda: (finish(), received))

    def gather(self, x: T, root_rank: int = 0, *, group: Group | None = None) -> Call[T | None]:
        """Returns every rank's x on the root, joined along dim 0, and None elsewhere."""
        group = _context.world_or(group)
        rows, row, shape = self._rows(x, "gather")
        sizes = self._sizes(group, rows, row, "gather")
        root = group.index_of(root_rank)
        is_root = group.rank() == root
        call = self._joined(
            _native.GATHER,
            x,
            self._of.readable(x),
            [size * row for size in sizes],
            sizes if is_root else [0],
            shape,
            group,
            root,
        )
        finish = call.finish
        return Call(group, call.ops, call.buffers, lambda: finish() if is_root else None)

    def scatter(
        self, x: T | None, out: T, root_rank: int = 0, *, group: Group | None = None
    ) -> Call[T]:
        """Fills every rank's out from the root's x, in rank order; dim 0 of outs may differ."""
        group = _context.world_or(group)
        _, row, shape = self._rows(out, "scatter")
        counts = self._sizes(group, self._of.count(out), row, "scatter")
        root = group.index_of(root_rank)
        source = out
        if group.rank() == root:
            if x is None or self._of.count(x) != sum(counts):
                raise InvalidArgumentError(
                    f"scatter: the root needs {sum(counts)} elements: {counts} for the ranks"
                )
            if not self._of.same_dtype(x, out):
                raise InvalidArgumentError("scatter: the root's x and out have different dtypes")
            source = self._of.readable(x)
        target, finish = self._target(out, out, self._of.shape(out))
        dtype, width = self._unit(out)
        native = _native.Op(
            kind=_native.SCATTER,
            dtype=dtype,
            root=root,
            input=self._of.pointer(source) if group.rank() == root else 0,
            output=self._of.pointer(target),
            count=counts[group.rank()] * width,
            counts=[count * width for count in counts],
            dims=shape,
            element=self._element(out),
        )
        return Call(group, [native], (source, target), finish)

    def send(self, x: T, dst: int, tag: int = 0, *, group: Group | None = None) -> Call[None]:
        """Sends x to a rank, which receives it with the same tag."""
        group = _context.world_or(group)
        source = self._of.readable(x)
        dtype, count = self._bytes(x)
        native = _native.Op(
            kind=_native.SEND,
            dtype=dtype,
            root=group.index_of(dst),
            tag=_arguments.whole("tag", tag, 0, _arguments.MOST_U32),
            input=self._of.pointer(source),
            count=count,
            element=self._element(x),
        )
        return Call(group, [native], source, lambda: None)

    def recv(self, out: T, src: int, tag: int = 0, *, group: Group | None = None) -> Call[T]:
        """Fills out with what a rank has sent with the same tag, and returns it."""
        group = _context.world_or(group)
        target, finish = self._target(out, out, self._of.shape(out))
        dtype, count = self._bytes(out)
        native = _native.Op(
            kind=_native.RECV,
            dtype=dtype,
            root=group.index_of(src),
            tag=_arguments.whole("tag", tag, 0, _arguments.MOST_U32),
            output=self._of.pointer(target),
            count=count,
            element=self._element(out),
        )
        return Call(group, [native], target, finish)

    def _late(
        self,
        kind: int,
        x: T,
        source: T,
        row: int,
        shape: tuple[int, ...],
        group: Group,
        name: str,
        **rows: Any,
    ) -> Call[tuple[T, list[int]]]:
        """Returns a named operation before which the ranks tell each other how many rows they have.

        `row` is the number of elements of a row, `rows` say how many this rank has. The result is
        what comes, and how many rows came from each rank.
        """
        dtype, width = self._unit(x)
        late = _native.LateOutput(row * width, self._of.itemsize(x) // width, group.size())
        native = _native.Op(
            kind=kind,
            dtype=dtype,
            input=self._of.pointer(source),
            name=name,
            dims=shape,
            element=self._element(x),
            late=late,
            **rows,
        )

        def finish() -> tuple[T, list[int]]:
            received = late.rows
            host = self._of.of_memory(late.memory(), (sum(received), *shape), x)
            return self._of.home(host, x), received

        return Call(group, [native], (source, late), finish, named=True)

    def _joined(
        self,
        kind: int,
        x: T,
        source: T,
        counts: Sequence[int],
        rows: Sequence[int],
        shape: tuple[int, ...],
        group: Group,
        root: int = 0,
        name: str | None = None,
        out: T | None = None,
    ) -> Call[T]:
        target, finish = self._target(x, out, (sum(rows), *shape))
        dtype, width = self._unit(x)
        native = _native.Op(
            kind=kind,
            dtype=dtype,
            root=root,
            input=self._of.pointer(source),
            output=self._of.pointer(target),
            count=counts[group.rank()] * width,
            counts=[count * width for count in counts],
            name=name,
            dims=shape,
            element=self._element(x),
        )
        return Call(group, [native], (source, target), finish, named=name is not None)

    def _target(self, x: T, out: T | None, shape: tuple[int, ...]) -> tuple[T, Callable[[], T]]:
        """Returns the host array that the engine writes to, and what brings it to its place."""
        if out is None:
            host = self._of.empty(shape, x)
            return host, lambda: self._of.home(host, x)
        if out is not x and (self._of.shape(out) != shape or not self._of.same_dtype(out, x)):
            raise InvalidArgumentError(
                f"out has another shape or dtype than the result, whose shape is {shape}"
            )
        target = self._of.writable(out)

        def finish() -> T:
            if target is not out:
                self._of.assign(out, target)
            return out

        return target, finish

    def _reducible(self, x: T, verb: str) -> int:
        return _rules.reducible(self._of.dtype(x), verb, getattr(x, "dtype", type(x).__name__))

    def _unit(self, x: T) -> tuple[int, int]:
        """Returns a dtype to move x with, and how many of it make an element."""
        return _rules.movable(self._of.dtype(x), self._of.itemsize(x))

    def _element(self, x: T) -> str | None:
        """Returns what x's elements are if the engine only moves their bytes."""
        return self._of.type_name(x) if self._of.dtype(x) is None else None

    def _bytes(self, x: T) -> tuple[int, int]:
        dtype, width = self._unit(x)
        return dtype, self._of.count(x) * width

    def _rows(self, x: T, verb: str) -> tuple[int, int, tuple[int, ...]]:
        """Returns dim 0, the elements of a row, and the shape of a row."""
        shape = self._of.shape(x)
        if not shape:
            raise InvalidArgumentError(
                f"{verb}: at least one dim is needed; reshape a scalar to (1,)"
            )
        return shape[0], _product(shape[1:]), shape[1:]

    def rows_of(
        self, group: Group, xs: Sequence[T], names: Sequence[str | None], verb: str
    ) -> list[list[int]]:
        """Returns every rank's dim 0 of each. All have a name, or none has.

        MismatchError unless the other dims make equal rows; if they have names, the operation that
        comes next raises it. Named, it is the first stage of what _late() describes: other ranks
        may have called that.
        """
        named = names[0] is not None
        rows = [self._rows(x, verb) for x in xs]
        told = [
            Exchange(group, [own] if named else [own, row], name=name and f"{name}.sizes")
            for (own, row, _), name in zip(rows, names, strict=True)
        ]
        group.native.run([one.op for one in told], told, named)
        if named:
            return [[line[0] for line in one.rows()] for one in told]
        return [self._agreed_sizes(group, one, verb) for one in told]

    def _sizes(self, group: Group, rows: int, row: int, verb: str) -> list[int]:
        told = Exchange(group, [rows, row])
        group.native.run([told.op], told)
        return self._agreed_sizes(group, told, verb)

    def _agreed_sizes(self, group: Group, told: Exchange, verb: str) -> list[int]:
        """Returns every rank's dim 0, once the ranks have told each other."""
        table = told.rows()
        self._same_rows(group, [line[1] for line in table], verb)
        return [line[0] for line in table]

    def _same_rows(self, group: Group, rows: Sequence[int], verb: str) -> None:
        for rank, other in zip(group.ranks, rows, strict=True):
            if other != rows[0]:
                raise MismatchError(
                    f"Mismatched {verb.upper()} tensor shapes: One rank sent a tensor with rows of"
                    f" {rows[0]} elements, but another rank sent a tensor with rows of {other}."
                    f" {verb}: a row has {rows[0]} elements on rank {group.ranks[0]} but {other} on"
                    f" rank {rank}",
                    rank=rank,
                    op=verb,
                )


for _form, _name in (
    (Verbs.run_allreduce, "allreduce"),
    (Verbs.start_allreduce, "allreduce_async"),
):
    present_as(_form, _name, Verbs.allreduce)


def names_of(xs: Sequence[object], name: str | None, verb: str) -> list[str | None]:
    """Returns the names of a group's arrays; InvalidArgumentError if there are no arrays."""
    if not xs:
        raise InvalidArgumentError(f"{verb}: no arrays given")
    return [None if name is None else f"{name}.{i}" for i in range(len(xs))]


def even_rows(rows: int, ranks: int) -> list[int]:
    """Returns each rank's part of the rows; the first ranks get one more if they cannot be even."""
    return [rows // ranks + (rank < rows % ranks) for rank in range(ranks)]


def _check_scales(prescale_factor: object, postscale_factor: object) -> None:
    _arguments.number("prescale_factor", prescale_factor)
    _arguments.number("postscale_factor", postscale_factor)


def _address_of(compression: Any) -> int:
    address = 0 if compression is None else getattr(compression, "address", None)
    if not isinstance(address, int):
        raise InvalidArgumentError(
            f"compression has to be a codec of the engine or None, not {compression!r}"
        )
    return address


def _checked_op(op: object) -> ReduceOp:
    if not isinstance(op, ReduceOp):
        raise InvalidArgumentError(
            f"op has to be corro.Sum, Average, Min, Max, Product or Adasum, not {op!r}"
        )
    return op


def _checked_sizes(sizes: Sequence[int], group: Group, rows: int, row: int) -> list[int]:
    """Returns allgather's sizes as ints; raises InvalidArgumentError if they could never be."""
    sizes = [index(size) for size in sizes]
    if len(sizes) != group.size():
        raise InvalidArgumentError(
            f"allgather: {len(sizes)} sizes were given for {group.size()} ranks"
        )
    if min(sizes) < 0 or max(sizes) * row > _MOST:
        raise InvalidArgumentError(
            f"allgather: sizes {sizes} have to lie between 0 and 2^40 elements, of {row} a row"
        )
    if sizes[group.rank()] != rows:
        raise InvalidArgumentError(
            f"allgather: sizes has {sizes[group.rank()]} rows for this rank, but its array {rows}"
        )
    return sizes


def _product(shape: Sequence[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count
