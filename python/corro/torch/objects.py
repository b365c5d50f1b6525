"""Making ranks equal: parameters, optimizer states and Python objects.

Objects travel as pickles, between the authenticated ranks of one job only; tensors and optimizer
states do not.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from corro import _context
from corro._calls import Call
from corro._context import Group, exchange
from corro.errors import InvalidArgumentError
from corro.torch import verbs

if TYPE_CHECKING:
    from torch import Tensor

Parameters = Mapping[str, Any] | Iterable["Tensor | tuple[str, Tensor]"]


def broadcast_parameters(
    params: Parameters, root_rank: int = 0, *, group: Group | None = None
) -> None:
    """Fills the tensors on every rank with the root's, as one unit.

    Args:
        params: model.state_dict(), model.named_parameters() or a list of tensors; values of other
            types are left alone.
        root_rank: whose values all get.
        group: the ranks that take part; the world if not given.
    """
    if isinstance(params, torch.nn.Module):
        raise InvalidArgumentError(
            "params has to be the state_dict() or named_parameters() of the module, not the module"
        )
    pairs: Iterable[Any] = sorted(params.items()) if isinstance(params, Mapping) else params
    values = [pair[1] if isinstance(pair, tuple) else pair for pair in pairs]
    if not isinstance(params, Mapping) and not all(isinstance(v, torch.Tensor) for v in values):
        raise InvalidArgumentError(
            "params has to be a dict, or a list of tensors or (name, tensor)"
        )
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not tensors:
        return
    Call.joined([verbs.calls.broadcast_(t, root_rank, group=group) for t in tensors]).run()


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int = 0, *, group: Group | None = None
) -> None:
    """Loads the root's optimizer state, hyperparameters included, on every rank."""
    group = group if group is not None else _context.world()
    file = io.BytesIO()
    if _is_root(group, root_rank):
        torch.save(optimizer.state_dict(), file)
    data = _broadcast_bytes(file.getvalue(), root_rank, group)
    if not _is_root(group, root_rank):
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        optimizer.load_state_dict(state)


def broadcast_object(obj: Any, root_rank: int = 0, *, group: Group | None = None) -> Any:
    """Returns the root's object on every rank."""
    group = group if group is not None else _context.world()
    is_root = _is_root(group, root_rank)
    data = _broadcast_bytes(pickle.dumps(obj) if is_root else b"", root_rank, group)
    return obj if is_root else pickle.loads(data)


def allgather_object(obj: Any, *, group: Group | None = None) -> list[Any]:
    """Returns every rank's object, in rank order."""
    group = group if group is not None else _context.world()
    mine = _tensor_of(pickle.dumps(obj))
    sizes = [line[0] for line in exchange(group, [mine.numel()])]
    parts = torch.split(verbs.allgather(mine, sizes=sizes, group=group), sizes)
    return [pickle.loads(part.numpy().tobytes()) for part in parts]


def _is_root(group: Group, root_rank: int) -> bool:
    return group.rank() == group.index_of(root_rank)


def _tensor_of(data: bytes) -> Tensor:
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(0, dtype=torch.uint8)
    )


def _broadcast_bytes(data: bytes, root_rank: int, group: Group) -> bytes:
    sizes = exchange(group, [len(data)])
    size = sizes[group.index_of(root_rank)][0]
    tensor = (
        _tensor_of(data) if _is_root(group, root_rank) else torch.empty(size, dtype=torch.uint8)
    )
    return bytes(verbs.broadcast_(tensor, root_rank, group=group).numpy().tobytes())
