"""corro.EmbeddingTable and corro.TableOptimizer in one process: as torch's layers and its SGD."""

from __future__ import annotations

import copy
import pickle
from itertools import count
from typing import Any

import pytest
import torch
from conftest import HERE, Launch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import corro.torch as corro
from corro import table as tables

pytestmark = pytest.mark.torch22

ROWS, DIM, RATE = 20, 5, 0.3
names = (f"table-{number}" for number in count())


def layer(**how: Any) -> corro.EmbeddingTable:
    how = {"num_embeddings": ROWS, "optimizer": tables.SGD(lr=RATE), "name": next(names), **how}
    return corro.EmbeddingTable(dim=DIM, **how)


def rows_of(ours: corro.EmbeddingTable) -> Tensor:
    return torch.from_numpy(ours.table.pull(torch.arange(ROWS).numpy()))


def torchs(ours: corro.EmbeddingTable) -> nn.Embedding | nn.EmbeddingBag:
    """Returns torch's layer with the same rows; that of padding is zeros, as torch makes it."""
    weight, padding = rows_of(ours), ours.padding_idx
    if padding is not None:
        weight[padding] = 0
    if ours.mode is None:
        return nn.Embedding(ROWS, DIM, padding_idx=padding, _weight=weight)
    last = ours.include_last_offset
    bags = nn.EmbeddingBag(ROWS, DIM, mode=ours.mode, include_last_offset=last, _weight=weight)
    bags.padding_idx = padding
    return bags


def some(*shape: int) -> Tensor:
    """Returns ids, many of them several times."""
    return torch.randint(3, ROWS - 3, shape)


def factors(shape: torch.Size) -> Tensor:
    """Returns what a loss multiplies rows by, so that every element has another gradient."""
    return torch.linspace(-1, 2, shape.numel()).view(shape)


def assert_trains_alike(ours: corro.EmbeddingTable, *batches: tuple[Any, ...]) -> None:
    """Asserts that both layers, and three steps of them, give the same rows."""
    other = torchs(ours)
    rows, plain = corro.TableOptimizer([ours]), torch.optim.SGD(other.parameters(), RATE)
    for _ in range(3):
        rows.zero_grad()
        plain.zero_grad()
        for batch in batches:
            made, expected = ours(*batch), other(*batch)
            assert_close(made, expected)
            for one in (made, expected):
                (one * factors(one.shape)).square().sum().backward()
        rows.step()
        plain.step()
    seen = [at for at in range(ROWS) if at != ours.padding_idx]
    assert_close(rows_of(ours)[seen], other.weight.detach()[seen])


@pytest.fixture(autouse=True)
def same_draws() -> None:
    torch.manual_seed(1)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_equal_length(mode: str) -> None:
    assert_trains_alike(layer(mode=mode), (some(4, 6),))


@pytest.mark.parametrize("include_last_offset", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_by_offsets(mode: str, include_last_offset: bool) -> None:
    ours = layer(mode=mode, include_last_offset=include_last_offset)
    offsets = torch.tensor([0, 3, 3, 11])  # The second one is empty, and so is the last with 11.
    assert_trains_alike(ours, (some(11), offsets))
    assert ours(some(11), offsets)[1].tolist() == [0.0] * DIM


@pytest.mark.parametrize("mode", ["sum", "mean", "max", None])
def test_no_ids_at_all(mode: str | None) -> None:
    ours = layer(mode=mode)
    nothing = torch.empty(0, dtype=torch.int64)
    made = ours(nothing) if mode is None else ours(nothing, torch.tensor([0, 0]))
    assert made.tolist() == ([] if mode is None else [[0.0] * DIM] * 2)


@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 4)])
def test_rows_without_bags(shape: tuple[int, ...]) -> None:
    assert_trains_alike(layer(mode=None), (some(*shape),))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_ids_of_any_integer_type(dtype: torch.dtype) -> None:
    ours = layer(mode=None)
    assert_close(ours(torch.tensor([3, 4]).to(dtype)), rows_of(ours)[3:5])


def test_weights_of_samples_have_gradients_too() -> None:
    ours = layer(mode="sum")
    other, ids = torchs(ours), some(4, 6)
    weights = [torch.rand(4, 6).requires_grad_()]
    weights += [weights[0].detach().clone().requires_grad_()]
    for one, own in zip((ours, other), weights, strict=True):
        made = one(ids, per_sample_weights=own)
        (made * factors(made.shape)).sum().backward()
    assert_close(weights[0].grad, weights[1].grad)
    corro.TableOptimizer([ours]).step()
    torch.optim.SGD(other.parameters(), RATE).step()
    assert_close(rows_of(ours), other.weight.detach())


