"""Cuts a trace into a chain of layers.

The tree of calls gives the places where a cut may be: between the items of a Sequential or a
ModuleList, and between the modules that those hang in. A place is good if exactly one active value
crosses it (trace.py says what is active). What lies between two good places is a unit; small units
that follow each other (an embedding, its positions, its dropout) are joined into one layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from torch import nn

from corro.torch.recorder.trace import CONSTANT, INPUT, Call, Trace

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(slots=True, eq=False)
class Unit:
    """Events from `start` to before `end`, and the calls that made them."""

    start: int
    end: int
    calls: list[Call] = field(default_factory=list)
    item: bool = False
    flops: float = 0.0

    @property
    def block(self) -> bool:
        """It is a layer of its own: it computes, and is more than one of torch's simple modules."""
        own = any(
            call.children
            or isinstance(call.module, nn.RNNBase)
            or not type(call.module).__module__.startswith("torch.")
            for call in self.calls
        )
        return own and self.flops > 0

    @property
    def name(self) -> str:
        return self.calls[0].path if self.calls else ""

    @property
    def common(self) -> str:
        """The path of the innermost module that all its calls are of or in; "" for the model."""
        columns = zip(*(call.path.split(".") for call in self.calls), strict=False)
        return ".".join(names[0] for names in takewhile(lambda each: len(set(each)) == 1, columns))

    @property
    def kind(self) -> str:
        """Names of classes, without repetition."""
        names = dict.fromkeys(type(call.module).__name__ for call in self.calls)
        return "+".join(list(names)[:3]) or "loss"


def cut(trace: Trace) -> list[Unit]:
    """Returns the layers; each event is in exactly one."""
    good = [len(values) == 1 for values in crossing(trace)]
    layers: list[Unit] = []
    for unit in _active_parts(trace):
        unit.flops = sum(event.flops for event in trace.events[unit.start : unit.end])
        if layers and (not good[unit.start] or _belong_together(layers[-1], unit)):
            append(layers[-1], unit)
        else:
            layers.append(unit)
    return layers


def _active_parts(trace: Trace) -> list[Unit]:
    """Returns the parts; one that only computes masks and the like belongs to the one after it."""
    parts: list[Unit] = []
    start = 0
    for part in _parts(trace):
        written = (each for event in trace.events[part.start : part.end] for each in event.writes)
        if any(trace.values[each].active for each in written):
            part.start, start = start, part.end
            parts.append(part)
    if parts:
        parts[-1].end = len(trace.events)
    return parts


def append(layer: Unit, unit: Unit) -> None:
    """Makes a unit a part of the layer before it."""
    layer.end = unit.end
    layer.calls += unit.calls
    layer.item |= unit.item
    layer.flops += unit.flops


def _belong_together(layer: Unit, unit: Unit) -> bool:
    if (layer.flops and unit.flops) or unit.block:
        return False
    return not (layer.block and layer.item)


def crossing(trace: Trace) -> list[set[int]]:
    """Returns for each place, before event 0 to after the last, the active values that cross it."""
    end = len(trace.events)
    last = [-1] * len(trace.values)
    for number, event in enumerate(trace.events):
        for read in event.reads:
            last[read] = number
    for returned in trace.outputs:
        last[returned] = end
    crossed: list[set[int]] = [set() for _ in range(end + 1)]
    for number, value in enumerate(trace.values):
        if value.active and value.origin != CONSTANT:
            for place in range(value.producer + 1, last[number] + 1):
                crossed[place].add(number)
    return crossed


def _parts(trace: Trace) -> list[Unit]:
    end = len(trace.events)
    if trace.root is None:
        return [Unit(0, end)] if end else []
    parts = [Unit(0, trace.root.start), *_expand(trace.root), Unit(_end(trace.root, end), end)]
    return [part for part in parts if part.end > part.start]


def _expand(call: Call) -> Iterator[Unit]:
    items = {id(each) for each in _items(call.module)}
    position = call.start
    for child in call.children:
        yield Unit(position, child.start)
        if _is_open(child, id(child.module) in items):
            yield from _expand(child)
        else:
            yield Unit(child.start, child.end, [child], id(child.module) in items)
        position = child.end
    yield Unit(position, max(position, call.end))


def _items(module: nn.Module) -> Iterator[nn.Module]:
    """Yields what hangs in containers directly below a module, and in itself if it is one."""
    for child in module.children():
        if isinstance(module, CONTAINERS):
            yield child
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            yield from _items(child)


def _is_open(call: Call, item: bool) -> bool:
    """Whether layers are looked for inside of a call."""
    if isinstance(call.module, nn.Sequential):
        return True
    inside = list(_below(call))
    if item:  # A stage of blocks is opened, a block whose parts hang in a Sequential is not.
        return sum(bool(each.children) for each in inside) > 1
    return bool(inside)


def _below(call: Call) -> Iterator[Call]:
    """Yields the calls of items in a call, not those inside of others."""
    items = {id(each) for each in _items(call.module)}
    for child in call.children:
        if id(child.module) in items:
            yield child
        else:
            yield from _below(child)


def _end(call: Call, end: int) -> int:
    return call.end if call.end >= 0 else end


def input_of(trace: Trace, unit: Unit) -> set[int]:
    """Returns the values that a layer takes from before its start: active ones, or the inputs."""
    taken = {each for event in trace.events[unit.start : unit.end] for each in event.reads}
    return {
        each
        for each in taken
        if trace.values[each].producer < unit.start
        and (trace.values[each].active or trace.values[each].origin == INPUT)
    }
