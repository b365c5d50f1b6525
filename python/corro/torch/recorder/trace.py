"""One forward and backward on fake tensors, written down: operations, values, calls, what is kept.

A *value* is what a storage holds between two writes; views are no operations of their own. An
*event* is an operation that writes values. A *call* is one execution of a module's forward, with
the events from its start to its end. A *save* is a storage that autograd keeps for backward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from corro.torch.recorder.fakes import CPU
from corro.torch.recorder.operations import SHAPE_ONLY, base_name, flops_of

PARAMETER, INPUT, SIDE, CONSTANT, COMPUTED = "parameter", "input", "side", "constant", "computed"
NONE: frozenset[int] = frozenset()
MOST_REAL_BYTES = 64 << 20  # Of an unknown operation that is run on zeros to learn its shapes.


@dataclass(slots=True)
class Value:
    """What a storage holds after one write; `bytes` are those of the tensor, not of the storage.

    Masks and tables of angles are not active, so that any layer may use them: what a chain of
    layers hands on is what samples and parameters have met in.
    """

    origin: str
    bytes: int
    elements: int
    producer: int = -1  # An event's number; -1: it was there before.
    sampled: bool = False  # It depends on the model's inputs.
    active: bool = False  # It depends on the first input's numbers, or on inputs and parameters.
    parameters: frozenset[int] = NONE  # Of a value that depends on these and on no input.


@dataclass(slots=True, eq=False)
class Call:
    """One execution of a module's forward."""

    path: str
    module: nn.Module
    parent: Call | None
    start: int
    end: int = -1
    children: list[Call] = field(default_factory=list)
    takes: tuple[int | None, ...] = ()  # Values of the leaves of its positional arguments.
    gives: tuple[int | None, ...] = ()  # Of what it returned; None: no tensor, or a part of one.
    with_grad: bool = True  # Whether autograd was on: it is not inside of a reentrant checkpoint.


@dataclass(slots=True, eq=False)
class Event:
    """An operation: numbers of the values that it reads and writes, and what it costs."""

    name: str
    call: Call | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    out_shape: tuple[int, ...]
    flops: float
    traffic_bytes: int
    known: bool = True
    overwrites: tuple[int, ...] = ()
    """Values that it changes in place; what they are then is among `writes`."""


@dataclass(slots=True)
class Save:
    """A storage that is kept, just before event `position` or just after the one before."""

    value: int
    bytes: int
    position: int


@dataclass(frozen=True, slots=True)
class Number:
    """A number that was read from an active value, just before event `position`."""

    path: str  # Of the module that read it.
    position: int


@dataclass(slots=True)
class Trace:
    """All that one forward and backward did."""

    events: list[Event] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    root: Call | None = None
    outputs: set[int] = field(default_factory=set)  # The loss, or what the model returned.
    backward_flops: float = 0.0
    notes: list[str] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # Of parameters, by value.

    @property
    def saved_bytes(self) -> int:
        return sum(save.bytes for save in self.saves)

    def useful(self) -> list[bool]:
        """Returns for each event whether the model's outputs depend on what it writes."""
        wanted, useful = set(self.outputs), [False] * len(self.events)
        for number in reversed(range(len(self.events))):
            event = self.events[number]
            if not wanted.isdisjoint(event.writes):
                useful[number] = True
                wanted.update(event.reads)
        return useful


