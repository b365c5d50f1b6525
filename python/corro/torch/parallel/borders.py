"""Where a model can be cut, so that each stage runs the user's own `forward`.

A stage runs the whole `loss(model, batch)`, and leaves out the layers of others: their calls return
stand-ins, the first tensor that it needs comes from the stage before, and it ends as soon as it has
what the stage after needs. So the code between layers is the user's. That is possible at a
*border*: a place in the recording that one active value crosses, which one call returns whole (or,
if the user's own code made it, which one call alone takes). Whatever else crosses (masks,
positions) is computed on every stage; if a layer computes it inside, there is no border behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from corro.torch.recorder.chain import Unit, append, crossing, cut
from corro.torch.recorder.trace import COMPUTED, INPUT, SIDE, Call, Event, Trace


@dataclass(frozen=True, slots=True)
class Place:
    """One call of a module: the `number`-th in a forward of the module with this path."""

    path: str
    number: int


@dataclass(frozen=True, slots=True)
class Border:
    """Which tensor one layer hands to the next: a leaf of what a call returns, or takes."""

    call: Place
    returned: bool
    leaf: int
    bytes: int
    """Of all samples of the recording."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of the chain that one rank runs as a whole."""

    name: str
    calls: tuple[Place, ...]
    """Those of them that compute what only this layer needs, in order."""
    recomputable: Place | None
    """The one call that the layer consists of; None: there are several, or it keeps nothing."""
    parameters: Mapping[str, tuple[Place, ...]]
    """Names of those that it uses, which other layers may, too, and the calls that read each; none
    if other code of the layer reads it."""
    border: Border | None
    """To the layer before; None: it is the first."""


def layers_of(trace: Trace) -> tuple[list[Unit], list[Layer]]:
    """Returns the layers of a recording between which it can be cut, in two forms.

    The recorder's layers are joined where there is no border.
    """
    finder = _Finder(trace)
    units: list[Unit] = []
    borders: list[Border | None] = []
    for unit in cut(trace):
        border = finder.border_at(unit.start, units) if units else None
        if units and border is None:
            append(units[-1], unit)
        else:
            units.append(unit)
            borders.append(border)
    return units, [finder.layer(unit, border) for unit, border in zip(units, borders, strict=True)]


