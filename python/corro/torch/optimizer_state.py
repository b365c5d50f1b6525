"""broadcast_optimizer_state(): the root's options and state, on every rank, in place.

    root      pack state_dict() and defaults; tensors apart          (tensor_pickle.py)
    all       broadcast the pickle, then the tensors' bytes
    others    load: the list of groups, each group's dict and each parameter's dict stay the
              objects that they are, and tensors of the same form keep their memory
    all       say whether loading went well

What cannot be packed or loaded is an error on every rank, which names the rank.

Values arrive as they are on the root, with their types and dtypes; torch's load_state_dict() would
cast state to the dtype of its parameter, so that the root alone would keep more digits. It is used
where the optimizer or one of its hooks has something to say about loading.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch

from corro._context import Group, exchange, world_or
from corro._objects import allgather_object, broadcast_bytes, is_root
from corro.errors import InvalidArgumentError
from corro.torch import verbs
from corro.torch.memory_order import dense_strides
from corro.torch.sharded import is_sharded, moved
from corro.torch.tensor_pickle import Packed, Unpacked

if TYPE_CHECKING:
    from torch import Tensor

_CALLER = "broadcast_optimizer_state"


class Received(Protocol):
    """An optimizer's state that comes from elsewhere."""

    @property
    def object(self) -> Any:
        """A dict: its `state_dict` and its `defaults`."""

    @property
    def on_device(self) -> set[int]:
        """Ids of tensors in it that belong onto their parameters' device."""


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int = 0,
    name: str | None = None,
    *,
    group: Group | None = None,
) -> None:
    """Makes every rank's optimizer have the root's state, hyperparameters and defaults.

    It changes the optimizer in place: who holds one of its `param_groups` sees the new values. An
    option may be anything that pickle can write, numpy's numbers among them. InvalidArgumentError
    on every rank if one cannot be written, or if a rank cannot load them; it names the rank.

    With a name its place among the group's other operations may differ by rank.
    """
    broadcast_state(optimizer, root_rank, name, world_or(group), pickle.Pickler)


def broadcast_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    name: str | None,
    group: Group,
    pickler: type[pickle.Pickler],
) -> None:
    """broadcast_optimizer_state() of what the pickler can write."""
    load = receive_state(optimizer, root_rank, name, group, pickler)
    if group.size() == 1:
        return
    failure: Exception | None = None
    try:
        load()
    except Exception as error:  # Loading runs methods of the user's classes.
        failure = error
    _check_that_all_have_loaded(group, root_rank, failure, name)


def receive_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    name: str | None,
    group: Group,
    pickler: type[pickle.Pickler] = pickle.Pickler,
) -> Callable[[], None]:
    """Blocks until the root's state is here; what it returns loads that, on this rank alone."""
    if group.size() == 1:
        return _nothing
    received = broadcast_packed(
        _CALLER, lambda: _packed(optimizer, pickler), root_rank, group, name
    )
    return _nothing if received is None else lambda: load_state(optimizer, received())


def broadcast_packed(
    caller: str,
    make: Callable[[], Packed],
    root_rank: int,
    group: Group,
    name: str | None = None,
) -> Callable[[], Unpacked] | None:
    """Returns what unpacks what the root has packed, on all other ranks; None on the root. Blocks.

    Unpacking is this rank's own, and may run code of the user's. Tensors are in the host's memory.
    InvalidArgumentError on every rank if `make` fails.
    """
    filled: list[Tensor] = []

    def pack() -> bytes:
        packed = make()
        filled.append(torch.empty(packed.bytes, dtype=torch.uint8, device="cpu"))
        packed.fill(filled[0])
        return pickle.dumps((packed.bytes, packed.pickle))

    root = is_root(group, root_rank)
    size, data = pickle.loads(broadcast_bytes(caller, pack, root_rank, group, name))
    memory = filled[0] if root else torch.empty(size, dtype=torch.uint8, device="cpu")
    verbs.broadcast_(memory, root_rank, name and f"{name}.tensors", group=group)
    return None if root else partial(Unpacked, data, memory)


def _nothing() -> None:
    """The root has its state."""


def _packed(optimizer: torch.optim.Optimizer, pickler: type[pickle.Pickler]) -> Packed:
    whole = {"state_dict": optimizer.state_dict(), "defaults": optimizer.defaults}
    try:
        return Packed(whole, pickler)
    except Exception as error:
        for what, value in _values(whole):
            try:
                Packed(value, pickler)
            except Exception:
                raise InvalidArgumentError(f"cannot send {what}, {value!r}: {error}") from error
        raise


