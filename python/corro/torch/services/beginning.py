"""How a graph begins: whether it can run, step 0, and where services go after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from corro._agreement import check_same_lines
from corro._context import world
from corro._objects import broadcast_object
from corro.errors import CorroError
from corro.torch.services import declared
from corro.torch.services.declared import Channel, Service
from corro.torch.services.first_step import Fire, run_first
from corro.torch.services.network import Network
from corro.torch.services.placing import places_of
from corro.torch.services.supplies import Amounts, supplies_of


def checked(
    services: Sequence[Service], channels: Iterable[Channel], loss: Channel | None
) -> list[Service]:
    """Returns the services in an order in which a step can run; ranks have the same ones."""
    refusal: CorroError | None = None
    order: list[Service] = []
    try:
        declared.check(services, channels, loss)
        order = declared.in_order(services)
        path = declared.towards(loss)
        declared.check_parameters(one for one in services if one in path)
        places_of(order, world().size())
    except CorroError as error:
        refusal = error
    lines = [one.line() for one in services] + [f"minimize {loss.name}" if loss else "no loss"]
    if refusal is not None:
        lines = [str(refusal)]
    check_same_lines(world(), "graph.run", lines)
    if refusal is not None:
        raise refusal
    return order


def begun(
    order: Sequence[Service],
    loss: Channel | None,
    optimizer: torch.optim.Optimizer | None,
    fire: Fire,
    has: Amounts,
) -> Network:
    """Runs step 0 and returns the network that the plan is of; called by all ranks, blocks.

    Args:
        order: as checked() returns.
        fire: runs one cell for a step.
        has: what the user says that this rank has.

    Raises:
        InvalidArgumentError: a service has failed, on every rank; the message names it.
        ResourceExhaustedError: on every rank: none has what a service needs.
    """
    supplies = supplies_of(has) if any(one.resources for one in order) else None
    network = Network(order, places_of(order, world().size(), supplies=supplies), loss)
    run_first(network.cells, fire)
    if optimizer is not None:
        forwards = len(network.cells)
        network.add_training(optimizer)
        run_first(network.cells[forwards:], fire)
    if any(isinstance(one.on, str) or one.on is None for one in order):
        return _moved(network, order, optimizer, supplies)
    return network


def _moved(
    before: Network,
    order: Sequence[Service],
    optimizer: torch.optim.Optimizer | None,
    supplies: Sequence[Amounts] | None,
) -> Network:
    """Returns the network with places by the time that step 0 took, state and all."""
    seconds = dict.fromkeys(before.places, 0.0)
    for cell in before.cells:
        if cell.of is not None:
            seconds[cell.of.name] += cell.seconds
    places = places_of(order, world().size(), seconds, supplies)
    after = Network(order, places, before.loss)
    after.go_on_from(before)
    if optimizer is not None:
        after.add_training(optimizer)
        after.go_on_from(before)
    for one in order:
        _move(one, optimizer, before.places[one.name], after.places[one.name])
    return after


def _move(
    one: Service,
    optimizer: torch.optim.Optimizer | None,
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> None:
    """Brings a module's state from its first rank to those that have not run it."""
    if one.module is None or set(after) <= set(before):
        return
    parameters = [] if optimizer is None else one.parameters
    states = [optimizer.state.get(each) for each in parameters if optimizer]
    owner = world().ranks[before[0]]
    state, states = broadcast_object((one.module.state_dict(), states), owner)
    rank = world().rank()
    if rank in after and rank not in before:
        one.module.load_state_dict(state)
        for parameter, each in zip(parameters, states, strict=True):
            if each is not None and optimizer is not None:
                optimizer.state[parameter] = each
