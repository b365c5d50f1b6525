"""Merges the events of a layer into the operators that a planner cuts.

A *group* becomes an operator. A matrix product takes its bias along; elementwise operations join
the group before them if nobody else reads it; a norm, a loss and an opaque module are one group
each, and so are the two products and the softmax of an attention written out by hand. Groups are in
the order of their last events: a group only grows by the sole reader of what it wrote, so that
each group comes after those that it reads.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import nn

from corro.model import LAYER_INPUT, Operator
from corro.torch.recorder.chain import Unit, input_of
from corro.torch.recorder.operations import COPIES, PRODUCTS, SOFTMAXES, kind_of
from corro.torch.recorder.trace import Call, Event, Trace

MOST_OPERATORS = 64  # A layer of more is one opaque operator.
JOINS = frozenset(
    {
        *(("elementwise", "elementwise"), ("loss", "loss"), ("loss", "elementwise")),
        *(("opaque", "opaque"), ("elementwise", "loss")),
    }
)


@dataclass(slots=True, eq=False)
class Group:
    """Events that become one operator."""

    kind: str
    events: list[int] = field(default_factory=list)
    closed: bool = False  # Nothing joins it.


Readers = dict[int, set[int]]


def readers_of(trace: Trace) -> Readers:
    """Returns for each value the events that use it; for what is returned, the end as well."""
    readers: Readers = {value: {len(trace.events)} for value in trace.outputs}
    for number, useful in enumerate(trace.useful()):
        for value in trace.events[number].reads if useful else ():
            readers.setdefault(value, set()).add(number)
    return readers


class Layer:
    """The groups of one layer of a trace."""

    def __init__(self, trace: Trace, unit: Unit, readers: Readers) -> None:
        self._trace = trace
        self.unit = unit
        self.inputs = input_of(trace, unit)
        self._readers = readers
        self._opaque = {
            id(event.call)
            for event in trace.events[unit.start : unit.end]
            if not event.known and event.call is not None
        }
        self._group_of: dict[int, Group] = {}  # By event.
        self._whole: dict[int, Group] = {}  # By call.
        for number in range(unit.start, unit.end):
            event = trace.events[number]
            computes = event.flops or any(each in readers for each in event.writes)
            if computes and any(trace.values[each].active for each in event.writes):
                self._add(number)
        self._find_attentions()
        self._absorb_copies()
        if len(self.groups) > MOST_OPERATORS:
            everything = Group("opaque", sorted(self._group_of))
            self._group_of = dict.fromkeys(self._group_of, everything)

    @property
    def groups(self) -> list[Group]:
        """In order: each follows what it reads, and the last one makes the layer's output."""
        unique = {id(group): group for group in self._group_of.values()}
        makers = {id(group) for value in self._outgoing if (group := self.writer(value))}

        def place(group: Group) -> tuple[bool, int]:
            last = id(group) in makers and len(makers) == 1 and not self._targets(group)
            return last, group.events[-1]

        return sorted(unique.values(), key=place)

    @property
    def _outgoing(self) -> set[int]:
        """Active values that are read behind this layer, or returned."""
        inside = range(self.unit.start, self.unit.end)
        written = (each for number in inside for each in self._trace.events[number].writes)
        return {
            each
            for each in written
            if self._trace.values[each].active
            and any(reader >= self.unit.end for reader in self._readers.get(each, ()))
        }

    def group_at(self, number: int) -> Group | None:
        """Returns the group of the event `number`, or of the nearest one before or after it."""
        if not self._group_of:
            return None
        nearest = min(self._group_of, key=lambda each: (abs(each - number), each < number))
        return self._group_of[nearest]

    def writer(self, value: int) -> Group | None:
        return self._group_of.get(self._trace.values[value].producer)

    # --- Which group an event is in -------------------------------------------------------------

    def _add(self, number: int) -> None:
        event = self._trace.events[number]
        call, kind = self._module_of(event)
        if call is not None:
            group = self._whole.setdefault(id(call), Group(kind, closed=True))
        else:
            kind = self._kind_of(event, number)
            group = self._joined(event, number, kind) or Group(kind)
            if group.kind == "elementwise":
                group.kind = kind
        group.events.append(number)
        self._group_of[number] = group

    def _module_of(self, event: Event) -> tuple[Call | None, str]:
        """Returns the outermost call in this layer that is one operator as a whole."""
        found: tuple[Call | None, str] = (None, "")
        call = event.call
        while call is not None and self._is_inside(call):
            if isinstance(call.module, nn.RNNBase) or id(call) in self._opaque:
                found = (call, "opaque")
            elif "Norm" in type(call.module).__name__ and not self._computes(call):
                found = (call, "norm")
            elif type(call.module).__name__.endswith("Loss"):
                found = (call, "loss")
            call = call.parent
        return found

    def _is_inside(self, call: Call) -> bool:
        return call.start >= self.unit.start and 0 <= call.end <= self.unit.end

    def _computes(self, call: Call) -> bool:
        return any(event.flops for event in self._trace.events[call.start : call.end])

    def _kind_of(self, event: Event, number: int) -> str:
        kind = kind_of(event.name)
        root = self._trace.root
        if root is not None and event.call is None and number >= root.end:
            return "loss" if kind != "matmul" else kind
        if kind == "matmul" and not self._weights(event):
            return "opaque"
        return kind

    def _weights(self, event: Event) -> bool:
        return any(self._trace.values[each].parameters for each in event.reads)

    def _joined(self, event: Event, number: int, kind: str) -> Group | None:
        """Returns the group that an event continues."""
        if event.name in SOFTMAXES or event.name in PRODUCTS:
            return None
        sources = {id(group): group for each in event.reads if (group := self.writer(each))}
        for group in sorted(sources.values(), key=lambda each: -each.events[-1]):
            if group.closed or not self._may_join(group, event, kind):
                continue
            if self._is_read_by_none_but(group, {number}):
                return group
        return None

    def _may_join(self, group: Group, event: Event, kind: str) -> bool:
        first = self._trace.events[group.events[0]].name
        if first in SOFTMAXES or first in PRODUCTS:
            return False
        if (group.kind, kind) in JOINS:
            return True
        reads = [self._trace.values[each] for each in event.reads]
        bias = event.name == "add" and any(each.parameters for each in reads)
        return group.kind == "matmul" and bias and sum(each.active for each in reads) == 1

    def _is_read_by_none_but(self, group: Group, allowed: set[int]) -> bool:
        inside = allowed | set(group.events)
        written = [each for number in group.events for each in self._trace.events[number].writes]
        return all(self._readers.get(each, set()) <= inside for each in written)

    # --- Attention written out ------------------------------------------------------------------

    def _find_attentions(self) -> None:
        """Merges product, elementwise, softmax, elementwise, product."""
        for softmax in [each for each in self.groups if self._first_name(each) in SOFTMAXES]:
            before = self._walk(softmax, self._sources)
            after = self._walk(softmax, self._targets)
            if not before or not after:
                continue
            parts = [*reversed(before), softmax, *after]
            numbers = sorted(number for part in parts for number in part.events)
            if not all(self._is_read_by_none_but(each, set(numbers)) for each in parts[:-1]):
                continue
            merged = Group("attention", numbers, closed=True)
            self._group_of.update(dict.fromkeys(numbers, merged))

    def _walk(self, group: Group, step: object) -> list[Group]:
        """Follows elementwise groups to a product; returns the way, or nothing if there is none."""
        way: list[Group] = []
        while len(way) < 4:
            nexts = step(group)  # type: ignore[operator]
            products = [each for each in nexts if self._first_name(each) in PRODUCTS]
            if products:
                return [*way, products[0]]
            plain = [each for each in nexts if each.kind == "elementwise"]
            if not plain:
                return []
            group = plain[0]
            way.append(group)
        return []

    def _first_name(self, group: Group) -> str:
        return self._trace.events[group.events[0]].name

    def _sources(self, group: Group) -> list[Group]:
        reads = (each for number in group.events for each in self._trace.events[number].reads)
        found = {id(source): source for each in reads if (source := self.writer(each))}
        return [each for each in found.values() if each is not group]

    def _targets(self, group: Group) -> list[Group]:
        writes = (each for number in group.events for each in self._trace.events[number].writes)
        readers = (number for each in writes for number in self._readers.get(each, ()))
        found = {id(self._group_of[n]): self._group_of[n] for n in readers if n in self._group_of}
        return [each for each in found.values() if each is not group]

    def _absorb_copies(self) -> None:
        """Merges groups that only copy into the one group that reads them, or that they read."""
        for group in self.groups:
            if any(self._trace.events[each].name not in COPIES for each in group.events):
                continue
            targets, sources = self._targets(group), self._sources(group)
            if len(targets) == 1 and self._is_read_by_none_but(group, set(targets[0].events)):
                self._merge(group, targets[0])
            elif len(sources) == 1 and self._is_read_by_none_but(sources[0], set(group.events)):
                self._merge(group, sources[0])

    def _merge(self, group: Group, into: Group) -> None:
        into.events = sorted({*into.events, *group.events})
        self._group_of.update(dict.fromkeys(group.events, into))

    # --- What a group is as an operator -----------------------------------------------------------

    def read_by(self, group: Group) -> set[int]:
        """Returns the values that a group takes from outside of it."""
        own = set(group.events)
        reads = {each for number in group.events for each in self._trace.events[number].reads}
        return {each for each in reads if self._trace.values[each].producer not in own}

    def numbers_of_inputs(self, group: Group, numbers: dict[int, int]) -> tuple[int, ...]:
        taken = set()
        for value in self.read_by(group):
            source = self.writer(value)
            if source is not None:
                taken.add(numbers[id(source)])
            elif value in self.inputs:
                taken.add(LAYER_INPUT)
        return tuple(sorted(taken))

    def output_of(self, group: Group) -> set[int]:
        """Returns what others read of a group; if nobody does, what its last event wrote."""
        own = set(group.events)
        written = [each for number in group.events for each in self._trace.events[number].writes]
        read = {each for each in written if self._readers.get(each, set()) - own}
        return read or set(self._trace.events[group.events[-1]].writes[:1])


