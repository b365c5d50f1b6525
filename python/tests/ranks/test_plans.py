"""Plans that a job runs."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
from plans import stepping, summing

import corro
import corro.numpy
from corro.graph import Channel, Copy, Lane, Plan, Service
from corro.loaded_plan import LoadedPlan

pytestmark = pytest.mark.usefixtures("job")


def chain(ranks: int, slots: int = 2) -> Plan:
    """A stage on each rank hands 8 bytes to the next one."""
    return Plan(
        ranks=ranks,
        lanes=tuple(Lane(name=f"rank{r}", ranks=(r,)) for r in range(ranks)),
        channels=tuple(Channel(name=f"c{r}", slots=slots, slot_bytes=8) for r in range(ranks - 1)),
        services=tuple(
            Service(
                name=f"stage{r}",
                lane=f"rank{r}",
                inputs=(f"c{r - 1}",) if r else (),
                outputs=(f"c{r}",) if r + 1 < ranks else (),
            )
            for r in range(ranks)
        ),
    )


def adding(seen: list[int]) -> Callable[[corro.Firing], None]:
    def stage(firing: corro.Firing) -> None:
        value = firing.inputs[0].cast("q")[0] + 1 if firing.inputs else firing.micro * 100
        seen.append(value)
        for output in firing.outputs:
            output.cast("q")[0] = value

    return stage


def local(*services: str, slots: int = 4, slot_bytes: int = 0) -> Plan:
    """A chain of services on one rank, each on a lane of its own."""
    hops = tuple(f"c{i}" for i in range(len(services) - 1))
    return Plan(
        ranks=1,
        lanes=tuple(Lane(name=name, ranks=(0,)) for name in services),
        channels=tuple(Channel(name=hop, slots=slots, slot_bytes=slot_bytes) for hop in hops),
        services=tuple(
            Service(name=name, lane=name, inputs=hops[max(i - 1, 0) : i], outputs=hops[i : i + 1])
            for i, name in enumerate(services)
        ),
    )


@pytest.fixture
def alone() -> corro.Group:
    """The group of this rank."""
    group = corro.new_group([corro.rank()])
    assert group is not None
    return group


def ignore(_firing: corro.Firing) -> None:
    pass


def wait_until_described(loaded: LoadedPlan, first_line: str) -> None:
    while not loaded.describe().startswith(first_line):
        time.sleep(0.001)


def test_data_goes_from_rank_to_rank() -> None:
    seen: list[int] = []
    with corro.load_plan(chain(corro.size())) as loaded:
        loaded.run(3, {f"stage{corro.rank()}": adding(seen)})
        assert loaded.completed == 3
        loaded.run(20, {f"stage{corro.rank()}": adding(seen)})
    assert seen == [micro * 100 + corro.rank() for micro in range(20)]


def test_collectives_are_services_and_each_lane_has_a_thread() -> None:
    sums: list[int] = []
    threads: set[int] = set()

    def fill(firing: corro.Firing) -> None:
        threads.add(threading.get_ident())
        firing.outputs[0].cast("q")[99] = firing.micro + corro.rank()

    def take(firing: corro.Firing) -> None:
        threads.add(threading.get_ident())
        sums.append(firing.inputs[0].cast("q")[99])

    with corro.load_plan(summing(corro.size(), taking="apart")) as loaded:
        loaded.run(50, {f"fill{corro.rank()}": fill, f"take{corro.rank()}": take})
    ranks = corro.size()
    assert sums == [micro * ranks + ranks * (ranks - 1) // 2 for micro in range(50)]
    assert len(threads) == 2
    assert threading.get_ident() in threads


def test_the_timeline_shows_every_firing_on_its_lane(tmp_path: Path) -> None:
    rank, ranks = corro.rank(), corro.size()
    corro.start_timeline(tmp_path / "timeline.json")
    with corro.load_plan(chain(ranks)) as loaded:
        loaded.run(3, {f"stage{rank}": adding([])})
    with corro.load_plan(summing(ranks)) as loaded:
        loaded.run(2, {f"fill{rank}": ignore, f"take{rank}": ignore})
    corro.stop_timeline()
    if rank > 0:
        return
    events = json.loads((tmp_path / "timeline.json").read_text())
    process = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    thread = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"
    }
    shown = Counter(
        (process[e["pid"]], thread[e["pid"], e["tid"]], e["name"], e["args"]["micro_batch"])
        for e in events
        if e["ph"] == "X"
    )
    wanted: Counter[tuple[str, str, str, int]] = Counter()
    for r in range(ranks):
        lanes = f"lanes of rank {r}"
        transfers = [f"c{r - 1} from rank {r - 1}"] * (r > 0) + [f"c{r} to rank {r + 1}"]
        for micro in range(3):
            wanted[lanes, f"rank{r}", f"stage{r}", micro] = 1
            for name in transfers[: None if r + 1 < ranks else -1]:
                wanted[lanes, name, name, micro] = 1
        for micro in range(2):
            wanted[lanes, f"rank{r}", f"fill{r}", micro] = 1
            wanted[lanes, "all", "reduce", micro] = 1
            wanted[lanes, f"rank{r}", f"take{r}", micro] = 1
    assert shown == wanted
    assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")
    tensors = {e["args"]["name"] for e in events if e.get("name") == "process_name"}
    assert "reduce" not in tensors, "as an operation, too"


def test_a_firing_says_how_much_it_has_filled() -> None:
    sizes = [8, 3, 0, 8]
    seen: list[bytes] = []

    def stage(firing: corro.Firing) -> None:
        if firing.inputs:
            seen.append(bytes(firing.inputs[0]))
        if not firing.outputs:
            return
        assert firing.outputs[0].nbytes == 8
        with pytest.raises(corro.InvalidArgumentError, match="room for 8 bytes, not 9"):
            firing.fill(0, 9)
        with pytest.raises(corro.InvalidArgumentError, match="no output 1 of 1"):
            firing.fill(1, 0)
        size = sizes[firing.micro]
        firing.outputs[0][:size] = bytes([65 + firing.micro]) * size
        firing.fill(0, size)

    with corro.load_plan(chain(corro.size())) as loaded:
        loaded.run(len(sizes), {f"stage{corro.rank()}": stage})
    if corro.rank():
        assert seen == [b"A" * 8, b"BBB", b"", b"D" * 8]


def lagging(ranks: int, lag: int, slots: int) -> Plan:
    """F and B of each rank, B some micro-batches behind."""
    return Plan(
        ranks=ranks,
        lanes=tuple(Lane(name=f"rank{r}", order="agreed", ranks=(r,)) for r in range(ranks)),
        channels=tuple(Channel(name=f"stash{r}", slots=slots, slot_bytes=8) for r in range(ranks)),
        services=tuple(
            service
            for r in range(ranks)
            for service in (
                Service(name=f"F{r}", lane=f"rank{r}", outputs=(f"stash{r}",)),
                Service(name=f"B{r}", lane=f"rank{r}", lag=lag, inputs=(f"stash{r}",)),
            )
        ),
    )


def test_lags_let_functions_of_several_ranks_call_collectives() -> None:
    seen: list[str] = []
    rank, ranks = corro.rank(), corro.size()

    def fire(kind: int, firing: corro.Firing) -> None:
        seen.append("FB"[kind] + str(firing.micro))
        both = corro.numpy.allreduce(numpy.array([kind, firing.micro]), corro.Sum)
        assert both.tolist() == [kind * ranks, firing.micro * ranks]

    with corro.load_plan(lagging(ranks, 2, 3)) as loaded:
        for until in (5, 6, 8):
            functions = {f"F{rank}": partial(fire, 0), f"B{rank}": partial(fire, 1)}
            loaded.run(until, functions)
    assert " ".join(seen) == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 F5 B5 F6 F7 B6 B7"


def test_a_lag_needs_slots() -> None:
    with pytest.raises(corro.FailedPreconditionError, match=r"F0 -> B0 -> F0.*or its lags"):
        corro.load_plan(lagging(corro.size(), 2, 2))


def test_a_service_fires_once_for_several_micro_batches() -> None:
    """Where there is a second rank: rank 0 works, and rank 1 steps."""
    if corro.size() == 1:
        return
    group = corro.new_group([0, 1])
    if corro.rank() > 1:
        return
    taken: list[list[int]] = []
    read: list[int] = []

    def work(firing: corro.Firing) -> None:
        read.append(firing.inputs[0].cast("q")[0])
        firing.outputs[0].cast("q")[0] = firing.micro

    def step(firing: corro.Firing) -> None:
        taken.append([each.cast("q")[0] for each in firing.inputs])
        for output in firing.outputs:
            output.cast("q")[0] = firing.micro + 1

    functions = {"work": work} if corro.rank() == 0 else {"step": step}
    with corro.load_plan(stepping(8, 8), group) as loaded:
        loaded.run(6, functions)
        assert loaded.completed == 4
        loaded.run(12, functions)
        loaded.stop("enough")
        with corro.load_plan(stepping(8, 8), group, after=loaded) as again:
            again.run(16, functions)
    if corro.rank() == 0:
        assert read == [0] * 4 + [4] * 4 + [8] * 4 + [0] * 4, "each state four times"
    else:
        assert taken == [[0, 1, 2, 3, 0], [4, 5, 6, 7, 4], [8, 9, 10, 11, 8], [12, 13, 14, 15, 0]]


def test_what_a_function_raises_stops_the_plan_everywhere() -> None:
    def fails(firing: corro.Firing) -> None:
        if firing.micro == 2:
            raise ZeroDivisionError("no data")

    last = corro.size() - 1
    loaded = corro.load_plan(chain(corro.size()))
    fired: list[int] = []
    mine = fails if corro.rank() == last else adding(fired)
    expected = ZeroDivisionError if corro.rank() == last else corro.UnknownError
    with pytest.raises(expected, match="no data") as caught:
        loaded.run(10_000, {f"stage{corro.rank()}": mine})
    if corro.rank() != last:
        assert f"rank {last} stopped the plan: service stage{last}" in str(caught.value)
        assert "micro-batch 2" in str(caught.value)
    with pytest.raises(corro.CorroError, match="no data"):
        loaded.run(10_001)

    # The group is whole: all agree from where they go on.
    before = loaded.completed
    seen: list[int] = []
    repeats: list[bool] = []

    def stage(firing: corro.Firing) -> None:
        repeats.append(firing.repeats)
        adding(seen)(firing)

    again = corro.load_plan(chain(corro.size()), after=loaded)
    loaded.unload()
    first = again.completed
    assert first <= 2
    again.run(first + 5, {f"stage{corro.rank()}": stage})
    again.unload()
    assert seen == [micro * 100 + corro.rank() for micro in range(first, first + 5)]
    assert repeats == sorted(repeats, reverse=True)
    # It may have been further than the five micro-batches that run again.
    assert min(before - first, 5) <= sum(repeats) <= max(len(fired), before) - first


@pytest.mark.parametrize(
    ("until", "line"),
    [
        pytest.param(10, "service ahead, micro-batch 4: waits for a free slot", id="for a firing"),
        pytest.param(3, "service behind, micro-batch 0: in flight", id="for the other thread"),
    ],
)
def test_an_interrupt_ends_the_wait(alone: corro.Group, until: int, line: str) -> None:
    """The main thread waits on its lane, or is done with it."""
    loaded = corro.load_plan(local("ahead", "behind"), alone)

    def interrupts(firing: corro.Firing) -> None:
        if firing.micro == 0:
            wait_until_described(loaded, line)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        loaded.run(until, {"ahead": ignore, "behind": interrupts})
    with pytest.raises(corro.CorroError, match="left it: KeyboardInterrupt"):
        loaded.run(until + 1)
    loaded.unload()


def test_each_service_knows_what_it_repeats(alone: corro.Group) -> None:
    """One that ran ahead of another repeats more, also after a second failure."""
    plan = local("ahead", "behind")
    first = corro.load_plan(plan, alone)

    def fails(firing: corro.Firing) -> None:
        if firing.micro == 1:
            wait_until_described(first, "service ahead, micro-batch 5: waits for a free slot")
            raise ZeroDivisionError("no data")

    with pytest.raises(ZeroDivisionError):
        first.run(10, {"ahead": ignore, "behind": fails})
    assert first.completed == 1
    second = corro.load_plan(plan, alone, after=first)
    second.stop("before anything has fired")
    third = corro.load_plan(plan, alone, after=second)
    repeats: list[bool] = []
    third.run(10, {"ahead": lambda firing: repeats.append(firing.repeats), "behind": ignore})
    for loaded in (first, second, third):
        loaded.unload()
    assert repeats == [micro < 5 for micro in range(1, 10)]


def test_slots_that_are_readable_at_the_start_are_filled_by_the_user() -> None:
    plan = Plan(
        ranks=corro.size(),
        lanes=tuple(Lane(name=f"rank{r}", ranks=(r,)) for r in range(corro.size())),
        channels=(Channel(name="weights", slots=2, initial=1, slot_bytes=8),),
        services=(Service(name="step", lane="rank0", inputs=("weights",), outputs=("weights",)),),
    )
    seen: list[int] = []

    def step(firing: corro.Firing) -> None:
        seen.append(firing.inputs[0].cast("q")[0])
        firing.outputs[0].cast("q")[0] = seen[-1] * 2

    with corro.load_plan(plan) as loaded:
        if corro.rank() == 0:
            loaded.slot("weights").cast("q")[0] = 3
            loaded.run(4, {"step": step})
            assert seen == [3, 6, 12, 24]
            with pytest.raises(corro.NotFoundError):
                loaded.slot("weights", 2)
        else:
            with pytest.raises(corro.NotFoundError):
                loaded.slot("weights")


def test_views_keep_the_memory_of_slots(alone: corro.Group) -> None:
    inputs: list[memoryview] = []
    loaded = corro.load_plan(local("fill", "use", slots=1, slot_bytes=1 << 20), alone)
    loaded.run(1, {"fill": ignore, "use": lambda firing: inputs.extend(firing.inputs)})
    views = [loaded.slot("c0").cast("q"), inputs.pop().cast("q")]
    loaded.unload()
    others = [corro.numpy.empty(1 << 17, numpy.int64) for _ in range(2)]
    for other in others:
        other[:] = 1
    views[0][0] = 7
    assert views[1][0] == 7, "the same slot"
    assert [int(other[0]) for other in others] == [1, 1]
    address = numpy.frombuffer(views[0]).ctypes.data
    views.clear()
    assert corro.numpy.empty(1 << 17, numpy.int64).ctypes.data == address, "it was not freed"


def test_slots_lie_in_what_the_user_gives() -> None:
    """Numpy's, bytes of Python's, and the arena's side by side."""
    given = [numpy.arange(100) + 7, numpy.zeros(100, numpy.int64)]
    sums = [bytearray(800), bytearray(800)]
    rank, ranks = corro.rank(), corro.size()

    def fill(firing: corro.Firing) -> None:
        numpy.frombuffer(firing.outputs[0], numpy.int64)[1:] = firing.micro

    memory = {f"own{rank}": given, "sum": sums} if rank == 0 else {"sum": sums}
    with corro.load_plan(summing(ranks), memory=memory) as loaded:
        loaded.run(2, {f"fill{rank}": fill, f"take{rank}": ignore})
        view = loaded.slot("sum", 1)
        with pytest.raises(BufferError):
            sums[1].append(1)  # Not while the plan may write there.
    if rank == 0:
        assert given[0].tolist() == [7] + 99 * [0]
        assert given[1].tolist() == [0] + 99 * [1]
    assert numpy.frombuffer(sums[0], numpy.int64).tolist() == [7] + 99 * [0]
    assert numpy.frombuffer(sums[1], numpy.int64).tolist() == [0] + 99 * [ranks]
    kept = sums.pop()
    with pytest.raises(BufferError):
        kept.append(1)  # A view of the slot is left.
    del view
    kept.append(1)


