"""Verbs in functions that JAX compiles, differentiates or maps: one primitive for all of them.

A compiled program calls libcorro_jax.so, which starts the operations by their names and returns;
no thread of XLA waits. An operation's name is its program's and its number there, in the order of
the function, so ranks that compile the same function need no other order, and XLA may run what does
not depend on each other as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import CDLL
from itertools import count
from pathlib import Path
from typing import Any

import jax
import numpy
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import corro
from corro import _context, _native, _rules
from corro._context import Group
from corro._reduce_op import Adasum, Average, ReduceOp, Sum
from corro.errors import InvalidArgumentError
from corro.jax import _eager
from corro.jax._arrays import dtype_of
from corro.jax._background import BACKGROUND
from corro.jax._machine import fingerprint
from corro.jax.compression import CastCodec, Compression

_TARGET = "corro_collective"
_library = CDLL(str(Path(corro.__file__).parent / "libcorro_jax.so"))
jax.ffi.register_ffi_target(
    _TARGET,
    {
        "instantiate": jax.ffi.pycapsule(_library.corro_jax_instantiate),
        "execute": jax.ffi.pycapsule(_library.corro_jax_execute),
    },
    platform="cpu",
)

_WITH_ROWS = {
    _native.ALLGATHER: "allgather",
    _native.REDUCESCATTER: "reducescatter",
    _native.ALLTOALL: "alltoall",
}
_DIVIDED = (_native.REDUCESCATTER, _native.ALLTOALL)
_REDUCTIONS = {
    _native.ALLREDUCE: "allreduce",
    _native.REDUCESCATTER: "reducescatter",
    _native.REDUCE: "reduce",
}

_collective = Primitive("corro_collective")
_collective.multiple_results = True


def collective(
    kind: int,
    arrays: Sequence[Any],
    *,
    op: ReduceOp = Sum,
    root_rank: int | None = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    group: Group | None = None,
    codec: CastCodec = Compression.none,
    name: str | None = None,
) -> list[Any]:
    """Returns what a verb makes of each of the arrays, which start as one unit.

    Args:
        kind: the verb, one of _native's; a REDUCE gives others than the root zeros.
        arrays: of shapes that are the same on every rank.
        op: of a reduction.
        root_rank: of the world.
        prescale: each contribution is multiplied by it first.
        postscale: the result is multiplied by it.
        group: the ranks that take part; the world if not given.
        codec: in which an ALLREDUCE travels.
        name: instead of the program's and a number.

    Raises:
        InvalidArgumentError: corro has no such operation on these.
    """
    found = _context.world_or(group)
    for x in arrays:
        _check(kind, jax.typeof(x), found.size())
    made: list[Any] = _collective.bind(
        *arrays,
        kind=kind,
        op=op,
        root=0 if root_rank is None else found.index_of(root_rank),
        prescale=prescale,
        postscale=postscale,
        group=found,
        size=found.size(),
        codec=codec,
        name=name,
    )
    return made


def _check(kind: int, x: Any, size: int) -> None:
    if kind in _REDUCTIONS:
        _rules.reducible(dtype_of(x.dtype), _REDUCTIONS[kind], x.dtype)
    elif dtype_of(x.dtype) is None:
        raise InvalidArgumentError(
            f"{x.dtype} cannot be sent by a compiled function; it can outside of jit"
        )
    if kind in _WITH_ROWS and not x.shape:
        raise InvalidArgumentError(
            f"{_WITH_ROWS[kind]}: at least one dim is needed; reshape a scalar to (1,)"
        )
    if kind in _DIVIDED and x.shape[0] % size != 0:
        raise InvalidArgumentError(
            f"{_WITH_ROWS[kind]}: {x.shape[0]} rows do not divide by {size} ranks, as they have to"
            " in a compiled function"
        )


_collective.def_impl(_eager.run)


def _shapes(*arrays: Any, kind: int, size: int, **_: Any) -> list[Any]:
    return [jax.core.ShapedArray(_shape(x.shape, kind, size), x.dtype) for x in arrays]


def _shape(shape: tuple[int, ...], kind: int, size: int) -> tuple[int, ...]:
    if kind == _native.ALLGATHER:
        return (shape[0] * size, *shape[1:])
    return (shape[0] // size, *shape[1:]) if kind == _native.REDUCESCATTER else shape


_collective.def_abstract_eval(_shapes)


# -- the program that XLA compiles ----------------------------------------------------------------

_machine = fingerprint()
_serials: dict[str, count[int]] = {}  # How often a program of each name has been made.


def _lower(
    ctx: Any,
    *arrays: Any,
    kind: int,
    op: ReduceOp,
    root: int,
    prescale: float,
    postscale: float,
    group: Group,
    size: int,
    codec: CastCodec,
    name: str | None,
) -> Any:
    _check_devices(ctx.module_context.axis_context)
    if not _serials:
        _context.add_background(BACKGROUND)
    program, serial, number = _place(ctx.module_context)
    rule = jax.ffi.ffi_lowering(_TARGET, has_side_effect=True)
    return rule(
        ctx,
        *arrays,
        kind=numpy.int64(kind),
        reduce_op=numpy.int64(op),
        root=numpy.int64(root),
        prescale=numpy.float64(prescale),
        postscale=numpy.float64(postscale),
        group=numpy.int64(group.number),
        size=numpy.int64(size),
        codec=numpy.int64(-1 if codec.dtype is None else codec.dtype),
        name=name or f"{program}.{number}",
        site=f"{program}.{serial}.{number}",
        machine=_machine,
    )


def _check_devices(axis_context: Any) -> None:
    mesh = getattr(axis_context, "mesh", None)
    devices = getattr(axis_context, "num_devices", None) or (mesh.size if mesh is not None else 1)
    if devices > 1:
        raise InvalidArgumentError(
            f"corro.jax: a rank has one device in a compiled function, and this one has {devices};"
            " start a rank for each"
        )


def _place(module_context: Any) -> tuple[str, int, int]:
    """Returns a program's name, which of this name it is, and how many verbs it had before."""
    program = module_context.module.operation.attributes["sym_name"].value
    # What JAX keeps while it makes one program; nothing else of it is the same for all its parts.
    kept = module_context.cached_primitive_lowerings
    if _TARGET not in kept:
        kept[_TARGET] = (next(_serials.setdefault(program, count())), count())
    serial, numbers = kept[_TARGET]
    return program, serial, next(numbers)