def most_ways(events: Iterable[Event], kind: str, samples: int, sequence: int) -> int:
    """Returns in how many parts an operator can be cut at most."""
    ways = max(1, sequence) if kind == "norm" else 1
    for event in events:
        shapes, out = event.shapes, event.out_shape
        if kind == "attention" and event.name in PRODUCTS and len(out) == 3:
            ways = max(ways, out[0] // samples)
        elif kind == "attention" and shapes and len(shapes[0]) == 4 and kind_of(event.name) == kind:
            ways = max(ways, min(each[1] for each in shapes[:3] if len(each) == 4))
        elif kind == "matmul" and event.flops:
            channels = event.name in ("convolution", "_convolution")
            ways = max(ways, out[1] if channels and len(out) > 1 else out[-1] if out else 1)
        elif kind == "embedding" and kind_of(event.name) == kind:
            ways = max(ways, shapes[0][0])
        elif kind == "loss" and event.name == "_log_softmax":
            ways = max(ways, shapes[0][1 if len(shapes[0]) > 1 else 0])
        elif kind == "elementwise" and len(out) > 1:
            ways = max(ways, out[1] if len(out) == 4 else out[-1])
    return ways


def name_of(events: list[Event], kind: str, unit: Unit) -> str:
    """Returns the module's path below what the layer's calls have in common, or what is computed.

    So equal layers name their operators alike: "0.1" and "1.1" of two layers are both "1".
    """
    event = next((each for each in events if each.flops), events[0])
    what = (
        kind if kind in ("attention", "loss") else re.sub(r"^_|_forward$|^native_", "", event.name)
    )
    call = event.call
    if kind == "loss" or call is None or not any(_is_in(call, each) for each in unit.calls):
        return what
    whole = not any(call.module.children())
    path = call.path[len(unit.common) :].lstrip(".")
    if not path and whole:
        last = call.path.rpartition(".")[2]
        path = "" if last.isdigit() else last
    if not path:
        return what
    return path if whole else f"{path}.{what}"


def _is_in(call: Call | None, outer: Call) -> bool:
    while call is not None:
        if call is outer:
            return True
        call = call.parent
    return False


def with_unique_names(operators: list[Operator]) -> tuple[Operator, ...]:
    seen = Counter(["input"])  # What a file calls the layer's input.
    unique = []
    for operator in operators:
        seen[operator.name] += 1
        again = seen[operator.name]
        name = operator.name if again == 1 else f"{operator.name}#{again}"
        unique.append(dataclasses.replace(operator, name=name))
    return tuple(unique)
