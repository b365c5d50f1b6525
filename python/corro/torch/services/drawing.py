"""A network for people: a line for each service, or a picture of boxes and arrows.

Ranks are columns, services rows in the order of their declaration. The picture has its colours in
itself, so that every program shows it alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from corro.torch.services.cells import Forward
from corro.torch.services.declared import Channel, Service
from corro.torch.services.network import Network

_COLUMN, _WIDTH, _HEIGHT, _LINE = 300, 160, 40, 13


def text(services: Sequence[Service], network: Network | None) -> str:
    """Returns a line for each service, with what it gives below it."""
    lines = []
    for one in services:
        lines.append(f"{one.name}: {_where(one, network)}")
        for channel in one.outputs:
            takers = ", ".join(taker.name for taker in channel.takers) or "minimize"
            lines.append(f"  {channel.name} to {takers}: {_size(channel, one, network)}")
    return "\n".join(lines)


def _where(one: Service, network: Network | None) -> str:
    if network is None:
        return f"on {one.on!r}, {one.replicas} replicas" if one.replicas > 1 else f"on {one.on!r}"
    ranks = network.places[one.name]
    milliseconds = 1e3 * sum(cell.seconds for cell in network.cells if cell.of is one) / len(ranks)
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {', '.join(map(str, ranks))}; {milliseconds:.2f} ms in step 0"


def _size(channel: Channel, one: Service, network: Network | None) -> str:
    edges = [
        edge
        for cell in (network.forwards[one.name] if network else [])
        for edge in cell.outputs
        if edge.kind == "tensor" and one.outputs[edge.output] is channel
    ]
    said = f"{channel.slots} slots"
    if not edges:
        return said
    edge = edges[0]
    shape = "x".join(map(str, edge.shape)) or "scalar"
    back = ", gradients come back" if edge.active else ""
    dtype = str(edge.dtype).removeprefix("torch.")
    return f"{max(edge.slots, channel.slots)} slots of {edge.bytes} bytes, {shape} {dtype}{back}"


def svg(services: Sequence[Service], network: Network | None) -> str:
    """Returns the picture as one document."""
    arrows = list(_arrows(services, network))
    said: dict[_Box, list[str]] = {}
    for arrow in arrows:
        said.setdefault(arrow.end, []).append(arrow.text)
    row_height = _HEIGHT + 30 + _LINE * max(map(len, said.values()), default=0)
    spots = {
        (one.name, replica): (column * _COLUMN + 30, (row + 1) * row_height - _HEIGHT + 20)
        for row, one in enumerate(services)
        for replica, column in enumerate(_columns(one, network))
    }
    columns = range(1 + max((x // _COLUMN for x, _ in spots.values()), default=0))
    width, height = len(columns) * _COLUMN, 40 + len(services) * row_height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="#555"/>'
        "</marker></defs>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *(_rank(column, height) for column in columns if network is not None),
        *(_path(spots[arrow.start], spots[arrow.end], arrow.both) for arrow in arrows),
        *(
            _box(one, replica, *spots[one.name, replica])
            for one in services
            for replica in _of(one)
        ),
        *(_label(spots[end], place, text) for end in said for place, text in enumerate(said[end])),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _of(one: Service) -> range:
    return range(one.replicas)


def _columns(one: Service, network: Network | None) -> Sequence[int]:
    return _of(one) if network is None else network.places[one.name]


_Box = tuple[str, int]


class _Arrow(NamedTuple):
    start: _Box
    end: _Box
    text: str
    both: bool
    """Whether gradients come back."""


def _arrows(services: Sequence[Service], network: Network | None) -> Iterator[_Arrow]:
    if network is None:
        for one in services:
            for channel in one.outputs:
                for taker in channel.takers:
                    text = f"{channel.name}: {channel.slots} slots"
                    yield _Arrow((one.name, 0), (taker.name, 0), text, False)
        return
    for edge in network.edges:
        start, end = edge.feeder, edge.takers[0]
        if edge.kind == "tensor" and isinstance(start, Forward) and isinstance(end, Forward):
            name = start.service.outputs[edge.output].name
            text = f"{name}: {edge.slots} x {edge.bytes} bytes"
            boxes = (start.service.name, start.replica), (end.service.name, end.replica)
            yield _Arrow(*boxes, text, edge.active)


def _rank(column: int, height: int) -> str:
    x = column * _COLUMN + 8
    return (
        f'<rect x="{x}" y="8" width="{_COLUMN - 16}" height="{height - 16}" rx="8" fill="#f4f6f8"/>'
        f'<text x="{x + 10}" y="28" fill="#555">rank {column}</text>'
    )


def _box(one: Service, replica: int, x: int, y: int) -> str:
    name = one.name if one.replicas == 1 else f"{one.name}[{replica}]"
    fill = "#dbeafe" if one.module is not None else "#fef3c7"
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{fill}" '
        f'stroke="#555"/><text x="{x + _WIDTH // 2}" y="{y + 25}" text-anchor="middle" '
        f'fill="#111">{escape(name)}</text>'
    )


def _path(start: tuple[int, int], end: tuple[int, int], both: bool) -> str:
    """Goes from the foot of a box to the head of another, around those between them."""
    x, y = start[0] + _WIDTH // 2, start[1] + _HEIGHT
    to_x, to_y = end[0] + _WIDTH // 2, end[1]
    bow = 0 if 0 < to_y - y < 2 * _HEIGHT else 135
    heads = 'marker-end="url(#head)"' + (' marker-start="url(#head)"' if both else "")
    return (
        f'<path d="M{x} {y}C{x + bow} {y + 40} {to_x + bow} {to_y - 40} {to_x} {to_y}" fill="none" '
        f'stroke="#555" {heads}/>'
    )


def _label(spot: tuple[int, int], place: int, text: str) -> str:
    """Stands beside the arrows' heads, above the box that takes."""
    x, y = spot[0] + _WIDTH // 2 + 8, spot[1] - 8 - _LINE * place
    return (
        f'<text x="{x}" y="{y}" font-size="11" fill="#111" stroke="#fff" stroke-width="3" '
        f'paint-order="stroke">{escape(text)}</text>'
    )