def test_a_tensor_holds_a_slot(alone: corro.Group) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(3, dtype=torch.bfloat16)
    plan = local("fill", "use", slots=1, slot_bytes=6)
    ones = torch.ones(3, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()

    def fill(firing: corro.Firing) -> None:
        firing.outputs[0][:] = ones

    with corro.load_plan(plan, alone, memory={"c0": [tensor]}) as loaded:
        loaded.run(1, {"fill": fill, "use": ignore})
    assert tensor.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("memory", "line"),
    [
        ([], r"memory has to be a dict by channels' names, not \[\]"),
        ({"c7": []}, 'the plan has no channel "c7"'),
        ({"c0": bytearray(16)}, r"memory\['c0'\] has to be a list with one buffer for each slot"),
        ({"c0": [bytearray(8)]}, 'plan: memory: channel "c0" has 2 slots, and was given 1'),
        (
            {"c0": [bytearray(8), bytearray(7)]},
            'plan: memory: slot 1 of channel "c0" needs 8 bytes, and was given 7',
        ),
        *(
            (
                {"c0": [bytearray(8), wrong]},
                'plan: memory: slot 1 of channel "c0" has to be contiguous host memory that can',
            )
            for wrong in (bytes(8), None, 8, numpy.zeros((2, 8), numpy.uint8)[:, 0])
        ),
    ],
)
def test_memory_that_no_slot_can_have(alone: corro.Group, memory: Any, line: str) -> None:
    plan = local("fill", "use", slots=2, slot_bytes=8)
    with pytest.raises(corro.InvalidArgumentError, match=line):
        corro.load_plan(plan, alone, memory=memory)


