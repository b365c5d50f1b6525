"""Counts what each operator of each layer takes, and finds the layers that are equal."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass

import torch

from corro.model import LayerRun, LayerType, ModelDescription, Operator, Recorded
from corro.torch.recorder.chain import Unit, cut
from corro.torch.recorder.operations import PRODUCTS, kind_of
from corro.torch.recorder.operators import (
    Group,
    Layer,
    most_ways,
    name_of,
    readers_of,
    with_unique_names,
)
from corro.torch.recorder.trace import Event, Save, Trace

DTYPES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What is recorded."""

    name: str
    samples: int
    sequence: int
    dtype: torch.dtype


def describe(trace: Trace, subject: Subject, units: list[Unit] | None = None) -> ModelDescription:
    """Returns a trace as a model; its layers are `units`, as cut() finds them if None."""
    units = cut(trace) if units is None else units
    counter = _Counter(trace, subject, units)
    kinds = [counter.layer_type(number) for number in range(len(units))]
    types, runs = _runs(kinds, units)
    recorded = Recorded(
        samples=subject.samples,
        saved_bytes=trace.saved_bytes,
        forward_flops=sum(event.flops for event in trace.events),
        backward_flops=trace.backward_flops,
        notes=tuple(trace.notes),
    )
    return ModelDescription(
        name=subject.name,
        types=types,
        layers=runs,
        sequence=subject.sequence,
        tied_parameters=counter.tied,
        dtype=DTYPES.get(subject.dtype, "f32"),
        recorded=recorded,
    )


class _Counter:
    """Gives each parameter and each kept storage to the operator that has it first."""

    def __init__(self, trace: Trace, subject: Subject, units: list[Unit]) -> None:
        self._trace = trace
        self._units = units
        self._samples, self._sequence = subject.samples, subject.sequence
        self._unit_bytes = subject.samples * subject.dtype.itemsize
        readers = readers_of(trace)
        self._layers = [Layer(trace, unit, readers) for unit in units]
        self._kept = [(_keeper(trace, save), save.bytes) for save in trace.saves]
        self._owned: set[int] = set()
        self._first = self._parameters_of(0) if units else set()
        self.tied = 0

    def layer_type(self, number: int) -> LayerType:
        layer, unit = self._layers[number], self._units[number]
        groups = layer.groups
        numbers = {id(group): place for place, group in enumerate(groups)}
        saved = self._saved(layer)
        is_last = number == len(self._units) - 1 and number > 0
        operators, keys = [], 0.0
        for group in groups:
            events = [self._trace.events[each] for each in group.events]
            operators.append(
                Operator(
                    name=name_of(events, group.kind, unit),
                    kind=group.kind,
                    inputs=layer.numbers_of_inputs(group, numbers),
                    flops=sum(event.flops for event in events) / self._samples,
                    traffic=sum(event.traffic_bytes for event in events) / self._unit_bytes,
                    output=self._bytes(layer.output_of(group)) / self._unit_bytes,
                    saved=saved[id(group)] / self._unit_bytes,
                    parameters=self._own(layer, group, is_last),
                    most_ways=most_ways(events, group.kind, self._samples, self._sequence),
                )
            )
            if group.kind == "attention":
                keys += keys_and_values(events) / self._samples
        if not operators:
            operators = [Operator(name="nothing", inputs=(-1,))]
        return LayerType(
            name=unit.kind, operators=with_unique_names(operators), keys_and_values=keys
        )

    def _bytes(self, values: set[int]) -> int:
        return sum(self._trace.values[each].bytes for each in values)

    def _parameters_of(self, number: int) -> set[int]:
        layer = self._layers[number]
        return {each for group in layer.groups for each in self._used(layer, group)}

    def _used(self, layer: Layer, group: Group) -> set[int]:
        return {p for value in layer.read_by(group) for p in self._trace.values[value].parameters}

    def _own(self, layer: Layer, group: Group, is_last: bool) -> int:
        """Returns the elements of parameters that no operator before has, or that are tied."""
        total = 0
        for parameter in self._used(layer, group):
            elements = self._trace.values[parameter].elements
            if parameter not in self._owned:
                self._owned.add(parameter)
                total += elements
            elif is_last and parameter in self._first:
                self._first.discard(parameter)
                self.tied += elements
                total += elements
        return total

    def _saved(self, layer: Layer) -> Counter[int]:
        """Returns the bytes that each group keeps, by the group's id."""
        kept: Counter[int] = Counter()
        for event, size in self._kept:
            if layer.unit.start <= event < layer.unit.end and (group := layer.group_at(event)):
                kept[id(group)] += size
        return kept


def _keeper(trace: Trace, save: Save) -> int:
    """Returns the event that a save is for: the next if that reads it, or the one that wrote it."""
    next_one = min(save.position, len(trace.events) - 1)
    if save.value in trace.events[next_one].reads:
        return next_one
    return save.position - 1 if trace.values[save.value].producer == save.position - 1 else next_one


def keys_and_values(events: list[Event]) -> float:
    """Returns the elements of an attention's keys and values, of all samples."""
    products = [event for event in events if event.name in PRODUCTS]
    if products:
        return float(sum(_elements(event.shapes[-1]) for event in products))
    fused = [event for event in events if kind_of(event.name) == "attention"]
    return float(sum(_elements(shape) for event in fused for shape in event.shapes[1:3]))


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _runs(
    kinds: list[LayerType], units: list[Unit]
) -> tuple[tuple[LayerType, ...], tuple[LayerRun, ...]]:
    """Returns equal layers as one type, and equal ones after each other as one run.

    A type has the names of its first layer's operators: names alone make no layer different.
    """
    numbers: dict[LayerType, int] = {}
    types: list[LayerType] = []
    runs: list[tuple[int, list[str]]] = []
    for kind, unit in zip(kinds, units, strict=True):
        number = numbers.setdefault(_without_names(kind), len(types))
        if number == len(types):
            types.append(kind)
        if runs and runs[-1][0] == number:
            runs[-1][1].append(unit.name)
        else:
            runs.append((number, [unit.name]))
    seen: Counter[str] = Counter()
    named = []
    for kind in types:
        seen[kind.name] += 1
        again = seen[kind.name]
        name = kind.name if again == 1 else f"{kind.name}#{again}"
        named.append(dataclasses.replace(kind, name=name))
    return tuple(named), tuple(
        LayerRun(type=number, count=len(names), name=_common_name(names)) for number, names in runs
    )


def _without_names(kind: LayerType) -> LayerType:
    plain = tuple(dataclasses.replace(operator, name="") for operator in kind.operators)
    return dataclasses.replace(kind, operators=plain)


def _common_name(names: list[str]) -> str:
    """Returns "h.{}" of "h.0" and "h.1": one number differs; else the first name."""
    parts = [set(column) for column in zip(*(name.split(".") for name in names), strict=False)]
    differing = [place for place, found in enumerate(parts) if len(found) > 1]
    first = names[0].split(".")
    if len(differing) != 1 or not all(each.isdigit() for each in parts[differing[0]]):
        return names[0]
    first[differing[0]] = "{}"
    return ".".join(first)
