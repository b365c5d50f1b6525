"""corro's verbs on torch tensors.

Contiguous CPU tensors are used where they are. Others are copied: tensors of a GPU through pinned
memory, on the current stream, before the call returns (results: when it is waited for).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from corro import _arguments, _context, _native
from corro._calls import Call, Handle, poll, present_as, running, starting, synchronize
from corro._context import Group
from corro._reduce_op import Average, ReduceOp
from corro._verbs import Frontend, Verbs, names_of
from corro.errors import InvalidArgumentError
from corro.torch.compression import Compressor, EngineCodec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Handle",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "empty",
    "gather",
    "gather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "poll",
    "recv",
    "recv_async",
    "reduce",
    "reduce_async",
    "reducescatter",
    "reducescatter_async",
    "scatter",
    "scatter_async",
    "send",
    "send_async",
    "synchronize",
]

DTYPES = {
    torch.bool: _native.BOOL,
    torch.uint8: _native.U8,
    torch.int8: _native.I8,
    torch.int16: _native.I16,
    torch.int32: _native.I32,
    torch.int64: _native.I64,
    torch.float16: _native.F16,
    torch.bfloat16: _native.BF16,
    torch.float32: _native.F32,
    torch.float64: _native.F64,
}
for _name in ("uint16", "uint32", "uint64"):  # torch has them since 2.3.
    if hasattr(torch, _name):
        DTYPES[getattr(torch, _name)] = getattr(_native, f"U{_name[4:]}")

ARRAYS = _native.Arrays(torch.Tensor, torch.empty_like, DTYPES)


def type_name(tensor: Tensor) -> str:
    """Returns the name of the tensor's dtype, as numpy has it where it has one."""
    return str(tensor.dtype).removeprefix("torch.")


def is_host(tensor: Tensor) -> bool:
    """Returns whether the engine can use the tensor's memory as it is.

    Not if torch only notes that it is to be conjugated or negated.
    """
    as_is = not tensor.is_conj() and not tensor.is_neg()
    return as_is and tensor.is_cpu and tensor.is_contiguous()