def streaming(ranks: int, source: str, target: str) -> Plan:
    """Rank 0 reads 80 bytes ahead of a function, and the last rank writes what comes of them."""
    read = Copy(kind="read", path=source, stride=80)
    write = Copy(kind="write", path=target, stride=80)
    return Plan(
        ranks=ranks,
        lanes=(
            Lane(name="in", ranks=(0,)),
            Lane(name="compute", ranks=(0,)),
            Lane(name="out", ranks=(ranks - 1,)),
        ),
        channels=(
            Channel(name="loaded", slots=3, slot_bytes=80),
            Channel(name="squares", slots=2, slot_bytes=80),
        ),
        services=(
            Service(name="load", lane="in", outputs=("loaded",), copy=read),
            Service(name="square", lane="compute", inputs=("loaded",), outputs=("squares",)),
            Service(name="save", lane="out", inputs=("squares",), copy=write),
        ),
    )


def shared(folder: Path) -> Path:
    """Rank 0's folder."""
    return Path(corro.broadcast_object(str(folder), 0))


def test_a_file_streams_through_a_function(tmp_path: Path) -> None:
    """It is larger than its slots, which are read ahead."""
    folder = shared(tmp_path)
    numbers = numpy.arange(400)
    if corro.rank() == 0:
        numbers.tofile(folder / "numbers")
    plan = streaming(corro.size(), str(folder / "numbers"), str(folder / "squares"))
    assert Plan.from_dict(plan.to_dict()) == plan
    with corro.load_plan(plan) as loaded:

        def square(firing: corro.Firing) -> None:
            if firing.micro == 0:
                wait_until_described(loaded, "service load, micro-batch 3: waits for a free slot")
            source, target = (
                numpy.frombuffer(slot, numpy.int64) for slot in (*firing.inputs, *firing.outputs)
            )
            numpy.square(source, out=target)

        with pytest.raises(corro.InvalidArgumentError, match='lane "in" is not served'):
            loaded.serve("in", {}, 1)
        loaded.run(40, {"square": square} if corro.rank() == 0 else None)
    corro.barrier()  # Each rank's part has run: the last one has written, too.
    assert numpy.fromfile(folder / "squares", numpy.int64).tolist() == (numbers**2).tolist()