class Tracer(TorchDispatchMode):
    """Writes the trace while it is entered; to be entered inside of a FakeTensorMode."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace()
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._stack: list[Call] = []
        self._forward = True
        self._thread = threading.get_ident()
        self._current: dict[int, int] = {}  # By storage: its value now.
        self._alive: list[Any] = []  # So that no address of a storage comes twice.
        self._saved: set[int] = set()  # Storages.

    @property
    def place(self) -> str:
        """The module that was executed last, for messages."""
        return f"{self._stack[-1].path}: " if self._stack and self._stack[-1].path else ""

    # --- Values -------------------------------------------------------------------------------

    def declare(self, tensor: Tensor, origin: str) -> int:
        """Says what a tensor is that no event makes."""
        key = _storage(tensor)
        if key not in self._current:
            value = Value(origin, tensor.numel() * tensor.element_size(), tensor.numel())
            value.sampled = origin in (INPUT, SIDE)
            value.active = origin == INPUT and tensor.is_floating_point()
            number = len(self.trace.values)
            value.parameters = frozenset([number]) if origin == PARAMETER else NONE
            self.trace.values.append(value)
            self._current[key] = number
            self._alive.append(tensor)
        return self._current[key]

    def value_of(self, tensor: Tensor) -> int:
        """Returns the number of what a tensor holds now."""
        return self.declare(tensor, CONSTANT)

    # --- Operations ---------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(_to_cpu, (args, kwargs or {}))
        outputs, known = self._run(func, args, kwargs)
        if threading.get_ident() != self._thread and self._forward:
            return outputs
        if self._forward:
            self._log(func, args, kwargs, outputs, known)
        else:
            made = [each for each in tree_flatten(outputs)[0] if isinstance(each, Tensor)]
            self.trace.backward_flops += flops_of(base_name(func), args, made)
        return outputs

    def _run(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
        """Returns the outputs, and whether torch itself knew their shapes."""
        name = base_name(func)
        try:
            return func(*args, **kwargs), True
        except DataDependentOutputException:
            if name != "_local_scalar_dense":
                raise
            self._note(f"{name}: a number is read from a tensor; assumed to be 1")
            if self._forward and self.trace.values[self.value_of(args[0])].active:
                path = self._stack[-1].path if self._stack else ""
                self.trace.numbers.append(Number(path, len(self.trace.events)))
            dtype = args[0].dtype
            one = 1.0 if dtype.is_floating_point else 1
            return (False if dtype == torch.bool else one), True
        except DynamicOutputShapeException:
            if name != "nonzero":
                raise
            self._note(f"{name}: assumed that every element is chosen")
            shape = (args[0].numel(), args[0].dim())
            return torch.empty(shape, dtype=torch.int64, device=CPU), True
        except (UnsupportedOperatorException, NotImplementedError):
            return self._guess(func, args, kwargs), False

    def _guess(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an unknown operation on zeros; one that cannot returns what its first input is."""
        name = func._schema.name
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        size = sum(each.numel() * each.element_size() for each in tensors)
        if size <= MOST_REAL_BYTES:
            try:
                with _no_modes():
                    real_args, real_kwargs = tree_map(_zeros, (args, kwargs))
                    made = func(*real_args, **real_kwargs)
                self._note(f"{name}: unknown; its module is opaque")
                return tree_map(_like, made)
            except Exception as error:
                self._note(f"{name}: {type(error).__name__} on zeros")
        self._note(f"{name}: unknown; assumed to return what its first input is")
        return torch.empty_like(tensors[0]) if tensors else None

    def _note(self, text: str) -> None:
        path = self._stack[-1].path if self._stack else ""
        line = f"{path}: {text}" if path else text
        if line not in self.trace.notes:
            self.trace.notes.append(line)

    def _log(self, func: Any, args: Any, kwargs: Any, outputs: Any, known: bool) -> None:
        read = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        made = [each for each in tree_flatten(outputs)[0] if isinstance(each, Tensor)]
        changes = _changed(func, args, kwargs)
        before = {_storage(each) for each in read}
        fresh = [each for each in made if _storage(each) not in before]
        if not fresh and not changes:
            return
        name = base_name(func, args)
        if name in SHAPE_ONLY:
            read = []
        reads = tuple(dict.fromkeys(self.value_of(each) for each in read))
        number = len(self.trace.events)
        moved = [each for each in (*read, *fresh, *changes) if not self._is_weight(each)]
        overwrites = tuple(dict.fromkeys(self.value_of(each) for each in changes))
        writes = self._write([*fresh, *changes], number, reads)
        self.trace.events.append(
            Event(
                name=name,
                call=self._stack[-1] if self._stack else None,
                reads=reads,
                writes=writes,
                shapes=tuple(tuple(each.shape) for each in read),
                out_shape=tuple((fresh or changes)[0].shape),
                flops=flops_of(name, args, made),
                traffic_bytes=sum(each.numel() * each.element_size() for each in moved),
                known=known and "::" not in name,
                overwrites=overwrites,
            )
        )

    def _is_weight(self, tensor: Tensor) -> bool:
        number = self._current.get(_storage(tensor))
        return number is not None and bool(self.trace.values[number].parameters)

    def _write(
        self, tensors: list[Tensor], producer: int, reads: tuple[int, ...]
    ) -> tuple[int, ...]:
        sources = [self.trace.values[each] for each in reads]
        parameters = NONE.union(*(each.parameters for each in sources))
        sampled = any(each.sampled for each in sources)
        active = any(each.active for each in sources) or (sampled and bool(parameters))
        numbers = []
        for tensor in {_storage(each): each for each in tensors}.values():
            value = Value(COMPUTED, tensor.numel() * tensor.element_size(), tensor.numel())
            value.producer, value.sampled, value.active = producer, sampled, active
            value.parameters = NONE if sampled or active else parameters
            numbers.append(len(self.trace.values))
            self._current[_storage(tensor)] = numbers[-1]
            self.trace.values.append(value)
            self._alive.append(tensor)
        return tuple(numbers)

    # --- Modules ------------------------------------------------------------------------------

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, calls of modules and what autograd keeps are written down."""
        with ExitStack() as stack:
            before = hooks.register_module_forward_pre_hook(self._enter)
            stack.callback(before.remove)
            after = hooks.register_module_forward_hook(self._leave)
            stack.callback(after.remove)
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._save, _same))
            yield

    def run(
        self, forward: Callable[[], Any], loss_of: Callable[[Any], tuple[Tensor, bool]]
    ) -> None:
        """Runs the model, its loss and backward; a loss that is not the user's is left out."""
        with self.watched(), self:
            output = forward()
            mark = len(self.trace.events), len(self.trace.saves)
            loss, own = loss_of(output)
            ends = [loss] if own else list(tree_flatten(output)[0])
            self.trace.outputs = {self.value_of(each) for each in ends if isinstance(each, Tensor)}
            self._forward = False
            if not own:
                del self.trace.events[mark[0] :], self.trace.saves[mark[1] :]
            if not loss.requires_grad:
                self.trace.notes.append("the loss needs no gradient: no backward was recorded")
                return
            try:
                loss.backward(torch.ones_like(loss))  # type: ignore[no-untyped-call]
            except (RuntimeError, NotImplementedError) as error:
                reason = str(error).strip().splitlines() or [type(error).__name__]
                self.trace.notes.append(f"backward stopped: {reason[0][:200]}")

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        path = self._paths.get(id(module))
        if path is None or not self._forward or threading.get_ident() != self._thread:
            return
        parent = self._stack[-1] if self._stack else None
        call = Call(path, module, parent, len(self.trace.events))
        if parent:
            parent.children.append(call)
        elif self.trace.root is None:
            self.trace.root = call
        call.takes = self._leaves(inputs)
        call.with_grad = torch.is_grad_enabled()
        self._stack.append(call)

    def _leave(self, module: nn.Module, _inputs: Any, output: Any) -> None:
        if self._forward and self._stack and self._stack[-1].module is module:
            call = self._stack.pop()
            call.end = len(self.trace.events)
            call.gives = self._leaves(output)

    def _leaves(self, tree: Any) -> tuple[int | None, ...]:
        """Returns the value of each leaf that is the whole of one, in order; None for others."""
        return tuple(map(self._whole, tree_flatten(tree)[0]))

    def _whole(self, leaf: Any) -> int | None:
        if not isinstance(leaf, Tensor):
            return None
        number = self._current.get(_storage(leaf))
        if number is None or not leaf.is_contiguous():
            return None
        return number if self.trace.values[number].elements == leaf.numel() else None

    def _save(self, tensor: Tensor) -> Tensor:
        key = _storage(tensor)
        if not self._forward or key in self._saved:
            return tensor
        self._saved.add(key)
        number = self.value_of(tensor)
        if self.trace.values[number].origin != PARAMETER:
            size = tensor.untyped_storage().nbytes()
            self.trace.saves.append(Save(number, size, len(self.trace.events)))
            self._alive.append(tensor)
        return tensor


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _to_cpu(value: Any) -> Any:
    return CPU if isinstance(value, torch.device) else value


def _changed(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Returns the tensors that an operation writes in place."""
    if not func._schema.is_mutable:
        return []
    given = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | kwargs
    written = [
        given.get(each.name)
        for each in func._schema.arguments
        if each.alias_info is not None and each.alias_info.is_write
    ]
    return [each for each in tree_flatten(written)[0] if isinstance(each, Tensor)]


def _no_modes() -> Any:
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def _zeros(value: Any) -> Any:
    if not isinstance(value, FakeTensor):
        return value
    return torch.zeros(tuple(value.shape), dtype=value.dtype)


def _like(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.empty(tuple(value.shape), dtype=value.dtype, device=CPU)