@pytest.mark.parametrize("mode", ["sum", "mean", "max", None])
def test_gradients_of_several_passes_add_up(mode: str | None) -> None:
    assert_trains_alike(layer(mode=mode), (some(4, 6),), (some(2, 3),), (some(4, 6),))


@pytest.mark.parametrize("mode", ["sum", "mean", "max", None])
@pytest.mark.parametrize("padding", [5, -13])  # -13 is the seventh of 20.
def test_padding_is_zeros_and_never_trained(mode: str | None, padding: int) -> None:
    ours = layer(mode=mode, padding_idx=padding)
    place = padding % ROWS
    before = rows_of(ours)[place]
    ids = some(5, 6)
    ids[0, 2] = ids[1, 0] = ids[1, 5] = place
    ids[2] = place
    assert_trains_alike(ours, (ids,), (torch.full((2, 2), place),))
    assert_close(rows_of(ours)[place], before)
    assert ours(torch.tensor([[place]])).flatten().tolist() == [0.0] * DIM


def test_a_layer_over_a_table_with_options_of_its_own() -> None:
    table = tables.Table(next(names), DIM, optimizer=tables.SGD(lr=RATE), admit_after=2)
    ours = corro.EmbeddingTable.over(table, ROWS, mode="sum", padding_idx=-1)
    before, ids = rows_of(ours), torch.tensor([[3, ROWS - 1]])
    for step in range(2):  # The first gradient is dropped: the row is not admitted yet.
        ours(ids).sum().backward()
        corro.TableOptimizer([ours]).step()
        assert_close(rows_of(ours)[3], before[3] - RATE * step)
    with pytest.raises(IndexError):
        ours(torch.tensor([[ROWS]]))


def test_ids_are_any_numbers_of_64_bits() -> None:
    ours = layer(num_embeddings=None, mode=None, padding_idx=-1)
    ids = torch.tensor([[-(2**63), 2**63 - 1], [-1, 7]])
    before = ours(ids).detach()
    assert before[1, 0].tolist() == [0.0] * DIM
    ours(ids).sum().backward()
    corro.TableOptimizer([ours]).step()
    trained = torch.ones(2, 2, 1)
    trained[1, 0] = 0
    assert_close(ours(ids), before - RATE * trained)


@pytest.mark.parametrize(("wrong", "said"), [(ROWS, f"is {ROWS}"), (-1, "is -1")])
def test_an_id_out_of_range_is_refused_with_its_place(wrong: int, said: str) -> None:
    ours = layer(name="out-of-range")
    ids = some(3, 4)
    ids[1, 2] = wrong
    with pytest.raises(IndexError, match=rf"out-of-range: input\[1, 2\] {said}.*0 \.\.\. 19"):
        ours(ids)


def test_wrong_arguments_are_refused() -> None:
    for how, said in (
        ({"mode": "min"}, "mode"),
        ({"num_embeddings": 0}, "num_embeddings"),
        ({"padding_idx": ROWS}, "padding_idx 20"),
    ):
        with pytest.raises(corro.InvalidArgumentError, match=said):
            layer(**how)
    with pytest.raises(corro.InvalidArgumentError, match=r"integers, not torch\.float32"):
        layer()(torch.rand(2, 2))
    with pytest.raises(corro.InvalidArgumentError, match="no offsets"):
        layer(mode=None)(some(4), torch.tensor([0]))


class Spy:
    """Counts what a layer asks its table for."""

    def __init__(self, ours: corro.EmbeddingTable) -> None:
        self.table, self.pulls, self.pushes, self.ahead = ours.table, [], [], []
        ours.table = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def pull(self, ids: Any) -> Any:
        self.pulls.append(ids.tolist())
        return self.table.pull(ids)

    def prefetch(self, ids: Any) -> None:
        self.ahead.append(ids.tolist())
        self.table.prefetch(ids)

    def push(self, ids: Any, gradients: Any) -> None:
        self.pushes.append((ids.tolist(), gradients.tolist()))
        self.table.push(ids, gradients)


def test_a_pass_pulls_each_row_once_and_a_step_pushes_it_once() -> None:
    ours = layer(mode="sum", padding_idx=0)
    spy, rows = Spy(ours), corro.TableOptimizer(nn.Sequential(ours))
    for _ in range(2):
        ours(torch.tensor([[9, 0, 2, 9], [2, 2, 0, 7]])).sum().backward()
    assert spy.pulls == [[2, 7, 9]] * 2
    rows.step()
    assert spy.pushes == [([2, 7, 9], [[6.0] * DIM, [2.0] * DIM, [4.0] * DIM])]


