"""Plans: the services, channels and lanes of a job's ranks, as data. docs/plan.md is their page.

plan = corro.Plan.load("plan.json")
print(plan.ranks, [service.name for service in plan.services])
plan.save("copy.json")

Times are integer nanoseconds, sizes bytes. Whether a plan can run (no cycle without a token) is the
engine's to say; here its form is checked, with the messages of the engine.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from corro.errors import InvalidArgumentError

T = TypeVar("T")

VERSION = 1
MOST_BYTES = 64 << 20
MOST_LEVELS = 32
MOST_NAME_BYTES = 200
MOST_RANKS = 1 << 20
MOST_DEPTH = 1 << 16
MOST_SLOTS = 1 << 16
MOST_LAG = 1 << 16
MOST_EVERY = 1 << 16
MOST_FIRINGS = 1 << 22
MOST_SLOT_BYTES = 1 << 48
MOST_NS = 7_200_000_000_000  # Two hours.
MOST_COUNT = 1 << 40
MOST_OFFSET = 1 << 62
MOST_RANGES = 1 << 32
MOST_PATH_BYTES = 4095

ORDERS = ("priority", "agreed")
DTYPES = (
    *("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"),
    *("u16", "u32", "u64"),
)
COPIES = ("memory", "read", "write")
REDUCE_OPS = ("sum", "average", "min", "max", "product", "adasum")
REDUCING = ("allreduce", "reducescatter", "reduce")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
KINDS = (
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """A serial resource: a stream of one rank, or a communicator of several in `agreed` order."""

    name: str
    order: str = "priority"
    depth: int = 1
    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A ring of slots from one service to others; `transfer_ns` is its way to another rank."""

    name: str
    slots: int = 1
    initial: int = 0
    slot_bytes: int = 0
    transfer_ns: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """The collective that a service is. None: what its kind does not have."""

    kind: str
    dtype: str | None = None
    count: int | None = None
    reduce_op: str | None = None
    root: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """What the engine itself copies as a service, on threads of its own.

    `memory`: what is filled of the one input with memory, into the slot of the one output with
    memory. `read`: a range of a file into the whole slot of the one output with memory. `write`:
    what is filled of the one input with memory into a range of a file, which is made if it is not
    there. Other channels of the service are tokens. The services of its lane are all copies; as
    many as the lane is deep are under way at a time.

    A file that cannot be opened, read or written, or ends too early, fails the firing, which stops
    the plan on all ranks; the message has the path and the kernel's reason.
    """

    kind: str
    path: str | None = None
    """The file, as the process of the lane's rank finds it."""
    offset: int = 0
    """Byte at which the range of the first firing begins."""
    stride: int = 0
    """Bytes from a firing's range to that of the next one."""
    count: int = 0
    """Ranges until the first one comes again; 0: it never does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """Fires when its inputs are readable, its outputs have a free slot and its lane has room."""

    name: str
    lane: str
    priority: int = 0
    lag: int = 0
    every: int = 1
    """Micro-batches of one firing, which comes with the last of them: an optimizer's step, say.

    Each `every` of a plan divides the largest; those of a lane in agreed order are equal. Of a
    channel from a service that fires n times as often a firing takes n slots; a slot that it fills
    is read n times by one that fires so much more often."""
    duration_ns: int = 0
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    operation: Operation | None = None
    copy: Copy | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What all ranks of a job run, in the order of their lanes; immutable."""

    ranks: int
    lanes: tuple[Lane, ...] = ()
    channels: tuple[Channel, ...] = ()
    services: tuple[Service, ...] = ()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Reads a file.

        Raises:
            InvalidArgumentError: it is no plan; the message is one line with the place.
            OSError: it cannot be read.
        """
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        name = os.fspath(path)
        if len(data) > MOST_BYTES:
            size = os.stat(path).st_size
            raise InvalidArgumentError(f"{name}: has {size} bytes; at most {MOST_BYTES} are read")
        return cls.from_dict(_parse(data, name), name)

    @classmethod
    def from_dict(cls, value: object, name: str = "plan") -> Plan:
        """Reads what `json` made of a plan, or of a plan inside of a larger document.

        Raises:
            InvalidArgumentError: it is no plan; the message begins with `name` and the place.
        """
        plan = _Reader(name).read(value)
        _Form(plan, name).check()
        return plan

    def check(self) -> None:
        """Does nothing for a plan of good form.

        Raises:
            InvalidArgumentError: what is wrong, and where.
        """
        Plan.from_dict(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Returns what `json` can write. Fields that hold their default are left out."""
        return {
            "corro_plan": VERSION,
            "ranks": self.ranks,
            "lanes": [_to_dict(lane) for lane in self.lanes],
            "channels": [_to_dict(channel) for channel in self.channels],
            "services": [_to_dict(service) for service in self.services],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file, with a line for each lane, channel and service.

        Raises:
            InvalidArgumentError: as check() does, before anything is written.
            OSError: it cannot be written.
        """
        self.check()
        fields = [f'  "{field}": {_list_text(value)}' for field, value in self.to_dict().items()]
        with open(path, "w", encoding="utf-8") as file:
            file.write("{\n" + ",\n".join(fields) + "\n}\n")


def _to_dict(item: Any) -> dict[str, Any]:
    values = {}
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if isinstance(value, Operation | Copy):
            value = _to_dict(value)
        if value != field.default:
            values[field.name] = list(value) if isinstance(value, tuple) else value
    return values


def _list_text(value: object) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value)
    items = [json.dumps(item, ensure_ascii=False, separators=(",", ":")) for item in value]
    return "[\n" + ",\n".join(f"    {item}" for item in items) + "\n  ]"


class _Twice(dict[str, object]):
    """An object of a file in which `field` comes twice."""

    field = ""


def _parse(data: bytes, name: str) -> object:
    def to_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        twice = _Twice(value)
        times = Counter(key for key, _ in pairs)
        twice.field = next(key for key in times if times[key] > 1)
        return twice

    def to_float(text: str) -> float:
        if float(text) in (float("inf"), float("-inf")):
            raise ValueError("number overflow")
        return float(text)

    def no_number(text: str) -> NoReturn:
        raise ValueError(f"{text} is no number")

    try:
        value: object = json.loads(
            data.decode(),
            object_pairs_hook=to_object,
            parse_float=to_float,
            parse_constant=no_number,
        )
    except RecursionError:
        _refuse_depth(name)
    except ValueError as error:
        raise InvalidArgumentError(f"{name}: is not JSON: {error}") from None
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return value
    _refuse_depth(name)


def _refuse_depth(name: str) -> NoReturn:
    raise InvalidArgumentError(f"{name}: is nested deeper than {MOST_LEVELS} levels") from None


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _is_name(text: str, most: int = MOST_NAME_BYTES) -> bool:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    shown = all(character >= " " and character not in '\x7f"' for character in text)
    return 1 <= size <= most and shown


class _Object:
    """Reads the fields of one object; errors begin with the document's name and the place."""

    def __init__(self, name: str, place: str, value: object, known: Sequence[str]) -> None:
        self.name = name
        self.place = place
        if not isinstance(value, Mapping):
            self.fail("", "must be an object")
        if isinstance(value, _Twice):
            self.fail(value.field, "comes twice")
        self.fields: Mapping[str, object] = value
        for field in sorted(value.keys() - set(known)):
            self.fail(field, f"is no field here; there are {', '.join(known)}")

    def fail(self, field: str, what: str) -> NoReturn:
        place = ".".join(part for part in (self.place, field) if part)
        raise InvalidArgumentError(": ".join(part for part in (self.name, place, what) if part))

    def require(self, field: str) -> object:
        if field not in self.fields:
            self.fail(field, "is missing")
        return self.fields[field]

    def integer(self, field: str, least: int, most: int, default: int | None = None) -> int:
        if default is not None and field not in self.fields:
            return default
        value = self.require(field)
        if type(value) is not int or not least <= value <= most:
            self.fail(field, f"must be an integer from {least} to {most}")
        return value

    def text(self, field: str) -> str:
        value = self.require(field)
        if not isinstance(value, str):
            self.fail(field, "must be text")
        return value

    def choice(self, field: str, choices: Sequence[str], default: str | None = None) -> str:
        if default is not None and field not in self.fields:
            return default
        value = self.require(field)
        if not isinstance(value, str) or value not in choices:
            self.fail(field, f"must be one of {', '.join(choices)}")
        return value

    def list(self, field: str, read: Callable[[object, str], T]) -> tuple[T, ...]:
        """Calls read(item, its field) for each item; a missing list is empty."""
        items = self.fields.get(field, [])
        if not isinstance(items, list):
            self.fail(field, "must be a list")
        return tuple(read(item, f"{field}[{i}]") for i, item in enumerate(items))


class _Reader:
    """Reads the lists in the order in which they refer to each other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ranks = 0
        self._names: dict[str, set[str]] = {"lane": set(), "channel": set(), "service": set()}

    def read(self, value: object) -> Plan:
        if isinstance(value, Mapping) and not isinstance(value, _Twice):
            self._check_version(value)
        known = ("corro_plan", "ranks", "lanes", "channels", "services")
        top = _Object(self._name, "", value, known)
        self._ranks = top.integer("ranks", 1, MOST_RANKS)
        return Plan(
            ranks=self._ranks,
            lanes=top.list("lanes", self._read_lane),
            channels=top.list("channels", self._read_channel),
            services=top.list("services", self._read_service),
        )

    def _check_version(self, value: Mapping[str, object]) -> None:
        """First of all: of a newer version nothing else can be said."""
        top = _Object(self._name, "", value, tuple(value))
        version = top.require("corro_plan")
        if type(version) is not int or version < 1:
            top.fail("corro_plan", f"must be {VERSION}")
        if version > VERSION:
            what = f"is version {version}; this corro reads version {VERSION}"
            top.fail("corro_plan", what)

    def _read_name(self, item: _Object, noun: str) -> str:
        name = item.text("name")
        if not _is_name(name):
            limits = f"must be 1 to {MOST_NAME_BYTES} bytes of UTF-8"
            item.fail("name", f"{limits} without control characters and quotation marks")
        if name in self._names[noun]:
            item.fail("name", f'"{name}" is another {noun}\'s name')
        self._names[noun].add(name)
        return name

    def _find(self, name: str, noun: str, item: _Object, field: str) -> str:
        if name not in self._names[noun]:
            item.fail(
                field,
                f'there is no {noun} "{name}"' if _is_name(name) else f"must be a {noun}'s name",
            )
        return name

    def _read_lane(self, value: object, place: str) -> Lane:
        item = _Object(self._name, place, value, ("name", "order", "depth", "ranks"))

        def read_rank(rank: object, field: str) -> int:
            if type(rank) is not int or not 0 <= rank < self._ranks:
                item.fail(field, f"must be an integer from 0 to {self._ranks - 1}")
            return rank

        return Lane(
            name=self._read_name(item, "lane"),
            order=item.choice("order", ORDERS, "priority"),
            depth=item.integer("depth", 1, MOST_DEPTH, 1),
            ranks=item.list("ranks", read_rank),
        )

    def _read_channel(self, value: object, place: str) -> Channel:
        known = ("name", "slots", "initial", "slot_bytes", "transfer_ns")
        item = _Object(self._name, place, value, known)
        return Channel(
            name=self._read_name(item, "channel"),
            slots=item.integer("slots", 1, MOST_SLOTS, 1),
            initial=item.integer("initial", 0, MOST_SLOTS, 0),
            slot_bytes=item.integer("slot_bytes", 0, MOST_SLOT_BYTES, 0),
            transfer_ns=item.integer("transfer_ns", 0, MOST_NS, 0),
        )

    def _read_service(self, value: object, place: str) -> Service:
        known = (
            *("name", "lane", "priority", "lag", "every", "duration_ns"),
            *("inputs", "outputs", "operation", "copy"),
        )
        item = _Object(self._name, place, value, known)

        def read_end(name: object, field: str) -> str:
            if not isinstance(name, str):
                item.fail(field, "must be a channel's name")
            return self._find(name, "channel", item, field)

        return Service(
            name=self._read_name(item, "service"),
            lane=self._find(item.text("lane"), "lane", item, "lane"),
            priority=item.integer("priority", -(1 << 31), (1 << 31) - 1, 0),
            lag=item.integer("lag", 0, MOST_LAG, 0),
            every=item.integer("every", 1, MOST_EVERY, 1),
            duration_ns=item.integer("duration_ns", 0, MOST_NS, 0),
            inputs=item.list("inputs", read_end),
            outputs=item.list("outputs", read_end),
            operation=self._read_operation(item.fields["operation"], f"{place}.operation")
            if "operation" in item.fields
            else None,
            copy=self._read_copy(item.fields["copy"], f"{place}.copy")
            if "copy" in item.fields
            else None,
        )

    def _read_operation(self, value: object, place: str) -> Operation:
        known = ("kind", "dtype", "count", "reduce_op", "root")
        item = _Object(self._name, place, value, known)
        kind = item.choice("kind", KINDS)
        meant = {
            "dtype": kind != "barrier",
            "count": kind != "barrier",
            "reduce_op": kind in REDUCING,
            "root": kind in ROOTED,
        }
        operation = Operation(
            kind=kind,
            dtype=item.choice("dtype", DTYPES) if meant["dtype"] else None,
            count=item.integer("count", 0, MOST_COUNT) if meant["count"] else None,
            reduce_op=item.choice("reduce_op", REDUCE_OPS) if meant["reduce_op"] else None,
            root=item.integer("root", 0, self._ranks - 1) if meant["root"] else None,
        )
        for field in meant:
            if field in item.fields and not meant[field]:
                item.fail(field, f"{kind} has none")
        return operation

    def _read_copy(self, value: object, place: str) -> Copy:
        item = _Object(self._name, place, value, ("kind", "path", "offset", "stride", "count"))
        kind = item.choice("kind", COPIES)
        if kind == "memory":
            for field in ("path", "offset", "stride", "count"):
                if field in item.fields:
                    item.fail(field, "memory has none")
            return Copy(kind=kind)
        path = item.text("path")
        if not _is_name(path, MOST_PATH_BYTES):
            limits = f"must be 1 to {MOST_PATH_BYTES} bytes of UTF-8"
            item.fail("path", f"{limits} without control characters and quotation marks")
        return Copy(
            kind=kind,
            path=path,
            offset=item.integer("offset", 0, MOST_OFFSET, 0),
            stride=item.integer("stride", 0, MOST_SLOT_BYTES, 0),
            count=item.integer("count", 0, MOST_RANGES, 0),
        )


class _Form:
    """What has to hold among the parts of a plan whose fields are right."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._plan = plan
        self._name = name
        self._lanes = {lane.name: lane for lane in plan.lanes}
        self._channels = {channel.name: channel for channel in plan.channels}
        self._ranks = {lane.name: frozenset(lane.ranks) for lane in plan.lanes}
        self._step = max((service.every for service in plan.services), default=1)
        self._every: dict[str, int] = {}
        self._firings = 0

    def check(self) -> None:
        for i, lane in enumerate(self._plan.lanes):
            self._check_lane(lane, f"lanes[{i}]")
        for i, channel in enumerate(self._plan.channels):
            if channel.initial > channel.slots:
                what = f"must be at most its slots, {channel.slots}"
                self._fail(f"channels[{i}].initial", what)
        for i, service in enumerate(self._plan.services):
            self._check_service(service, f"services[{i}]")
        producers: dict[str, list[Service]] = {}
        consumers: dict[str, list[Service]] = {}
        for service in self._plan.services:
            for output in service.outputs:
                producers.setdefault(output, []).append(service)
            for source in service.inputs:
                consumers.setdefault(source, []).append(service)
        for i, channel in enumerate(self._plan.channels):
            ends = (producers.get(channel.name, []), consumers.get(channel.name, []))
            self._check_ends(channel, f"channels[{i}]", *ends)

    def _fail(self, place: str, what: str) -> NoReturn:
        raise InvalidArgumentError(f"{self._name}: {place}: {what}")

    def _check_lane(self, lane: Lane, place: str) -> None:
        if not lane.ranks or any(a >= b for a, b in zip(lane.ranks, lane.ranks[1:], strict=False)):
            ranks = f"must be one or more ranks from 0 to {self._plan.ranks - 1}"
            self._fail(f"{place}.ranks", f"{ranks}, each greater than the one before")
        if len(lane.ranks) > 1 and lane.order != "agreed":
            self._fail(f"{place}.order", 'must be "agreed" on a lane of several ranks')

    def _check_service(self, service: Service, place: str) -> None:
        for field, ends in (("inputs", service.inputs), ("outputs", service.outputs)):
            for i, channel in enumerate(ends):
                if channel in ends[:i]:
                    self._fail(f"{place}.{field}", f'channel "{channel}" comes twice')
        lane = self._lanes[service.lane]
        by_priority = f'needs a lane in agreed order; "{lane.name}" is in order of priority'
        if service.lag and lane.order != "agreed":
            self._fail(f"{place}.lag", by_priority)
        self._check_every(service, lane, f"{place}.every")
        self._check_operation(service, lane, place, by_priority)
        self._check_copy(service, f"{place}.copy")

    def _check_every(self, service: Service, lane: Lane, place: str) -> None:
        if self._step % service.every:
            self._fail(place, f"must divide {self._step}, the largest")
        self._firings += self._step // service.every
        if self._step > 1 and self._firings > MOST_FIRINGS:
            self._fail(place, f"{self._step} micro-batches have more than {MOST_FIRINGS} firings")
        if service.every > 1 and service.lag:
            self._fail(place, "has no lag beside it")
        of_lane = self._every.setdefault(lane.name, service.every)
        if of_lane != service.every and lane.order == "agreed":
            others = f'as of the other services of lane "{lane.name}", which is in agreed order'
            self._fail(place, f"must be {of_lane}, {others}")

    def _check_operation(self, service: Service, lane: Lane, place: str, by_priority: str) -> None:
        operation = service.operation
        if operation is None:
            if len(lane.ranks) > 1:
                what = f'is missing; lane "{lane.name}" has several ranks'
                self._fail(f"{place}.operation", what)
            return
        if lane.order != "agreed":
            self._fail(f"{place}.operation", by_priority)
        if operation.root is not None and operation.root not in lane.ranks:
            self._fail(f"{place}.operation.root", f'must be a rank of lane "{lane.name}"')

    def _check_copy(self, service: Service, place: str) -> None:
        copy = service.copy
        if copy is None:
            return
        if service.operation is not None:
            self._fail(place, "must not be there beside an operation")
        sides = [
            ("inputs", service.inputs, copy.kind != "read"),
            ("outputs", service.outputs, copy.kind != "write"),
        ]
        slots = []
        for side, names, needed in sides:
            found = [self._channels[name] for name in names if self._channels[name].slot_bytes]
            if len(found) != needed:
                what = f"needs {int(needed)} {side} with memory, and has {len(found)}"
                self._fail(place, f"{copy.kind} {what}")
            slots += found
        if copy.kind == "memory" and slots[0].slot_bytes > slots[1].slot_bytes:
            source, target = slots
            what = f'must not copy {source.slot_bytes} bytes of "{source.name}"'
            self._fail(place, f'{what} into {target.slot_bytes} of "{target.name}"')

    def _check_ends(
        self, channel: Channel, place: str, producers: list[Service], consumers: list[Service]
    ) -> None:
        if len(producers) != 1 or not consumers:
            ends = f"{len(producers)} producers and {len(consumers)} consumers"
            needs = "it needs one producer and at least one consumer"
            self._fail(place, f'"{channel.name}" has {ends}; {needs}')
        producer = producers[0]
        sources = self._ranks[producer.lane]
        crossing = 0
        for consumer in consumers:
            self._check_pace(channel, place, producer, consumer)
            ranks = self._ranks[consumer.lane]
            if not sources.isdisjoint(ranks):
                continue
            crossing += 1
            if len(sources) == 1 and len(ranks) == 1:
                continue
            joins = f'"{channel.name}" joins {producer.name} and {consumer.name}'
            only = "only a service of one rank can send, to one of one rank"
            self._fail(place, f"{joins}, which have no rank in common; {only}")
        if not crossing and channel.transfer_ns:
            self._fail(f"{place}.transfer_ns", "must be 0: both ends are on one rank")
        if 0 < crossing < len(consumers) and channel.initial:
            here = "must be 0 where some consumers are on the producer's rank and some are not"
            self._fail(f"{place}.initial", f"{here}; make two channels")

    def _check_pace(
        self, channel: Channel, place: str, producer: Service, consumer: Service
    ) -> None:
        fills, fires = producer.every, consumer.every
        if fills % fires and fires % fills:
            joins = f"{producer.name}, every {fills}, and {consumer.name}, every {fires}"
            self._fail(place, f'"{channel.name}" joins {joins}; one has to divide the other')
        takes = max(fires // fills, 1)
        if takes > channel.slots:
            what = f"must be at least {takes}, which {consumer.name} takes at a time"
            self._fail(f"{place}.slots", what)
        if takes > 1 and channel.slot_bytes and (consumer.operation or consumer.copy):
            what = f"has memory, of which {consumer.name} would take {takes} slots at a time"
            self._fail(place, f'"{channel.name}" {what}; only a function can')