def test_a_disk_that_fails_stops_the_plan_everywhere(tmp_path: Path) -> None:
    nowhere = str(shared(tmp_path) / "nowhere" / "file")
    functions = {"square": ignore} if corro.rank() == 0 else None
    for plan, line in (
        (streaming(corro.size(), "/dev/zero", nowhere), f"cannot open {nowhere} to write it: No"),
        (streaming(corro.size(), nowhere, "/dev/null"), f"cannot open {nowhere} to read it: No"),
        (streaming(corro.size(), "/dev/zero", "/dev/full"), "/dev/full at byte 0: No space left"),
    ):
        with corro.load_plan(plan) as loaded:
            if corro.rank() not in (0, corro.size() - 1):
                continue  # It has no part of it.
            with pytest.raises(corro.CorroError) as raised:
                loaded.run(10, functions)
        said = str(raised.value)
        assert line in said
        assert "service load, " in said or "service save, " in said
        assert said.count("\n") == 0


def test_errors_say_what_and_where() -> None:
    with pytest.raises(corro.InvalidArgumentError, match="the plan is of 9 ranks, the group of"):
        corro.load_plan(chain(9))
    with corro.load_plan(chain(corro.size())) as loaded:
        with pytest.raises(corro.InvalidArgumentError, match='lane "gpu" is not served'):
            loaded.serve("gpu", {}, 1)
        with pytest.raises(corro.InvalidArgumentError, match='no channel "nothing"'):
            loaded.slot("nothing")
    with pytest.raises(corro.FailedPreconditionError, match="this plan was unloaded"):
        loaded.run(1)


