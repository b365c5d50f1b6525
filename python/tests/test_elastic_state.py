"""States, samplers and the loop of elastic training, in a world of one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from elastic_member import Member, be_no_rank
from torch import nn
from torch.optim.lr_scheduler import StepLR

import corro.torch as corro
from corro import _context, _membership
from corro.elastic import State
from corro.elastic._run import keep_running

pytestmark = pytest.mark.torch22


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    be_no_rank(monkeypatch)
    corro.init()
    yield
    corro.shutdown()


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Member:
    made = Member()
    monkeypatch.setattr(_context, "_membership", made)
    return made


def trained(state: Any, steps: int = 1) -> None:
    """As many steps of the state's optimizer."""
    for _ in range(steps):
        state.optimizer.zero_grad()
        state.model(torch.ones(1, 2)).sum().backward()
        state.optimizer.step()


def torch_state(**attributes: Any) -> Any:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = corro.DistributedOptimizer(optimizer, model.named_parameters())
    return corro.elastic.TorchState(model, optimizer, **attributes)


# -- State ----------------------------------------------------------------------------------------


def test_restore_takes_attributes_back_to_the_last_commit() -> None:
    state: Any = State(step=0, seen=[])
    state.step, state.seen = 1, ["a"]
    state.commit()
    state.step = 2
    state.seen.append("b")
    state.restore()
    assert (state.step, state.seen) == (1, ["a"])
    state.seen.append("c")
    state.restore()
    assert state.seen == ["a"]


def test_restore_before_any_commit_takes_them_back_to_the_beginning() -> None:
    state: Any = State(step=3)
    state.step = 4
    state.restore()
    assert state.step == 3


def test_sync_saves() -> None:
    state: Any = State(step=0)
    state.step = 4
    state.sync()
    state.step = 5
    state.restore()
    assert state.step == 4


def test_a_value_with_a_state_stays_the_same_object() -> None:
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    scheduler = StepLR(optimizer, 1)
    state: Any = State(scheduler=scheduler)
    optimizer.step()
    scheduler.step()
    state.commit()
    scheduler.step()
    state.restore()
    assert state.scheduler is scheduler
    assert scheduler.last_epoch == 1


@pytest.mark.parametrize("name", ["commit", "sync", "_steps"])
def test_names_that_an_attribute_cannot_have(name: str) -> None:
    with pytest.raises(corro.InvalidArgumentError, match=f"'{name}'"):
        State(**{name: 0})


def test_what_cannot_be_pickled_is_named() -> None:
    state = State(step=0)
    state.step = lambda: 0  # type: ignore[attr-defined]
    with pytest.raises(corro.InvalidArgumentError, match="sync: rank 0 cannot send it"):
        state.sync()


def test_commit_is_a_place_to_leave(member: Member) -> None:
    state: Any = State(step=0)
    state.commit()
    member.over, state.step = True, 1
    with pytest.raises(corro.AbortedError, match="rank 1 was killed"):
        state.commit()
    state.restore()
    assert state.step == 1


# -- TorchState -----------------------------------------------------------------------------------


def test_attributes_go_back_if_no_step_was_over_since() -> None:
    state = torch_state(step=0)
    trained(state)
    state.step = 1
    state.commit()
    state.step = 100
    state.restore()
    assert state.step == 1


def test_attributes_stay_if_a_step_was_over_since() -> None:
    state = torch_state(step=0)
    trained(state)
    state.step = 1
    state.commit()
    trained(state, 2)
    state.step = 3
    before = state.model.weight.clone()
    state.restore()
    assert state.step == 3
    assert torch.equal(state.model.weight, before)


def test_a_step_that_fails_does_not_count() -> None:
    state = torch_state(step=0)
    trained(state)
    state.commit()
    with pytest.raises(ZeroDivisionError):
        state.optimizer.step(lambda: 1 / 0)
    state.step = 5
    state.restore()
    assert state.step == 0


def test_steps_of_an_optimizer_of_torchs_count_too() -> None:
    model = nn.Linear(2, 1)
    state: Any = corro.elastic.TorchState(model, torch.optim.Adam(model.parameters()), step=0)
    trained(state)
    state.step = 1
    state.restore()
    assert state.step == 1


def test_without_an_optimizer_a_step_is_a_commit() -> None:
    state: Any = corro.elastic.TorchState(nn.Linear(1, 1), epoch=0)
    state.epoch = 1
    state.commit()
    state.epoch = 2
    state.restore()
    assert state.epoch == 1