def test_what_is_asked_for_ahead_is_what_a_pass_pulls() -> None:
    """By the same ids in the same order: the table knows the pull by them."""
    ours = layer(mode="sum", padding_idx=0)
    spy, ids = Spy(ours), torch.tensor([[9, 0, 2, 9], [2, 2, 0, 7]])
    ours.prefetch(ids)
    ours(ids)
    assert spy.ahead == spy.pulls == [[2, 7, 9]]
    ours.prefetch(torch.zeros(0, dtype=torch.int64))
    with pytest.raises(corro.OutOfRangeError):
        ours.prefetch(torch.tensor([[-1]]))


def test_a_layer_gives_its_table_a_mode() -> None:
    ours = layer(table_mode="bounded", staleness=3)
    assert (ours.table.mode, ours.table.staleness) == ("bounded", 3)


def test_a_step_without_gradients_pushes_nothing_and_takes_part() -> None:
    ours = layer()
    spy, rows = Spy(ours), corro.TableOptimizer([ours])
    with torch.no_grad():
        ours(some(2, 3))
    assert not ours.eval()(some(2, 3)).requires_grad
    ours.train()(some(2, 3))  # Without backward().
    ours(some(2, 3)).sum().backward()
    rows.zero_grad()
    rows.step()
    rows.step()
    assert spy.pushes == [([], [])] * 2


def test_recomputed_activations_train_alike() -> None:
    class Recomputed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer()

        def forward(self, ids: Tensor) -> Any:
            return checkpoint(lambda anchor: self.inner(ids) * anchor, anchor, use_reentrant=False)

    anchor = torch.ones((), requires_grad=True)
    model, ids = Recomputed(), some(4, 6)
    spy = Spy(model.inner)
    model(ids).sum().backward()
    corro.TableOptimizer(model).step()
    assert [len(ids) for ids, _ in spy.pushes] == [len(ids.unique())]


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_gradient_that_has_a_graph_of_its_own_is_pushed() -> None:
    ours = layer(mode=None)
    ids, before = torch.tensor([3]), rows_of(ours)[3:4]
    ours(ids).square().sum().backward(create_graph=True)
    corro.TableOptimizer([ours]).step()
    assert_close(ours(ids), before - RATE * 2 * before)


def test_a_compiled_model_trains_alike() -> None:
    model = nn.Sequential(layer(padding_idx=0), nn.Tanh())
    compiled, rows = torch.compile(model, backend="eager"), corro.TableOptimizer(model)
    for step in range(3):
        ids = some(4, 6) + step - 1
        expected = model.eval()(ids)
        made = compiled.train()(ids)
        assert_close(made, expected)
        made.sum().backward()
        rows.step()
    assert not torch.equal(model(ids), expected)


def test_the_rate_is_the_tables() -> None:
    ours = layer(mode=None)
    ids, before = torch.tensor([4]), rows_of(ours)[4:5]
    ours.table.lr = 2.0
    ours(ids).sum().backward()
    corro.TableOptimizer([ours]).step()
    assert_close(ours(ids), before - 2)


def test_a_table_is_no_part_of_its_models_state() -> None:
    model = nn.Sequential(layer(), nn.Linear(DIM, 1))
    assert {name for name, _ in model.named_parameters()} == {"1.weight", "1.bias"}
    assert set(model.state_dict()) == {"1.weight", "1.bias"}
    model.load_state_dict(model.state_dict())


def test_a_layer_is_neither_copied_nor_pickled() -> None:
    model = nn.Sequential(layer(name="one-owner"))
    for copying in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="one-owner cannot be copied or pickled"):
            copying(model)


def test_an_optimizer_needs_tables_of_different_names() -> None:
    with pytest.raises(corro.InvalidArgumentError, match="no EmbeddingTable"):
        corro.TableOptimizer(nn.Linear(2, 2))
    ours = layer()
    corro.TableOptimizer([ours, ours]).step()  # The same one, used twice in a model.
    other = layer()
    other.table = ours.table
    with pytest.raises(corro.InvalidArgumentError, match=f"two tables are named {ours.name}"):
        corro.TableOptimizer(nn.ModuleList([ours, other]))


def test_gradients_that_are_not_finite_change_nothing() -> None:
    ours = layer(mode=None)
    before = rows_of(ours)
    (ours(some(3)) * float("inf")).sum().backward()
    rows = corro.TableOptimizer([ours])
    with pytest.raises(ValueError, match="is inf in element 0"):
        rows.step()
    assert_close(rows_of(ours), before)
    rows.step()
    assert_close(rows_of(ours), before)


@pytest.mark.parametrize(("ranks", "servers"), [(2, 2), (3, 1), (1, 0)])
def test_ranks_train_what_one_process_trains(launch: Launch, ranks: int, servers: int) -> None:
    """With a dense part beside the tables, and with passes that differ between ranks."""
    options = ("--servers", str(servers)) if servers else ()
    job = launch(str(HERE / "table_torch_worker.py"), ranks=ranks, options=options).check()
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: tables are as torch's layers" in job.output