class _Finder:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._places = _places(trace)
        self._crossing = crossing(trace)

    def layer(self, unit: Unit, border: Border | None) -> Layer:
        calls = [each for each in unit.calls if self._is_active(each)]
        only = unit.calls[0] if len(unit.calls) == 1 else None
        whole = only is not None and self._keeps(only) and not self._writes_to_arguments(only)
        return Layer(
            name=unit.name or unit.kind,
            calls=tuple(self._places[id(each)] for each in calls),
            recomputable=self._places[id(unit.calls[0])] if whole else None,
            parameters=self._readers(unit, calls),
            border=border,
        )

    def border_at(self, start: int, before: Sequence[Unit]) -> Border | None:
        """Returns the border between the layers `before` and what begins at event `start`."""
        crossed = self._crossing[start]
        left_out = [call for unit in before for call in unit.calls if self._is_active(call)]
        if len(crossed) != 1 or self._needs_inside_of(left_out, start):
            return None
        if self._decides_outside_of(left_out, start) or self._overwrites(left_out, start):
            return None
        (value,) = crossed
        return self._returned(value, start, left_out) or self._taken(value, start)

    def _returned(self, value: int, start: int, left_out: Sequence[Call]) -> Border | None:
        own = {id(call) for call in left_out}
        hidden = {id(inner) for call in left_out for inner in _inside(call)} - own
        ended = [
            each for each in self._calls() if 0 <= each.end <= start and id(each) not in hidden
        ]
        for call in sorted(ended, key=lambda each: (id(each) not in own, each.end)):
            if value in call.gives and call.with_grad:
                return self._border(call, True, call.gives.index(value), value)
        return None

    def _taken(self, value: int, start: int) -> Border | None:
        for call in self._calls():
            taken = call.start >= start and value in call.takes and call.with_grad
            if taken and self._is_read_in(call, value, start):
                return self._border(call, False, call.takes.index(value), value)
        return None

    def _border(self, call: Call, returned: bool, leaf: int, value: int) -> Border:
        return Border(self._places[id(call)], returned, leaf, self._trace.values[value].bytes)

    def _is_read_in(self, call: Call, value: int, start: int) -> bool:
        """Whether nothing but this call reads the value behind the border."""
        readers = [
            number
            for number, event in enumerate(self._trace.events[start:], start)
            if value in event.reads
        ]
        within = all(call.start <= each < call.end for each in readers)
        return within and value not in self._trace.outputs

    def _needs_inside_of(self, left_out: Sequence[Call], start: int) -> bool:
        """Whether something behind the border reads what is not active, and made by these calls."""
        read = {each for event in self._trace.events[start:] for each in event.reads}
        values = self._trace.values
        made = [values[each].producer for each in read if self._is_side(each, start)]
        return any(call.start <= each < call.end for each in made for call in left_out)

    def _decides_outside_of(self, left_out: Sequence[Call], start: int) -> bool:
        """Whether code before the border, beside these calls, reads numbers from active values.

        On stages behind the border those are stand-ins.
        """
        return any(
            each.position <= start
            and not any(call.start <= each.position <= call.end for call in left_out)
            for each in self._trace.numbers
        )

    def _overwrites(self, left_out: Sequence[Call], start: int) -> bool:
        """Whether code before the border, beside these calls, writes to what they returned.

        Stand-ins have no memory to be written to.
        """

        def inside(position: int) -> bool:
            return any(call.start <= position < call.end for call in left_out)

        return any(
            inside(self._trace.values[each].producer)
            for number, event in enumerate(self._trace.events[:start])
            if event.overwrites and not inside(number)
            for each in event.overwrites
        )

    def _is_side(self, value: int, start: int) -> bool:
        one = self._trace.values[value]
        return one.origin == COMPUTED and not one.active and one.producer < start

    def _is_active(self, call: Call) -> bool:
        written = (each for e in self._trace.events[call.start : call.end] for each in e.writes)
        return any(self._trace.values[each].active for each in written)

    def _writes_to_arguments(self, call: Call) -> bool:
        """Whether it changes what it is given, which it cannot do twice."""
        values = self._trace.values
        return any(
            values[each].origin in (COMPUTED, INPUT, SIDE) and values[each].producer < call.start
            for event in self._trace.events[call.start : call.end]
            for each in event.overwrites
        )

    def _keeps(self, call: Call) -> bool:
        """Whether backward needs what it computed inside: not so in a checkpoint of the user's."""
        return any(call.start < save.position < call.end for save in self._trace.saves)

    def _readers(self, unit: Unit, calls: Sequence[Call]) -> dict[str, tuple[Place, ...]]:
        """Returns the parameters that the unit reads, with the calls that alone do."""
        readers: dict[str, set[Call | None]] = {}
        for number, event in enumerate(self._trace.events[unit.start : unit.end], unit.start):
            for parameter in _parameters(self._trace, event):
                within = (each for each in calls if each.start <= number < each.end)
                readers.setdefault(parameter, set()).add(next(within, None))
        return {
            name: () if None in found else tuple(self._places[id(c)] for c in calls if c in found)
            for name, found in sorted(readers.items())
        }

    def _calls(self) -> Iterator[Call]:
        if self._trace.root is not None:
            yield from _inside(self._trace.root)


def _parameters(trace: Trace, event: Event) -> set[str]:
    """Returns names of what an operation reads as it is, or as something computed from it alone."""
    return {
        trace.names[parameter]
        for read in event.reads
        for parameter in trace.values[read].parameters
    }


def _inside(call: Call) -> Iterator[Call]:
    """Yields a call and those in it, in the order in which they began."""
    yield call
    for child in call.children:
        yield from _inside(child)


def _places(trace: Trace) -> dict[int, Place]:
    """Returns the place of each call, by the call's id."""
    places: dict[int, Place] = {}
    numbers: dict[str, int] = {}
    for call in _inside(trace.root) if trace.root is not None else ():
        number = numbers.get(call.path, 0)
        numbers[call.path] = number + 1
        places[id(call)] = Place(call.path, number)
    return places