def test_sync_in_a_world_of_one_changes_nothing() -> None:
    state = torch_state(step=0)
    trained(state, 2)
    before = state.model.weight.clone()
    state.sync()
    assert torch.equal(state.model.weight, before)
    assert state.optimizer._steps == 2


def test_an_optimizer_does_not_keep_a_state() -> None:
    state = torch_state()
    optimizer = state.optimizer
    (reference,) = [hook.__closure__[0] for hook in optimizer._optimizer_step_post_hooks.values()]
    del state
    assert reference.cell_contents() is None
    trained(torch_state())


def refused(optimizer: Callable[[Any], Any], **attributes: Any) -> str:
    model = nn.Linear(2, 1)
    with pytest.raises((corro.UnimplementedError, corro.InvalidArgumentError)) as info:
        corro.elastic.TorchState(model, optimizer(model.parameters()), **attributes)
    return str(info.value)


@pytest.mark.usefixtures("member")
def test_optimizers_whose_step_cannot_be_done_again() -> None:
    assert "LBFGS" in refused(torch.optim.LBFGS)
    plain = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    adasum = corro.DistributedOptimizer(plain, op=corro.Adasum)
    assert "op=Adasum" in refused(lambda _: adasum)


def test_what_is_no_optimizer_and_a_second_one() -> None:
    assert "a list" in refused(list)
    other = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    assert "other is an optimizer" in refused(torch.optim.Adam, other=other)


@pytest.mark.usefixtures("member")
def test_an_optimizer_of_some_ranks_is_refused_in_an_elastic_job() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    some = _context.Group([1], None)
    with pytest.raises(corro.UnimplementedError, match=r"\[1\]"):
        corro.DistributedOptimizer(optimizer, group=some)


def test_a_compressor_forgets_what_it_has_kept() -> None:
    class Compressor:
        kept = 1

        def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
            return tensor, None

        def decompress(self, tensor: torch.Tensor, _: None) -> torch.Tensor:
            return tensor

        def reset(self) -> None:
            self.kept = 0

    compressor = Compressor()
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    optimizer = corro.DistributedOptimizer(optimizer, compression=compressor)
    optimizer._enter_epoch()  # type: ignore[union-attr]
    assert compressor.kept == 0


# -- run ------------------------------------------------------------------------------------------


