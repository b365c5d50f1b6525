"""What `corro.Graph` refuses as soon as it is declared, and its decisions, in one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import corro
from corro.graph import Channel, Lane, Plan, Service
from corro.torch.services import Graph, Ready, declared
from corro.torch.services.placing import places_of
from corro.torch.services.policy import order_of


def test_the_graph_is_found_by_its_short_name() -> None:
    assert corro.Graph is Graph


def load(step: int) -> torch.Tensor:
    return torch.ones(step + 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"function": 3}, 'service "int": has to be a function or a module: 3'),
        ({"name": ""}, "service: name has to be text of 1 to 100 bytes, not ''"),
        ({"name": 'a"b'}, "service: name has to be printable"),
        ({"name": "first"}, 'service "first": another service has this name'),
        ({"on": lambda: 0}, 'service "load": on has to be a rank, a colour'),
        ({"on": (0, 0)}, 'service "load": on has to be a rank, a colour'),
        ({"on": True}, 'service "load": on has to be a rank, a colour'),
        ({"replicas": 0}, 'service "load": replicas has to be a number from 1, not 0'),
        ({"replicas": 2}, 'service "load": has no inputs, whose rows replicas could share'),
        ({"slots": 0}, 'service "load": slots has to be a whole number from 1'),
        ({"outputs": (7,)}, 'service "load": outputs has to be text'),
        ({"outputs": ("a", "a")}, 'channel "load.a": another channel has this name'),
    ],
)
def test_what_is_no_service_is_refused_at_once(arguments: dict[str, Any], said: str) -> None:
    graph = Graph()
    graph.service(load, name="first")
    with pytest.raises(corro.InvalidArgumentError) as caught:
        graph.service(arguments.pop("function", load), **arguments)
    assert str(caught.value).startswith(said)


def test_channels_are_of_one_graph_and_have_one_feeder() -> None:
    graph = Graph()
    other = Graph().service(load)
    with pytest.raises(corro.InvalidArgumentError, match=r"is no channel of this graph"):
        graph.service(torch.neg, other)
    loop = graph.channel("loop", torch.ones(1))
    graph.service(torch.neg, loop, name="one", outputs=loop)
    with pytest.raises(corro.InvalidArgumentError, match='"one" feeds "loop" already'):
        graph.service(torch.neg, loop, outputs=loop)
    with pytest.raises(corro.InvalidArgumentError, match='channel "loop": another channel'):
        graph.channel("loop")


def test_names_are_numbered_where_none_is_given() -> None:
    graph = Graph()
    graph.channel("load-2", torch.ones(1))
    assert [graph.service(load).name for _ in range(3)] == ["load", "load-3", "load-4"]
    assert graph.service(nn.Identity(), graph.service(load)).name == "Identity"


def test_options_that_do_not_exist() -> None:
    graph = Graph()
    with pytest.raises(corro.InvalidArgumentError, match=r"minimize: 3 is no torch\.optim"):
        graph.minimize(graph.service(load), 3)  # type: ignore[arg-type]
    with pytest.raises(corro.InvalidArgumentError, match="lanes has to be one of"):
        Graph(lanes="processes")
    with pytest.raises(corro.InvalidArgumentError, match="policy has to be a function, not 3"):
        Graph(policy=3)  # type: ignore[arg-type]
    with pytest.raises(corro.InvalidArgumentError, match="a policy orders services in lanes="):
        Graph(lanes="threads", policy=lambda ready: ready[0])


def test_two_services_may_not_train_one_parameter() -> None:
    module = nn.Linear(1, 1)
    services = [declared.Service(name, module, (), (), 0, 1) for name in ("one", "other")]
    with pytest.raises(corro.InvalidArgumentError, match='"one" and "other" train the same'):
        declared.check_parameters(services)


def test_replicas_have_parameters_of_one_dtype() -> None:
    module = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1, dtype=torch.float64))
    declared.check_parameters([declared.Service("one", module, (), (), 0, 1)])
    with pytest.raises(corro.InvalidArgumentError, match="parameters of one dtype, and it has"):
        declared.check_parameters([declared.Service("two", module, (), (), (0, 1), 2)])


def service(name: str, on: Any, replicas: int = 1, **needs: float) -> declared.Service:
    return declared.Service(name, load, (), (), on, replicas, needs)


def test_the_longest_colours_go_to_the_least_loaded_ranks() -> None:
    services = [
        service("fixed", 0),
        service("long", None),
        service("middle", "red"),
        service("short", "red"),
        service("wide", None, replicas=2),
    ]
    seconds = {"fixed": 3.0, "long": 5.0, "middle": 2.0, "short": 1.0, "wide": 2.0}
    assert places_of(services, 3, seconds) == {
        "fixed": (0,),
        "long": (1,),
        "middle": (2,),
        "short": (2,),
        "wide": (0, 2),
    }
    assert places_of(services, 3)["wide"] == (0, 1)


def test_services_go_where_there_is_what_they_need() -> None:
    ranks = [{"memory": 4.0}, {"memory": 10.0, "gpu": 1.0}, {"memory": 10.0}]
    services = [
        service("small", None, memory=3),
        service("large", None, memory=8),
        service("fast", "red", gpu=1),
        service("beside", "red", memory=2),
        service("free", None),
    ]
    seconds = {"small": 9.0, "large": 1.0, "fast": 1.0, "beside": 1.0, "free": 1.0}
    assert places_of(services, 3, seconds, ranks) == {
        "small": (0,),
        "large": (2,),
        "fast": (1,),
        "beside": (1,),
        "free": (2,),
    }
    with pytest.raises(
        corro.ResourceExhaustedError, match=r"colour red needs .*gpu 1.*at most .*gpu 0"
    ):
        places_of(services, 3, None, [{"memory": 10.0}] * 3)
    with pytest.raises(
        corro.ResourceExhaustedError, match='"fixed" needs memory 5; rank 0 has memory 4'
    ):
        places_of([service("fixed", 0, memory=5)], 3, None, ranks)
    with pytest.raises(corro.ResourceExhaustedError, match="only 2 ranks have that"):
        places_of([service("wide", None, 3, memory=5)], 3, None, ranks)


PIPE = Plan(
    ranks=2,
    lanes=(Lane(name="F", ranks=(0,)), Lane(name="G", ranks=(1,))),
    channels=(Channel(name="c", slots=2, slot_bytes=8), Channel(name="back", slots=2, initial=1)),
    services=(
        Service(name="F", lane="F", duration_ns=1000, outputs=("c",)),
        Service(name="G", lane="G", inputs=("c", "back"), outputs=("back",)),
    ),
)


def test_a_policy_chooses_among_what_tokens_allow() -> None:
    asked: list[list[str]] = []

    def first(ready: Any) -> Ready:
        asked.append([f"{one.service}{one.step}" for one in ready])
        return ready[0]

    assert order_of(PIPE, first, 0, 3, 1) == [
        ("F", 0), ("F", 1), ("G", 0), ("F", 2), ("G", 1), ("G", 2),
    ]  # fmt: skip
    assert asked == [["F1"], ["F2", "G1"], ["G1"], ["F3", "G2"], ["G2"], ["G3"]]
    order = order_of(PIPE, lambda ready: ready[-1], 3, 5, 1)
    assert order == [("F", 3), ("G", 3), ("F", 4), ("G", 4)]
