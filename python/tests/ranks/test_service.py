"""`corro.Graph`: services that ranks run, joined by channels."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import corro
from corro.torch.services import Channel, Graph, Ready, policy

pytestmark = pytest.mark.usefixtures("job", "one_thread")

STEPS = 8
LAST = -1


def rank_of(place: int) -> int:
    """Returns a rank that there is."""
    return place % corro.size()


def numbers(step: int) -> Tensor:
    return torch.arange(4.0) + step


def kept(graph: Graph, channel: Channel, on: int = LAST) -> list[list[float]]:
    """Returns a list that gets what the channel has, on that rank."""
    seen: list[list[float]] = []
    graph.service(
        lambda each: seen.append(each.tolist()), channel, outputs=(), name="keep", on=rank_of(on)
    )
    return seen


def test_tensors_go_from_service_to_service_in_the_order_of_steps() -> None:
    graph = Graph()
    source = graph.service(numbers, on=0)
    double = graph.service(lambda each: each * 2, source, name="double", on=rank_of(1))
    total = graph.service(torch.add, source, double, name="total", on=rank_of(2))
    seen = kept(graph, total)
    graph.run(1)
    graph.run(4)
    graph.run(0)
    graph.close()
    mine = [(3 * numbers(step)).tolist() for step in range(5)]
    assert seen == (mine if corro.rank() == rank_of(LAST) else [])
    assert graph.steps == 5


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16, torch.uint8])
def test_all_dtypes_and_smaller_last_batches(dtype: torch.dtype) -> None:
    graph = Graph()
    given = [torch.arange(6 * 3).reshape(6, 3).to(dtype), torch.ones(4, 3, dtype=dtype)]
    source = graph.service(lambda step: given[step], name="load", on=0)
    got: list[Tensor] = []
    graph.service(got.append, source, outputs=(), name="take", on=rank_of(1))
    graph.run(2)
    graph.close()
    if corro.rank() == rank_of(1):
        assert [each.dtype for each in got] == [dtype, dtype]
        assert all(torch.equal(one, other) for one, other in zip(got, given, strict=True))


def test_a_loop_has_what_the_step_before_has_given() -> None:
    graph = Graph()
    weights = graph.channel("weights", torch.tensor([1.0]))
    acted = graph.service(lambda each: each + 1, weights, name="actor", on=rank_of(1))
    graph.service(lambda each: each * 2, acted, outputs=weights, name="learner", on=0)
    seen = kept(graph, acted)
    graph.run(2)
    graph.run(2)
    graph.close()
    assert seen == ([[2.0], [5.0], [11.0], [23.0]] if corro.rank() == rank_of(LAST) else [])


# --- Training -------------------------------------------------------------------------------------


def modules() -> dict[str, nn.Module]:
    torch.manual_seed(5)
    return {
        "encoder": nn.Linear(8, 16),
        "middle": nn.Sequential(nn.ReLU(inplace=True), nn.Linear(16, 16), nn.LayerNorm(16)),
        "head": nn.Linear(16, 3),
    }


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(6, 8, generator=generator),
            torch.randint(0, 3, (6,), generator=generator),
        )
        for _ in range(STEPS)
    ]


def optimizer_of(parts: dict[str, nn.Module]) -> torch.optim.Optimizer:
    return torch.optim.AdamW([each for of in parts.values() for each in of.parameters()], 1e-2)


def in_one_process() -> tuple[list[float], dict[str, nn.Module]]:
    """Returns the losses, and the trained modules."""
    parts = modules()
    optimizer, losses = optimizer_of(parts), []
    for x, y in batches():
        h = parts["encoder"](x)
        loss = F.cross_entropy(parts["head"](parts["middle"](h.clone()) + h), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, parts


def network(graph: Graph, on: Sequence[Any]) -> tuple[list[float], dict[str, nn.Module]]:
    """Adds a model that skips over a service; returns what gets the losses, and the modules."""
    parts, given, losses = modules(), batches(), []
    x, y = graph.service(lambda step: given[step], name="load", outputs=("x", "y"), on=0)
    h = graph.service(parts["encoder"], x, name="encoder", on=on[0])
    skipped = graph.service(parts["middle"], h, name="middle", on=on[1])
    joined = graph.service(torch.add, skipped, h, name="joined", on=on[2])
    scores = graph.service(parts["head"], joined, name="head", on=on[2])
    loss = graph.service(F.cross_entropy, scores, y, name="loss", on=on[3])
    graph.service(lambda each: losses.append(float(each)), loss, outputs=(), name="keep", on=0)
    graph.minimize(loss, optimizer_of(parts))
    return losses, parts


def check_as_in_one_process(graph: Graph, on: Sequence[Any]) -> None:
    expected, whole = in_one_process()
    losses, parts = network(graph, on)
    graph.run(1)
    graph.run(STEPS - 1)
    graph.gather()
    graph.close()
    assert losses == (pytest.approx(expected, abs=1e-5) if corro.rank() == 0 else [])
    for name, part in parts.items():
        for one, other in zip(part.parameters(), whole[name].parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


PLACES = [
    pytest.param((0, 0, 0, 0), id="one rank"),
    pytest.param((0, 1, 2, 3), id="a chain"),
    pytest.param((1, 0, 1, 0), id="back and forth"),
    pytest.param((None, None, None, None), id="planned"),
    pytest.param(("a", "b", "a", "b"), id="by colour"),
]


@pytest.mark.parametrize("on", PLACES)
def test_training_is_that_of_one_process(on: Sequence[Any]) -> None:
    check_as_in_one_process(Graph(), [rank_of(at) if isinstance(at, int) else at for at in on])


def test_a_service_goes_to_the_rank_that_has_what_it_needs() -> None:
    last = corro.size() - 1
    seen: list[float] = []
    with Graph(resources={"camera": 1} if corro.rank() == last else None) as graph:
        seeing = {"camera": 1, "memory": 1e6}
        eye = graph.service(lambda step: torch.ones(2) * step, name="eye", resources=seeing)
        graph.service(lambda each: seen.append(each.sum().item()), eye, name="see", outputs=())
        graph.run(3)
        assert graph.places["eye"] == (last,)
    assert not seen or seen == [0, 2, 4]

    wanted = [
        ({"camera": 2}, "camera 2; a rank has at most camera 1"),
        ({"memory": 1e18}, "memory 1e[+]18; a rank has at most memory"),
    ]
    for needs, said in wanted:
        with Graph(resources={"camera": 1}) as graph:
            graph.service(torch.ones, name="much", outputs=(), resources=needs)
            with pytest.raises(corro.ResourceExhaustedError, match=f'service "much" needs {said}'):
                graph.run(1)
    with pytest.raises(corro.InvalidArgumentError, match="'memory' has to be a name with a number"):
        Graph().service(torch.ones, resources={"memory": "2 GB"})


def test_replicas_share_rows_and_sum_gradients() -> None:
    if corro.size() == 1:
        pytest.skip("one rank has one replica")
    check_as_in_one_process(Graph(), (0, (0, 1), 1, 0))
    check_as_in_one_process(Graph(), ((1, 0), (1, 0), (1, 0), 0))


@pytest.mark.parametrize("lanes", ["threads", "coroutines"])
def test_services_side_by_side_give_the_same(lanes: str) -> None:
    check_as_in_one_process(Graph(lanes=lanes), (0, rank_of(1), 0, rank_of(1)))


def test_a_colour_is_one_rank() -> None:
    graph = Graph()
    network(graph, ("a", "b", "a", "b"))
    graph.run(1)
    places = graph.places
    graph.close()
    assert places["encoder"] == places["joined"] == places["head"]
    assert places["middle"] == places["loss"]


def test_coroutines_wait_for_one_another() -> None:
    """Both are on one thread; the first one awaits what the second one does."""
    told = asyncio.Semaphore(0)  # The second one may be a step ahead.

    async def waits(step: int) -> Tensor:
        if step:  # Step 0 runs service by service.
            await told.acquire()
        return numbers(step)

    async def tells(step: int) -> Tensor:
        if step:
            told.release()
        return numbers(step)

    graph = Graph(lanes="coroutines")
    one = graph.service(waits, on=0, slots=1)
    other = graph.service(tells, on=0, slots=1)
    seen = kept(graph, graph.service(torch.add, one, other, name="add", on=rank_of(1)), on=0)
    graph.run(4)
    graph.close()
    assert seen == ([(2 * numbers(step)).tolist() for step in range(4)] if not corro.rank() else [])


# --- Policies -------------------------------------------------------------------------------------


def last(ready: Sequence[Ready]) -> Ready:
    return ready[-1]


def eager(ready: Sequence[Ready]) -> Ready:
    """Lets sources run ahead."""
    return max(ready, key=lambda one: (one.step, one.service))


def losses_by(chosen: Any) -> tuple[list[float], list[str]]:
    graph = Graph(policy=chosen)
    losses, _ = network(graph, (0, rank_of(1), 0, rank_of(1)))
    graph.run(3)
    graph.run(STEPS - 3)
    graph.close()
    return losses, [f"{one.service} {one.step}" for one in graph.log if one.step]


def test_the_order_changes_no_result() -> None:
    free, _ = losses_by(None)
    orders = []
    for chosen in (last, eager):
        losses, order = losses_by(chosen)
        assert losses == free
        assert losses_by(chosen) == (losses, order)
        orders.append(order)
    if corro.rank() == 0:
        assert orders[0] != orders[1]
        assert orders[1][:3] == ["load 1", "load 2", "encoder 1"]


def test_a_policy_of_c_orders_like_one_of_python(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    source, library = tmp_path / "last.cc", tmp_path / "last.so"
    source.write_text(
        "#include <cstddef>\n#include <cstdint>\n"
        "struct Ready { const char* service; uint32_t step, rank; double seconds; };\n"
        'extern "C" size_t corro_policy(const Ready* ready, size_t count) {\n'
        "  return ready[count - 1].service[0] ? count - 1 : count;\n}\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    assert losses_by(policy.Native(library)) == losses_by(last)
    with pytest.raises(corro.InvalidArgumentError, match=r"policy .*nothing\.so"):
        policy.Native(tmp_path / "nothing.so")


def raising(_: Sequence[Ready]) -> Ready:
    raise ZeroDivisionError("no idea")


def looping(_: Sequence[Ready]) -> Ready:
    while True:
        pass


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (raising, r"\"raising\": ZeroDivisionError\('no idea'\)"),
        (looping, '"looping": has not answered in 0.5 seconds'),
        (lambda _: 3, '"<lambda>": answers 3, which is not ready'),
    ],
)
def test_a_policy_that_fails_is_told_on_every_rank(
    chosen: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "MOST_SECONDS", 0.5)
    graph = Graph(policy=chosen)
    source = graph.service(numbers, name="load", on=0)
    seen = kept(graph, source, on=0)
    with pytest.raises(corro.InvalidArgumentError, match=f"graph.run: rank 0 policy {said}"):
        graph.run(3)
    assert graph.steps == 1, "no firing has begun"
    graph.close()
    assert len(seen) == (corro.rank() == 0)


# --- What one can see -----------------------------------------------------------------------------


def test_a_recorded_step_is_played_again(tmp_path: Path) -> None:
    folder = corro.broadcast_object(str(tmp_path))
    graph = Graph()
    torch.manual_seed(corro.rank())
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    weights = [each.detach().clone() for each in module.parameters()]
    source = graph.service(numbers, name="load", on=0)
    scores = graph.service(module, source, name="model", on=rank_of(1))
    loss = graph.service(torch.mean, scores, name="loss", on=0)
    graph.minimize(loss, torch.optim.SGD(module.parameters(), 0.1))
    graph.record(folder, {0, 2})
    graph.run(4)
    corro.barrier()
    trained = [each.detach().clone() for each in module.parameters()]
    for step in (0, 2):
        again = graph.replay(folder, step, "model")
        assert again.difference == 0.0
        assert again.results[0].shape == (1,)
    assert all(torch.equal(*each) for each in zip(module.parameters(), trained, strict=True))
    if corro.rank() == rank_of(1):
        assert not torch.equal(weights[0], trained[0])
    with pytest.raises(corro.NotFoundError, match='no record of service "model", step 1'):
        graph.replay(folder, 1, "model")
    with pytest.raises(corro.NotFoundError, match='no service "mode"; there are load, model, loss'):
        graph.replay(folder, 1, "mode")
    graph.close()
    fired = [one for one in graph.log if one.service == "load"]
    assert [one.step for one in fired] == ([0, 1, 2, 3] if corro.rank() == 0 else [])
    assert len({one.gave for one in fired}) == len(fired)


def test_text_and_picture_say_what_is_where() -> None:
    graph = Graph()
    network(graph, (0, rank_of(1), 0, rank_of(1)))
    assert "encoder: on 0" in graph.describe()
    assert graph.svg().count("<rect") == 1 + 7
    graph.run(1)
    described, picture = graph.describe(), graph.svg()
    graph.close()
    assert f"middle: rank {rank_of(1)}; " in described
    assert "2 slots of 384 bytes, 6x16 float32, gradients come back" in described
    assert "  loss to keep: 2 slots of 4 bytes, scalar float32" in described
    ranks = 1 + rank_of(1)
    assert picture.count("<rect") == 1 + ranks + 7
    assert "encoder: 2 x 384 bytes" in picture
    assert ElementTree.fromstring(picture).tag.endswith("svg")


# --- What goes wrong ------------------------------------------------------------------------------


def raises(step: int, at: int) -> Tensor:
    if step == at:
        raise ZeroDivisionError("no data")
    return numbers(step)


def returns(step: int, first: Any, then: Any) -> Any:
    return first if step < 3 else then


def test_a_loss_that_trains_nothing_is_refused() -> None:
    graph = Graph()
    loss = graph.service(lambda step: numbers(step).sum(), name="loss", on=rank_of(1))
    graph.minimize(loss, torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1))
    said = 'service "loss.backward", step 0: has to make the loss: one number that depends on a'
    with pytest.raises(corro.InvalidArgumentError, match=said):
        graph.run(1)
    graph.close()


def test_an_optimizer_over_other_parameters_is_refused() -> None:
    graph = Graph()
    x = graph.service(numbers, name="load", on=0)
    scores = graph.service(nn.Linear(4, 4), x, name="model", on=rank_of(1))
    loss = graph.service(torch.sum, scores, name="loss", on=0)
    graph.minimize(loss, torch.optim.SGD(nn.Linear(4, 4).parameters(), 0.1))
    said = r"has no parameter of the services that the loss is computed with \(model\)"
    with pytest.raises(corro.InvalidArgumentError, match=said):
        graph.run(1)
    graph.close()


def test_ranks_that_run_different_numbers_of_steps_are_told() -> None:
    if corro.size() == 1:
        return
    graph = Graph()
    graph.service(lambda _: None, name="load", outputs=(), on=0)
    last = corro.size() - 1
    said = f"rank {last} runs until step 4, rank 0 until step 3: all ranks run the same number"
    with pytest.raises(corro.MismatchError, match=said):
        graph.run(4 if corro.rank() == last else 3)
    graph.close()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda step: raises(step, 0), "step 0: ZeroDivisionError: no data"),
        (lambda step: raises(step, 3), "step 3: ZeroDivisionError: no data"),
        (lambda _: torch.ones(1, dtype=torch.complex64), "step 0: gives 1 dims of complex64, whi"),
        (lambda _: 7, "step 0: returns a int, not a tensor"),
        (lambda step: returns(step, numbers(0), None), "step 3: returns a NoneType, not a tensor"),
        (
            lambda step: returns(step, numbers(0), torch.ones(4, 2)),
            r"step 3: gives \(4, 2\) of float32; the first step gave \(4,\) of float32",
        ),
        (
            lambda step: returns(step, numbers(0), torch.ones(4, dtype=torch.int64)),
            r"step 3: gives \(4,\) of int64",
        ),
        (
            lambda step: returns(step, numbers(0), torch.ones(5)),
            r"step 3: gives \(5,\) of float32; the first step gave \(4,\)",
        ),
    ],
)
def test_a_service_that_fails_is_named_on_every_rank(function: Any, said: str) -> None:
    graph = Graph()
    source = graph.service(function, name="source", on=rank_of(1))
    back = graph.service(lambda each: each, source, name="same", on=0)
    kept(graph, back)
    with pytest.raises(corro.CorroError, match=f'service "source", {said}') as caught:
        graph.run(5)
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(corro.FailedPreconditionError, match="has failed before"):
        graph.run(1)
    graph.close()
    corro.barrier()


@pytest.mark.parametrize(
    "options", [{"lanes": "threads"}, {"lanes": "coroutines"}, {"policy": lambda ready: ready[0]}]
)
def test_a_failure_ends_all_that_runs_beside_it(options: dict[str, Any]) -> None:
    """One service awaits what never comes, since another one has failed."""

    async def waits(each: Tensor) -> Tensor:
        if each[0] == 2 and options.get("lanes") == "coroutines":
            await asyncio.Event().wait()
        return each

    graph = Graph(**options)
    source = graph.service(lambda step: raises(step, 4), name="source", on=0, slots=4)
    for place in range(2):
        waiting = graph.service(waits, source, name=f"wait{place}", on=rank_of(place))
        graph.service(lambda _: None, waiting, name=f"end{place}", outputs=(), on=0)
    with pytest.raises(corro.CorroError, match='service "source", step 4: ZeroDivisionError'):
        graph.run(6)
    graph.close()
    corro.barrier()


def nobody_feeds(graph: Graph) -> None:
    graph.service(torch.neg, graph.channel("weights", numbers(0)), name="act", outputs=())


def nobody_takes(graph: Graph) -> None:
    images, _ = graph.service(numbers, name="load", outputs=("images", "labels"))
    kept(graph, images)


def waits_for_itself(graph: Graph) -> None:
    weights = graph.channel("weights")
    acted = graph.service(torch.neg, weights, name="actor")
    graph.service(torch.neg, acted, name="learner", outputs=weights)


def no_such_rank(graph: Graph) -> None:
    kept(graph, graph.service(numbers, name="load", on=99))


def other_replicas(graph: Graph) -> None:
    load = graph.service(numbers, name="load")
    one = graph.service(torch.neg, load, name="one", replicas=2)
    graph.service(torch.neg, one, name="other", replicas=3, outputs=())


def trained_twice(graph: Graph) -> None:
    module = nn.Linear(4, 1)
    load = graph.service(numbers, name="load")
    first = graph.service(module, load, name="first")
    both = graph.service(lambda *each: sum(each), first, graph.service(module, load, name="second"))
    graph.minimize(both, torch.optim.SGD(module.parameters(), 0.1))


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda _: None, "the graph has no services"),
        (nobody_feeds, 'nobody feeds channel "weights"; service "act" waits for it'),
        (nobody_takes, 'service "load": nobody takes its output "load.labels"'),
        (waits_for_itself, 'services "learner", "actor" wait for each other, in a loop'),
        (no_such_rank, 'service "load": on: there is no rank 99; the job has ranks 0 to'),
        (trained_twice, 'services "first" and "second" train the same parameter'),
        (other_replicas, 'service "one" has 2 replicas, and "other", which takes "one", 3'),
    ],
)
def test_a_network_that_cannot_run_is_refused_before_anything_runs(declare: Any, said: str) -> None:
    graph = Graph()
    declare(graph)
    with pytest.raises(corro.CorroError, match=f"graph.run: {said}"):
        graph.run(1)
    assert graph.steps == 0
    assert not graph.log
    graph.close()


def test_ranks_that_declare_different_graphs_are_told() -> None:
    if corro.size() == 1:
        pytest.skip("one rank has one graph")
    graph = Graph()
    kept(graph, graph.service(numbers, name="load" if corro.rank() else "read", on=0))
    with pytest.raises(corro.MismatchError, match=r"rank 0 has read.* where rank 1 has load"):
        graph.run(1)