class Moves:
    """Changes of the epoch, instead of the real ones."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.whys: list[str] = []

    def __call__(self, _: object, end: _membership.End, **__: object) -> None:
        self.steps.append(end.steps)
        self.whys.append(end.why)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch, member: Member) -> Moves:  # noqa: ARG001  # Elastic.
    made = Moves()
    monkeypatch.setattr(_context, "move_on", made)
    return made


LOST = [
    corro.RankLostError("rank 1 was lost", rank=1),
    corro.AbortedError("the epoch has ended"),
    corro.CancelledError("another operation failed"),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_the_function_is_called_again_in_the_next_epoch(
    moves: Moves, error: corro.CorroError
) -> None:
    state: Any = State(step=0, touched=0)
    resets: list[int] = []
    state.register_reset_callbacks([lambda: resets.append(state.step)])

    @corro.elastic.run
    def train(state: Any, last: int, *, result: str) -> str:
        while state.step < last:
            state.touched += 1
            if state.step == 2 and not moves.steps:
                raise error
            state.step += 1
            state.commit()
        return result

    assert train(state, 4, result="done") == "done"
    assert (moves.steps, moves.whys, resets) == ([2], [str(error)], [2])
    assert (state.step, state.touched) == (4, 4)


def test_a_rank_that_is_lost_in_a_reset_callback_or_in_sync_is_the_next_change(
    moves: Moves,
) -> None:
    error = LOST[0]

    class Course:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def fail_in(self, call: str) -> None:
            self.calls.append(call)
            if len(self.calls) in (1, 4, 7):
                raise error

        def sync(self) -> None:
            self.fail_in("sync")

        def enter(self, _: bool) -> None:
            self.fail_in("enter")

        def recover(self, _: Exception) -> None:
            self.calls.append("recover")

        def cause(self, caught: Exception) -> Exception | None:
            return caught if caught is error else None

        def steps(self) -> int:
            return len(self.calls)

        def held(self) -> list[object]:
            return []

    course = Course()
    assert keep_running(lambda: "done", course) == "done"
    assert course.calls == [
        "sync", "recover", "enter", "sync", "recover", "enter", "sync", "recover", "enter", "sync"
    ]  # fmt: skip
    assert moves.steps == [2, 5, 8]


@pytest.mark.parametrize(
    "error",
    [
        corro.MismatchError("ranks differ"),
        corro.InvalidArgumentError("never right"),
        corro.TimeoutError("rank 1 was late"),
        KeyError("the user's own"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_are_raised(moves: Moves, error: Exception) -> None:
    @corro.elastic.run
    def train(_: State) -> None:
        raise error

    with pytest.raises(type(error)) as info:
        train(State())
    assert info.value is error
    assert not moves.steps


def test_in_the_last_epoch_the_state_is_saved_and_the_function_not_called(
    moves: Moves, member: Member
) -> None:
    member.is_last = True
    state: Any = State(step=0)
    saved: list[Any] = []

    class Keeper:
        def _save_last(self, state: Any) -> None:
            saved.append(state)

    state._keepers.append(Keeper())
    with pytest.raises(SystemExit) as info:
        corro.elastic.run(lambda _: pytest.fail("it is over"))(state)
    assert (info.value.code, saved, moves.steps) == (75, [state], [])


def test_sigterm_asks_to_leave_and_what_fails_then_is_no_error(
    moves: Moves, member: Member
) -> None:
    @corro.elastic.run
    def train(_: Any) -> str:
        if not moves.steps:
            signal.raise_signal(signal.SIGTERM)
            raise RuntimeError("a process of the loader was terminated")
        return "done"

    assert train(State(step=0)) == "done"
    assert (member.asked, moves.whys) == (1, ["a process of the loader was terminated"])
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_programs_own_stays(moves: Moves, member: Member) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        corro.elastic.run(lambda _: signal.raise_signal(signal.SIGTERM))(State(step=0))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (heard, member.asked, moves.steps) == ([signal.SIGTERM], 0, [])


def test_a_rank_is_late_because_an_epoch_comes(moves: Moves, member: Member) -> None:
    @corro.elastic.run
    def train(_: State) -> int:
        member.over = not moves.steps
        if member.over:
            raise corro.TimeoutError("rank 1 was late")
        return 7

    assert train(State()) == 7
    assert moves.whys == ["rank 1 was late"]


def test_outside_of_an_elastic_job_an_error_says_how_to_start_one() -> None:
    error = corro.RankLostError("rank 1 was lost", rank=1)

    @corro.elastic.run
    def train(_: State) -> None:
        raise error

    with pytest.raises(corro.RankLostError):
        train(State())
    if hasattr(error, "add_note"):
        assert "corro run --min-np N" in error.__notes__[0]


def test_the_first_argument_is_a_state() -> None:
    train: Any = corro.elastic.run(lambda _: None)
    with pytest.raises(corro.InvalidArgumentError, match="not a dict"):
        train({})


# -- the wait for the next epoch ------------------------------------------------------------------


class Epochs:
    """The engine's view of epochs, in which none comes."""

    prepared = 0
    why = ""

    def next(self, *_: object) -> tuple[int, int, int]:
        raise corro.TimeoutError("no epoch has begun in time")


def test_who_waits_in_vain_is_told_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRO_ELASTIC_TIMEOUT", "0.5")
    epochs: Any = Epochs()
    with pytest.raises(corro.TimeoutError, match=r"rank 1 was lost.*0\.5 s"):
        _membership.Membership(epochs).wait_for_next(_membership.End(3, "rank 1 was lost"), 0.0)


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_deadline_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CORRO_ELASTIC_TIMEOUT", text)
    with pytest.raises(corro.InvalidArgumentError, match=f"CORRO_ELASTIC_TIMEOUT={text}"):
        _membership.patience()


@pytest.mark.parametrize(("said", "elastic"), [("1", True), ("", False), ("0", False)])
def test_a_job_is_elastic_if_its_launcher_says_so(
    monkeypatch: pytest.MonkeyPatch, said: str, elastic: bool
) -> None:
    monkeypatch.setenv("CORRO_MEMBER_UUID", "0f" * 16)
    monkeypatch.setenv("CORRO_ELASTIC", said)
    assert _membership.is_elastic() == elastic