def _refuse(ctx: Any, *_arrays: Any, **_: Any) -> Any:
    raise InvalidArgumentError(
        f"corro.jax: works in CPU memory, and this function is compiled for"
        f" {', '.join(ctx.module_context.platforms)}: jax.jit of arrays on jax.devices('cpu')[0]"
    )


mlir.register_lowering(_collective, _refuse)
mlir.register_lowering(_collective, _lower, platform="cpu", cacheable=False)


# -- derivatives ----------------------------------------------------------------------------------


def _named(name: str | None, what: str) -> str | None:
    return name and f"{name}.{what}"


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **how: Any) -> tuple[Any, Any]:
    """They are linear, but for the reductions that choose or multiply."""
    results = _collective.bind(*primals, **how)
    if how["kind"] in _REDUCTIONS and how["op"] not in (Sum, Average):
        verb = _REDUCTIONS[how["kind"]]
        raise InvalidArgumentError(
            f"{verb}: only sums and averages can be differentiated, not {how['op'].name}"
        )
    own = {**how, "name": _named(how["name"], "tangent")}
    return results, _of_some(lambda some: _collective.bind(*some, **own), tangents, results)


def _of_some(
    run: Callable[[list[Any]], list[Any]], given: Sequence[Any], like: Sequence[Any]
) -> list[Any]:
    """Runs it with those that are not zero, and returns zeros for the others."""
    some = [x for x in given if type(x) is not ad.Zero]
    made = iter(run(some) if some else [])
    return [
        ad.Zero(jax.typeof(one).to_tangent_aval()) if type(x) is ad.Zero else next(made)
        for x, one in zip(given, like, strict=True)
    ]


def _transpose(cotangents: Sequence[Any], *arrays: Any, **how: Any) -> list[Any]:
    """As Horovod defines them."""
    some = [x for x in cotangents if type(x) is not ad.Zero]
    made = iter(_back(some, **how) if some else [])
    return [
        ad.Zero(one.aval) if type(x) is ad.Zero else next(made)
        for x, one in zip(cotangents, arrays, strict=True)
    ]


def _back(cotangents: list[Any], kind: int, op: ReduceOp, **how: Any) -> list[Any]:
    how = {**how, "name": _named(how["name"], "gradient")}
    scale = how["prescale"] * how["postscale"]

    def bind(kind: int, op: ReduceOp, **other: Any) -> list[Any]:
        made: list[Any] = _collective.bind(*cotangents, kind=kind, op=op, **{**how, **other})
        return made

    plain = {"prescale": 1.0, "postscale": 1.0}
    if kind == _native.BROADCAST:  # The average of all ranks' for the root, and nothing for others.
        return bind(_native.REDUCE, Average)
    if kind == _native.REDUCE:
        return bind(_native.BROADCAST, Sum)
    if kind == _native.ALLGATHER:  # This rank's rows of the average of all ranks'.
        return bind(_native.REDUCESCATTER, Average)
    if kind == _native.REDUCESCATTER:  # All ranks' rows, as the sum of all losses has them.
        factor = scale * (how["size"] if op == Sum else 1)
        return [factor * x for x in bind(_native.ALLGATHER, Sum, **plain)]
    return bind(kind, op)  # Each row goes back; what all ranks' losses say of a sum is one.


ad.primitive_jvps[_collective] = _jvp
ad.primitive_transposes[_collective] = _transpose


# -- vmap -----------------------------------------------------------------------------------------


def _batch(arrays: Sequence[Any], dims: Sequence[Any], **how: Any) -> tuple[list[Any], Any]:
    """One operation on all of the arrays that are mapped over."""
    if how["op"] == Adasum and how["kind"] in _REDUCTIONS:
        raise InvalidArgumentError("allreduce: Adasum looks at an array as a whole; not in vmap")
    if how["kind"] in _WITH_ROWS:  # Dim 0 stays what it is.
        arrays = [
            x if dim is None else jax.numpy.moveaxis(x, dim, -1)
            for x, dim in zip(arrays, dims, strict=True)
        ]
        dims = [dim if dim is None else x.ndim - 1 for x, dim in zip(arrays, dims, strict=True)]
    return _collective.bind(*arrays, **how), list(dims)


batching.primitive_batchers[_collective] = _batch