def host_like(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Returns a new host tensor; pinned if it is to travel to or from a GPU."""
    # Its user may have set another default device: the engine needs the host's memory.
    return torch.empty(tuple(shape), dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)


def fill(host: Tensor, tensor: Tensor) -> Tensor:
    """Copies the tensor's content into host memory, which it returns.

    torch 2.11 loses the sign of a strided tensor that it only notes to be negated, on the way from
    a GPU into pinned memory.
    """
    return host.copy_(tensor.detach().resolve_conj().resolve_neg())


def to_host(tensor: Tensor) -> Tensor:
    """Returns a host tensor with the tensor's content: itself if it is one."""
    if is_host(tensor):
        return tensor
    return fill(host_like(tensor, tensor.shape), tensor)


class _Torch(Frontend["Tensor"]):
    """torch behind the verbs."""

    def arrays(self) -> _native.Arrays:
        return ARRAYS

    def dtype(self, x: Tensor) -> int | None:
        return DTYPES.get(x.dtype)

    def type_name(self, x: Tensor) -> str:
        return type_name(x)

    def same_dtype(self, x: Tensor, y: Tensor) -> bool:
        return x.dtype == y.dtype

    def itemsize(self, x: Tensor) -> int:
        return x.element_size()

    def shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def count(self, x: Tensor) -> int:
        return x.numel()

    def pointer(self, host: Tensor) -> int:
        return host.data_ptr()

    def readable(self, x: Tensor) -> Tensor:
        if not isinstance(x, torch.Tensor):
            raise InvalidArgumentError(f"a torch tensor is needed, not a {type(x).__name__}")
        if x.layout != torch.strided:
            raise InvalidArgumentError(f"a dense tensor is needed, not one of layout {x.layout}")
        return to_host(x)

    def writable(self, x: Tensor) -> Tensor:
        return x if is_host(x) else host_like(x, x.shape)

    def empty(self, shape: Sequence[int], like: Tensor) -> Tensor:
        return host_like(like, shape)

    def of_memory(self, memory: memoryview, shape: Sequence[int], like: Tensor) -> Tensor:
        if not memory:
            return host_like(like, shape)
        return torch.frombuffer(memory, dtype=like.dtype).view(tuple(shape))

    def assign(self, target: Tensor, host: Tensor) -> None:
        target.detach().copy_(host)

    def home(self, host: Tensor, like: Tensor) -> Tensor:
        return host.to(like.device)


def empty(shape: int | Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns a zero-filled tensor in memory that this host's ranks share: verbs need no copy.

    It stays valid after corro.shutdown().
    """
    dims = _arguments.shape(shape)
    return arena_tensor(_context.current().engine, dims, dtype)


def arena_tensor(engine: _native.Engine, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Returns a zero-filled tensor in an engine's arena."""
    count = 1
    for n in shape:
        count *= n
    if count == 0:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    memory = engine.alloc(count * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype).view(tuple(shape))


class TorchVerbs(Verbs["Tensor"]):
    """The verbs, and their in-place forms."""

    def allreduce(
        self,
        x: Tensor,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        out: Tensor | None = None,
        group: Group | None = None,
        compression: EngineCodec | Compressor | None = None,
    ) -> Call[Tensor]:
        """Reduces x over all ranks and returns the result; the average by default.

        Args:
            x: the tensor; same shape and dtype on every rank.
            op: the reduction; averages of integers round toward zero.
            name: says which tensor this is: ranks may reduce named tensors in different orders, and
                small ones travel together. Without a name the order of the calls says it.
            prescale_factor: each rank's x is multiplied by it (and rounded) first.
            postscale_factor: the result is multiplied by it before it is rounded.
            out: where the result goes; may be x. A new tensor if not given.
            group: the ranks that take part; the world if not given.
            compression: a smaller form in which floating-point tensors travel; on every rank alike.
        """
        factors: Any = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        if compression is None or isinstance(compression, EngineCodec):
            return super().allreduce(
                x, op, name, **factors, out=out, group=group, compression=compression
            )
        small, context = compression.compress(x)

        def whole(reduced: Tensor) -> Tensor:
            result = compression.decompress(reduced, context)
            return result if out is None else out.detach().copy_(result)

        return super().allreduce(small, op, name, **factors, group=group).mapped(whole)

    def allreduce_(
        self,
        x: Tensor,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        group: Group | None = None,
        compression: EngineCodec | Compressor | None = None,
    ) -> Call[Tensor]:
        """Reduces x over all ranks, in place; otherwise as allreduce."""
        return self.allreduce(
            x,
            op,
            name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            out=x,
            group=group,
            compression=compression,
        )

    def run_allreduce_(
        self,
        x: Tensor,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        group: Group | None = None,
        compression: EngineCodec | Compressor | None = None,
    ) -> Tensor:
        return self.run_allreduce(
            x,
            op,
            name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            out=x,
            group=group,
            compression=compression,
        )

    def start_allreduce_(
        self,
        x: Tensor,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        group: Group | None = None,
        compression: EngineCodec | Compressor | None = None,
    ) -> Handle[Tensor]:
        return self.start_allreduce(
            x,
            op,
            name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            out=x,
            group=group,
            compression=compression,
        )

    def grouped_allreduce_(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        group: Group | None = None,
        compression: EngineCodec | Compressor | None = None,
    ) -> Call[list[Tensor]]:
        """Reduces several tensors as one unit, in place; otherwise as grouped_allreduce."""
        return self.grouped_allreduce(
            xs,
            op,
            name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            outs=xs,
            group=group,
            compression=compression,
        )

    def reducescatter(
        self,
        x: Tensor,
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        group: Group | None = None,
        compression: EngineCodec | Compressor | None = None,
    ) -> Call[Tensor]:
        """Reduces x over all ranks and returns this rank's part of dim 0; name as in allreduce.

        If dim 0 cannot be divided evenly, the first ranks get one row more. `compression` has a
        compress(), which is called here, and a decompress(), which gets the part.
        """
        context: Any = None
        small, context = (x, None) if compression is None else compression.compress(x)
        call = super().reducescatter(
            small,
            op,
            name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            group=group,
        )
        if compression is None:
            return call
        return call.mapped(lambda part: compression.decompress(part, context))

    def grouped_reducescatter(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = Average,
        name: str | None = None,
        *,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        group: Group | None = None,
        compression: EngineCodec | Compressor | None = None,
    ) -> Call[list[Tensor]]:
        """Reduces several tensors and returns this rank's part of each; as one unit.

        Otherwise as reducescatter. With a name, the tensors have the names `name.0` and so on.
        """
        return self.scattered(
            xs,
            op,
            names_of(xs, name, "grouped_reducescatter"),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            group=group,
            compression=compression,
        )

    def broadcast_(
        self,
        x: Tensor,
        root_rank: int = 0,
        name: str | None = None,
        *,
        group: Group | None = None,
    ) -> Call[Tensor]:
        """Fills x with the root's x on every rank."""
        return self.broadcast(x, root_rank, name, out=x, group=group)


present_as(TorchVerbs.run_allreduce_, "allreduce_", TorchVerbs.allreduce_)
present_as(TorchVerbs.start_allreduce_, "allreduce_async_", TorchVerbs.allreduce_)
calls = TorchVerbs(_Torch())

allreduce, allreduce_async = calls.run_allreduce, calls.start_allreduce
allreduce_, allreduce_async_ = calls.run_allreduce_, calls.start_allreduce_
grouped_allreduce = running(calls.grouped_allreduce)
grouped_allreduce_async = starting(calls.grouped_allreduce)
grouped_allreduce_ = running(calls.grouped_allreduce_)
grouped_allreduce_async_ = starting(calls.grouped_allreduce_)
grouped_allgather = running(calls.grouped_allgather)
grouped_allgather_async = starting(calls.grouped_allgather)
grouped_reducescatter = running(calls.grouped_reducescatter)
grouped_reducescatter_async = starting(calls.grouped_reducescatter)
allgather, allgather_async = running(calls.allgather), starting(calls.allgather)
broadcast, broadcast_async = running(calls.broadcast), starting(calls.broadcast)
broadcast_, broadcast_async_ = running(calls.broadcast_), starting(calls.broadcast_)
reduce, reduce_async = running(calls.reduce), starting(calls.reduce)
reducescatter, reducescatter_async = running(calls.reducescatter), starting(calls.reducescatter)
alltoall, alltoall_async = running(calls.alltoall), starting(calls.alltoall)
gather, gather_async = running(calls.gather), starting(calls.gather)
scatter, scatter_async = running(calls.scatter), starting(calls.scatter)
send, send_async = running(calls.send), starting(calls.send)
recv, recv_async = running(calls.recv), starting(calls.recv)
