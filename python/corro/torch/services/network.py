"""The network of cells that declared services become, once their places are known.

Forward cells come first. What came back from them in the first step says where gradients pass, so
backward cells are added then: `add_training()`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from corro.errors import InvalidArgumentError
from corro.torch.services.cells import Backward, Cell, Edge, Forward, Reduce, Update
from corro.torch.services.declared import Channel, Service, towards
from corro.torch.services.placing import Places


class Network:
    """Cells of all ranks, in an order in which a step can run."""

    def __init__(self, services: Sequence[Service], places: Places, loss: Channel | None) -> None:
        self.places = places
        self.loss = loss
        path = towards(loss)
        self.forwards = {
            one.name: [
                Forward(one, replica, rank, one in path)
                for replica, rank in enumerate(places[one.name])
            ]
            for one in services
        }
        self.cells: list[Cell] = [each for of in self.forwards.values() for each in of]
        for one in services:
            for argument, channel in enumerate(one.inputs):
                self._join(channel, one, argument)

    @property
    def edges(self) -> list[Edge]:
        """Returns each edge once."""
        return [edge for cell in self.cells for edge in cell.outputs]

    def _join(self, channel: Channel, taker: Service, argument: int) -> None:
        assert channel.feeder is not None
        output = channel.feeder.outputs.index(channel)
        sources, sinks = self.forwards[channel.feeder.name], self.forwards[taker.name]
        for source in sources:
            for sink in sinks:
                if len(sources) == len(sinks) and source.replica != sink.replica:
                    continue
                edge = _edge(f"{channel.name}:{source.name}>{sink.name}.{argument}", source, sink)
                edge.slots = max(channel.slots, len(channel.initial) + 1)
                edge.output, edge.argument, edge.loops = output, argument, channel.loops
                if len(sources) == 1:
                    edge.part, edge.parts = sink.replica, len(sinks)
                edge.initial = [_rows(each, source, sources, edge) for each in channel.initial]

    def add_training(self, optimizer: torch.optim.Optimizer) -> None:
        """Adds what trains, by the edges that are active; forward cells have fired once."""
        assert self.loss is not None
        made: dict[Forward, Backward] = {}
        last = self.loss.feeder
        for forward in [each for each in self.cells if isinstance(each, Forward)]:
            loss = forward.service.outputs.index(self.loss) if forward.service is last else None
            if loss is not None or any(edge.active for edge in forward.outputs):
                made[forward] = Backward(forward, loss)
            else:
                forward.tracked = False
                forward.held.clear()
        trained = {each.service: None for each in made if each.service.parameters}
        _check_steps(optimizer, list(trained))
        for forward, backward in reversed(made.items()):
            self.cells.append(backward)
            _edge(f"{forward.name}.kept", forward, backward, "token").initial = [None]
            for edge in forward.inputs:
                if edge.active:
                    before = made[_forward(edge.feeder)]
                    back = _edge(f"{edge.name}.gradient", backward, before)
                    back.dtype, back.shape = edge.dtype, edge.shape
        for backward in made.values():
            _sort_gradients(backward)
        self._add_updates(list(trained), optimizer)

    def _add_updates(self, services: Sequence[Service], optimizer: torch.optim.Optimizer) -> None:
        ranks = sorted({rank for one in services for rank in self.places[one.name]})
        updates = {rank: Update(rank, optimizer) for rank in ranks}
        for one in services:
            backwards = [self._backward_of(each) for each in self.forwards[one.name]]
            if one.replicas > 1:
                self._add_reduce(one, backwards, updates)
            for backward in backwards:
                update = updates[backward.rank]
                if one.replicas == 1:
                    _edge(f"{backward.name}.done", backward, update, "token")
                _edge(f"{backward.forward.name}.weights", update, backward.forward, "token")
        self.cells += updates.values()

    def _add_reduce(
        self, service: Service, backwards: Sequence[Backward], updates: dict[int, Update]
    ) -> None:
        dtype = service.parameters[0].dtype
        reduce = Reduce(service, self.places[service.name])
        count = sum(each.numel() for each in service.parameters)
        for backward in sorted(backwards, key=lambda each: each.rank):
            _flat(f"{backward.name}.gradients", backward, [reduce], dtype, count)
        takers: list[Cell] = [updates[rank] for rank in sorted(reduce.ranks)]
        _flat(f"{service.name}.sum", reduce, takers, dtype, count)
        self.cells.append(reduce)

    def go_on_from(self, before: Network) -> None:
        """Takes over what is in the channels, and what is known of them, of other places."""
        known = {edge.name: edge for edge in before.edges}
        seconds = {cell.name: cell.seconds for cell in before.cells}
        for edge in self.edges:
            if edge.name in known:
                old = known[edge.name]
                edge.initial, edge.active = old.initial, old.active
                edge.dtype, edge.shape = old.dtype, old.shape
        for cell in self.cells:
            cell.seconds = seconds.get(cell.name, 0.0)

    def _backward_of(self, forward: Forward) -> Backward:
        return next(
            each for each in self.cells if isinstance(each, Backward) and each.forward is forward
        )


def _edge(name: str, feeder: Cell, taker: Cell, kind: str = "tensor") -> Edge:
    edge = Edge(name, kind, feeder, [taker])
    feeder.outputs.append(edge)
    taker.inputs.append(edge)
    return edge


def _flat(name: str, feeder: Cell, takers: list[Cell], dtype: torch.dtype, count: int) -> None:
    edge = Edge(name, "flat", feeder, takers, dtype=dtype, shape=(count,))
    feeder.outputs.append(edge)
    for each in takers:
        each.inputs.append(edge)


def _forward(cell: Cell) -> Forward:
    assert isinstance(cell, Forward)
    return cell


def _sort_gradients(backward: Backward) -> None:
    """Gradients come in the order of the forward's outputs, whoever was joined first."""
    order = [f"{edge.name}.gradient" for edge in backward.forward.outputs if edge.active]
    gradients = [edge for edge in backward.inputs if edge.kind == "tensor"]
    tokens = [edge for edge in backward.inputs if edge.kind == "token"]
    backward.inputs = sorted(gradients, key=lambda edge: order.index(edge.name)) + tokens


def _rows(
    tensor: torch.Tensor, source: Forward, sources: Sequence[Forward], edge: Edge
) -> torch.Tensor:
    """Returns the part of an initial tensor that this edge has."""
    if len(sources) > 1:
        return tensor.tensor_split(len(sources))[source.replica]
    return tensor.tensor_split(edge.parts)[edge.part] if edge.parts > 1 else tensor


def _check_steps(optimizer: torch.optim.Optimizer, services: Sequence[Service]) -> None:
    """Raises InvalidArgumentError if the optimizer steps nothing of what the loss depends on."""
    stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
    names = ", ".join(each.name for each in services)
    if not services or any(id(each) in stepped for one in services for each in one.parameters):
        return
    raise InvalidArgumentError(
        "graph.minimize: the optimizer has no parameter of the services that the loss is computed "
        f"with ({names}); make it over theirs"
    )