def _values(whole: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields all that an optimizer has, with what to call it in a message."""
    for number, group in enumerate(whole["state_dict"]["param_groups"]):
        for key, value in group.items():
            yield f"option {key!r} of parameter group {number}", value
    for key, value in whole["defaults"].items():
        yield f"default {key!r}", value
    for number, state in whole["state_dict"]["state"].items():
        for key, value in state.items() if isinstance(state, dict) else [("", state)]:
            yield f"state {key!r} of parameter {number}", value


def _check_that_all_have_loaded(
    group: Group, root_rank: int, failure: Exception | None, name: str | None
) -> None:
    rows = exchange(group, [failure is not None], name=name and f"{name}.loaded")
    if not any(failed for (failed,) in rows):
        return
    text = "" if failure is None else f"{type(failure).__name__}: {failure}"
    everyone = allgather_object(text, name and f"{name}.failures", group=group)
    rank, text = next(pair for pair in zip(group.ranks, everyone, strict=True) if pair[1])
    raise InvalidArgumentError(
        f"{_CALLER}: rank {rank} cannot load what rank {root_rank} has: {text}"
    ) from failure


# -- loading --------------------------------------------------------------------------------------


def load_state(optimizer: torch.optim.Optimizer, received: Received) -> None:
    """Makes it the optimizer's, in place."""
    groups, state = optimizer.param_groups, optimizer.state
    if _has_its_own_loading(optimizer):
        optimizer.load_state_dict(received.object["state_dict"])
        new_groups, new_state = optimizer.param_groups, dict(optimizer.state)
    else:
        new_groups, new_state = _content(groups, received)
    first = groups[0]["params"][0]
    merge = _Merge()
    for group, new in zip(groups, new_groups, strict=True):
        merge.update(group, {"params": group["params"], **new})
    merge.update(state, new_state)
    merge.update(optimizer.defaults, _placed(received.object["defaults"], first, received))
    optimizer.__setstate__({"state": state, "param_groups": groups})


def _has_its_own_loading(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether the optimizer, or a hook, has a say in what state_dict() is and does."""
    plain, own = torch.optim.Optimizer, type(optimizer)
    hooks = (
        optimizer._optimizer_state_dict_pre_hooks,
        optimizer._optimizer_state_dict_post_hooks,
        optimizer._optimizer_load_state_dict_pre_hooks,
        optimizer._optimizer_load_state_dict_post_hooks,
    )
    changed = any(
        getattr(own, name) is not getattr(plain, name) or name in vars(optimizer)
        for name in ("state_dict", "load_state_dict")
    )
    return changed or any(hooks)


def _content(
    groups: list[dict[str, Any]], received: Received
) -> tuple[list[dict[str, Any]], dict[Any, Any]]:
    """Returns the groups' options and the state, as this rank's parameters need them."""
    saved = received.object["state_dict"]
    sizes = [len(group["params"]) for group in groups]
    theirs = [len(group["params"]) for group in saved["param_groups"]]
    if sizes != theirs:
        raise InvalidArgumentError(f"parameter groups of {theirs} parameters, {sizes} here")
    params: dict[int, Tensor] = {}
    options = []
    for group, new in zip(groups, saved["param_groups"], strict=True):
        params.update(zip(new["params"], group["params"], strict=True))
        first = group["params"][0] if group["params"] else groups[0]["params"][0]
        names = {key: group[key] for key in ("param_names",) if key in group}
        options.append(
            names | {k: _placed(v, first, received) for k, v in new.items() if k != "params"}
        )
    first = groups[0]["params"][0]
    state = {
        params.get(key, key): _placed(value, params.get(key, first), received)
        for key, value in saved["state"].items()
    }
    return options, state


def _placed(value: Any, param: Tensor, received: Received) -> Any:
    """Returns the value for this parameter: its tensors on the device, and in the memory order."""
    if isinstance(value, torch.Tensor):
        return _placed_tensor(value, param, id(value) in received.on_device)
    if isinstance(value, dict):
        placed = {key: _placed(one, param, received) for key, one in value.items()}
        return placed if type(value) is dict else value
    if type(value) in (list, tuple):
        return type(value)(_placed(one, param, received) for one in value)
    return value


def _placed_tensor(value: Tensor, param: Tensor, on_device: bool) -> Tensor:
    device = param.device if on_device else value.device
    if is_sharded(value):
        return moved(value, device)
    strides = dense_strides(param)
    as_it_lies = value.shape != param.shape or list(value.stride()) == strides
    if as_it_lies or value.layout != torch.strided or value.requires_grad:
        return value.to(device)
    made = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=device)
    return made.copy_(value)


class _Merge:
    """Gives dicts new content; they, and tensors of the same form, stay the same objects."""

    def __init__(self) -> None:
        self._written: set[int] = set()  # Ids of tensors: two options may share one.

    def update(self, target: dict[Any, Any], source: Mapping[Any, Any]) -> None:
        for key in [key for key in target if key not in source]:
            del target[key]
        for key, value in source.items():
            target[key] = self._merged(target.get(key), value)

    def _merged(self, old: Any, new: Any) -> Any:
        if old is new:
            return new
        if type(old) is dict and type(new) is dict:
            self.update(old, new)
            return old
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
            return new
        if not _same_form(old, new) or id(old) in self._written:
            return new
        self._written.add(id(old))
        with torch.no_grad():
            return old.copy_(new)


def _same_form(a: Tensor, b: Tensor) -> bool:
    """Returns whether b's values can be written to a's memory, and a be used in b's place."""
    return (
        type(a) is type(b) is torch.Tensor
        and (a.shape, a.dtype, a.device, a.layout) == (b.shape, b.dtype, b.device, b.layout)
        and a.layout == torch.strided
        and a.stride() == b.stride()
        and not (a._is_view() or a.requires_grad or b.requires_grad)
    )