def test_a_plan_that_is_unloaded_lets_all_threads_go(alone: corro.Group) -> None:
    """Some come before it is unloaded, some after."""
    for _ in range(20):
        loaded = corro.load_plan(local("ahead", "behind"), alone)
        raised: list[BaseException] = []

        def end(call: Callable[[], None], raised: list[BaseException]) -> None:
            with pytest.raises(corro.CorroError, match="unloaded") as caught:
                call()
            raised.append(caught.value)

        calls = (
            partial(loaded.serve, "behind", {"behind": ignore}, 1),
            partial(loaded.run, 1),
            loaded.start(1).wait,
        )
        threads = [threading.Thread(target=end, args=(call, raised)) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(0.005)  # For some of them to be inside.
        loaded.unload()
        for thread in threads:
            thread.join()
        assert len(raised) == len(threads)


@pytest.mark.parametrize("served", ["ahead", ""], ids=["another lane is served", "none is served"])
def test_a_lane_that_nobody_serves_stops_the_plan(alone: corro.Group, served: str) -> None:
    functions = {served: ignore} if served else None
    late = "behind" if served else "ahead"
    with (
        corro.load_plan(local("ahead", "behind"), alone, timeout=0.3) as loaded,
        pytest.raises(corro.TimeoutError, match=f"service {late}, micro-batch 0: waited for a thr"),
    ):
        loaded.run(10, functions)


def test_one_shots_go_on_beside_a_plan_that_waits() -> None:
    plan = chain(corro.size())
    with corro.load_plan(plan) as loaded:
        work = loaded.start(1)
        corro.barrier()
        assert not work.done()
        assert f"service stage{corro.rank()}, micro-batch 0: " in loaded.describe()
        loaded.serve(f"rank{corro.rank()}", {f"stage{corro.rank()}": adding([])}, 1)
        work.wait()


def changed(plan: Plan) -> dict[str, Plan]:
    """Returns plans that differ from this one, by what a message says."""
    channel, lane, service = plan.channels[0], plan.lanes[0], plan.services[0]

    def having(**values: Any) -> Plan:
        return dataclasses.replace(plan, **values)

    return {
        'slot_bytes of channel "c0" is 8 on rank 0 but 16 on rank 1': having(
            channels=(dataclasses.replace(channel, slot_bytes=16), *plan.channels[1:])
        ),
        'depth of lane "rank0" is the default on rank 0 but 2 on rank 1': having(
            lanes=(dataclasses.replace(lane, depth=2), *plan.lanes[1:])
        ),
        "the name of one of the services is 'stage0' on rank 0 but 'other' on rank 1": having(
            services=(dataclasses.replace(service, name="other"), *plan.services[1:])
        ),
    }


@pytest.mark.parametrize("turn", range(3))
def test_members_that_load_different_plans_are_told_in_what(turn: int) -> None:
    plan = chain(corro.size())
    if corro.size() == 1:
        pytest.skip("one rank has one plan")
    said, other = list(changed(plan).items())[turn]
    with pytest.raises(corro.MismatchError) as raised:
        corro.load_plan(other if corro.rank() == 1 else plan)
    assert f"load_plan: plans differ: {said}" in str(raised.value)
    with corro.load_plan(plan):  # They are in step as before.
        corro.barrier()


def test_members_that_give_a_plan_different_names_are_told() -> None:
    plan = chain(corro.size())
    if corro.size() == 1:
        pytest.skip("one rank gives one name")
    with pytest.raises(corro.MismatchError, match="the name is 'a' on rank 0 but '' on rank 1"):
        corro.load_plan(plan, name="" if corro.rank() == 1 else "a")
    with corro.load_plan(plan, name="a"):  # They are in step as before.
        corro.barrier()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (7, "name has to be a string, not 7"),
        ("a\nb", r"name has to be printable, not 'a\\nb'"),
        ("ü" * 32, "name has to have at most 63 bytes, and has 64: 'ü"),
    ],
)
def test_names_that_a_plan_cannot_have(name: Any, said: str) -> None:
    with pytest.raises(corro.InvalidArgumentError, match=said):
        corro.load_plan(chain(corro.size()), name=name)
    with corro.load_plan(chain(corro.size()), name="ü" * 31 + "x"):
        corro.barrier()


def test_a_member_that_goes_on_and_one_that_does_not_are_told(alone: corro.Group) -> None:
    plan = chain(corro.size())
    if corro.size() == 1:
        pytest.skip("one rank has one plan")
    with (
        corro.load_plan(local("ahead", "behind"), alone) as before,
        pytest.raises(corro.MismatchError, match="rank 1 gave a plan as `after`, but rank 0 none"),
    ):
        corro.load_plan(plan, after=before if corro.rank() == 1 else None)


@pytest.mark.parametrize("until", [-1, 2**32, 1.5, "3", None])
def test_a_number_of_micro_batches_that_cannot_be(until: Any, alone: corro.Group) -> None:
    with corro.load_plan(local("ahead", "behind"), alone) as loaded:
        for call in (
            lambda: loaded.run(until),
            lambda: loaded.start(until),
            lambda: loaded.serve("ahead", {}, until),
        ):
            with pytest.raises(corro.InvalidArgumentError, match="until has to be a whole number"):
                call()
        with pytest.raises(corro.InvalidArgumentError, match="slot has to be a whole number"):
            loaded.slot("c0", until)
