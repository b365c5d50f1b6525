"""`corro.torch.parallel.randomness`: what a model draws does not depend on how a batch is cut."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from corro.errors import FailedPreconditionError
from corro.torch.parallel import draws, masks
from corro.torch.parallel.random_functions import CALLS, RandomFunctions
from corro.torch.parallel.randomness import Places, Randomness

pytestmark = pytest.mark.torch22

WHOLE = [6]
CUTS = [[1] * 6, [2, 2, 2], [4, 2], [1, 5]]


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """A warning is an error, where a test does not expect it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@contextmanager
def placed(
    samples: range = range(6), step: int = 0, layer: int = 0, seed: int = 7
) -> Iterator[Places]:
    with Randomness(seed).of(step, samples) as places:
        places.enter(layer)
        yield places
        places.leave(layer)


def ranges(lengths: Sequence[int]) -> Iterator[range]:
    start = 0
    for length in lengths:
        yield range(start, start + length)
        start += length


def in_cuts(draw: Callable[[Tensor], Tensor], batch: Tensor, lengths: Sequence[int]) -> Tensor:
    """Returns the results of the micro-batches, joined. Samples are dim 0 in and out."""
    results = []
    for samples in ranges(lengths):
        with placed(samples):
            results.append(draw(batch[samples.start : samples.stop]))
    return torch.cat(results)


def check_cuts(draw: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    """Sees that all cuts draw alike, and that they draw: two steps differ."""
    whole = in_cuts(draw, batch, WHOLE)
    for lengths in CUTS:
        torch.testing.assert_close(in_cuts(draw, batch, lengths), whole, rtol=1e-5, atol=1e-6)
    with placed(step=1):
        assert not torch.equal(draw(batch), whole)
    return whole


def rows(batch: Tensor) -> Tensor:
    return batch.flatten(0, 1)


def attention(batch: Tensor, **options: object) -> Tensor:
    heads = batch.unflatten(-1, (4, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
    return F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.5, **options)  # type: ignore[arg-type]


def merged_heads(batch: Tensor) -> Tensor:
    heads = batch.unflatten(-1, (2, -1)).transpose(1, 2).flatten(0, 1)  # type: ignore[no-untyped-call]
    result = F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.5)
    return result.unflatten(0, (len(batch), -1))  # type: ignore[no-any-return, no-untyped-call]


def noise_then_dropout(batch: Tensor) -> Tensor:
    return F.dropout(batch + torch.randn_like(batch), 0.3)


def sequence_first(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda batch: function(batch.transpose(0, 1)).transpose(0, 1)


torch.manual_seed(3)
MULTI_HEAD = nn.MultiheadAttention(16, 4, dropout=0.5)
ENCODER = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.3)
LSTM = nn.LSTM(16, 16, 3, dropout=0.5)
GRU = nn.GRU(16, 16, 2, dropout=0.5, batch_first=True)
RNN = nn.RNN(16, 16, 2, dropout=0.5, batch_first=True)

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout in place": lambda x: F.dropout(x.clone(), 0.3, inplace=True),
    "torch.dropout": lambda x: torch.dropout(x, 0.3, True),
    "torch.dropout_": lambda x: torch.dropout_(x.clone(), 0.3, True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.3, True)[0],
    "nn.Dropout": nn.Dropout(0.3),
    "rows": lambda x: F.dropout(rows(x), 0.3).unflatten(0, (len(x), -1)),  # type: ignore[no-untyped-call]
    "dropout1d": lambda x: F.dropout1d(x, 0.3),
    "dropout2d": lambda x: F.dropout2d(x.unflatten(2, (4, 4)), 0.3),  # type: ignore[no-untyped-call]
    "dropout3d": lambda x: F.dropout3d(x.unflatten(2, (4, 2, 2)), 0.3),  # type: ignore[no-untyped-call]
    "feature_dropout": lambda x: torch.feature_dropout(x, 0.3, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.3, True),
    "attention": attention,
    "attention causal": lambda x: attention(x, is_causal=True),
    "attention of merged heads": merged_heads,
    "noise, then dropout": noise_then_dropout,
    "multi head": sequence_first(lambda x: MULTI_HEAD(x, x, x, need_weights=False)[0]),
    "multi head weights": sequence_first(lambda x: MULTI_HEAD(x, x, x)[0]),
    "encoder": sequence_first(ENCODER),
    "sequence first": sequence_first(lambda x: F.dropout(x, 0.3)),
    "lstm": sequence_first(lambda x: LSTM(x)[0]),
    "gru": lambda x: GRU(x)[0],
    "rnn": lambda x: RNN(x)[0],
    "gumbel_softmax": F.gumbel_softmax,
    "rrelu": lambda x: F.rrelu(-x.abs(), training=True),
    "rrelu_": lambda x: F.rrelu_(-x.abs(), training=True),
    "rand": lambda x: torch.rand(len(x), 5),
    "rand of a size": lambda x: torch.rand((len(x), 5), dtype=torch.float64),
    "randn": lambda x: torch.randn(len(x), 40),
    "randint": lambda x: torch.randint(3, 900, (len(x),)),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 100),
    "noise of sequence first": sequence_first(torch.randn_like),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "bernoulli_ of a tensor": lambda x: torch.empty_like(x).bernoulli_(x.sigmoid()),
    "stochastic depth": lambda x: x.new_empty(len(x), 1, 1).bernoulli_(0.5) * x,
    "multinomial": lambda x: torch.multinomial(x[:, 0].exp(), 2),
    "normal": lambda x: torch.normal(x, 0.5),
    "normal of two": lambda x: torch.normal(x, x.abs()),
    "poisson": lambda x: torch.poisson(x.exp()),
    "fill": lambda x: torch.empty(len(x), 40).normal_(1, 2),
    "fill across": lambda x: torch.empty(41, len(x)).normal_().T,
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "random_": lambda x: torch.empty_like(x).random_(0, 99),
    "distribution": lambda x: torch.distributions.Normal(x, 1.0).rsample(),
    "gamma": lambda x: torch.distributions.Gamma(x.exp(), 1.0).sample(),
    "dirichlet": lambda x: torch.distributions.Dirichlet(x[:, 0].exp()).sample(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_cuts_draw_alike(name: str) -> None:
    check_cuts(FUNCTIONS[name], torch.randn(6, 7, 16))


@pytest.mark.parametrize("length", [1, 2, 4, 7, 12])
@pytest.mark.parametrize(
    "name",
    ["dropout", "rows", "multi head", "multi head weights", "attention of merged heads", "lstm"],
)
def test_lengths(name: str, length: int) -> None:
    check_cuts(FUNCTIONS[name], torch.randn(6, length, 16))


@pytest.mark.parametrize("seed", range(8))
def test_any_cut_of_any_shape(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    lengths = [number(1, 4) for _ in range(number(1, 6))]
    batch = torch.ones(sum(lengths), *(number(1, 40) for _ in range(number(0, 3))))
    draw: Callable[[Tensor], Tensor] = FUNCTIONS["randn_like" if seed % 2 else "dropout"]
    assert torch.equal(in_cuts(draw, batch, lengths), in_cuts(draw, batch, [len(batch)]))


def test_every_function_that_torch_calls_random_is_known() -> None:
    """Save those that only draw inside of others; `torch.random` is a module."""
    inside = {
        "random",
        "rrelu_with_noise",
        "rrelu_with_noise_",
        "miopen_rnn",
        "cudnn_dropout_state",
    }
    spaces = (torch, torch.Tensor, F)
    public = {name for space in spaces for name in dir(space) if name[0] != "_"}
    packets = {name: getattr(torch.ops.aten, name, None) for name in public}
    random = {
        name
        for name, packet in packets.items()
        if isinstance(packet, torch._ops.OpOverloadPacket)
        for overload in packet.overloads()  # type: ignore[no-untyped-call]
        if torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags
    }
    assert len(random) > 20
    assert random - CALLS - inside == set()


def test_inference_mode() -> None:
    batch = torch.ones(6, 40)
    with torch.inference_mode():
        inside = check_cuts(FUNCTIONS["dropout"], batch)
    assert torch.equal(inside, in_cuts(FUNCTIONS["dropout"], batch, WHOLE))


def drop(samples: range = range(6), step: int = 0, layer: int = 0, seed: int = 7) -> Tensor:
    with placed(samples, step, layer, seed):
        return F.dropout(torch.ones(6, 100), 0.5)


def test_masks_differ_where_they_must() -> None:
    mask = drop()
    assert torch.equal(mask, drop())
    for other in (drop(step=1), drop(layer=1), drop(seed=8), drop(samples=range(6, 12))):
        assert not torch.equal(mask, other)
    assert len({tuple(row.tolist()) for row in mask}) == 6
    with placed() as places:
        first, second = (F.dropout(torch.ones(6, 100), 0.5) for _ in range(2))
        places.leave(0)
        after = F.dropout(torch.ones(6, 100), 0.5)
    assert torch.equal(first, mask)
    assert not torch.equal(second, mask)
    assert not torch.equal(after, mask)


@pytest.mark.parametrize("p", [0.0, 0.01, 0.1, 0.5, 0.9, 1.0])
def test_rate(p: float) -> None:
    with placed():
        result = F.dropout(torch.ones(6, 100_001), p)
    deviation = 5 * (p * (1 - p) / result.numel()) ** 0.5
    assert float((result == 0).double().mean()) == pytest.approx(p, abs=deviation)
    if p < 1:
        assert float(result.max()) == pytest.approx(1 / (1 - p))


def test_bits_are_independent() -> None:
    """Neighbours in a stream, and the same place in two streams, agree in half of the cases."""
    streams = torch.tensor(masks.numbers_of(1, range(4)))
    bits = masks.bernoulli(streams, 200_000, 0.5)
    for shift in (1, 2, 3, 64):
        agree = float((bits[:, shift:] == bits[:, :-shift]).double().mean())
        assert agree == pytest.approx(0.5, abs=0.004)
    assert float((bits[0] == bits[1]).double().mean()) == pytest.approx(0.5, abs=0.006)


def test_words_at_once_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = torch.tensor(masks.numbers_of(1, range(5)))
    whole = masks.bernoulli(streams, 1001, 0.3)
    for words in (1, 64, 500, 501, 1200):
        monkeypatch.setitem(masks._WORDS_AT_ONCE, "cpu", words)
        assert torch.equal(masks.bernoulli(streams, 1001, 0.3), whole)
    assert torch.equal(masks.bernoulli(streams, 77, 0.3), whole[:, :77])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_all_dtypes_have_one_mask(dtype: torch.dtype) -> None:
    batch = torch.ones(6, 50)
    of_f32 = in_cuts(FUNCTIONS["dropout"], batch, WHOLE)
    of_other = in_cuts(FUNCTIONS["dropout"], batch.to(dtype), WHOLE)
    assert of_other.dtype == dtype
    assert torch.equal(of_other == 0, of_f32 == 0)


@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "gqa", "bf16"])
def test_attention_is_torchs_but_for_what_it_drops(kind: str) -> None:
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    query = torch.randn(6, 4, 5, 8, dtype=dtype)
    key = torch.randn(6, 2 if kind == "gqa" else 4, 5, 8, dtype=dtype)
    options_of: dict[str, dict[str, object]] = {
        "causal": {"is_causal": True},
        "mask": {"attn_mask": torch.rand(6, 1, 5, 5) > 0.3},
        "gqa": {"enable_gqa": True},
    }
    options = options_of.get(kind, {})
    if kind == "gqa" and "enable_gqa" not in str(F.scaled_dot_product_attention.__doc__):
        pytest.skip("this torch has no enable_gqa")

    def attend(p: float) -> Tensor:
        own = {
            name: value[samples.start : samples.stop] if isinstance(value, Tensor) else value
            for name, value in options.items()
        }
        cut = slice(samples.start, samples.stop)
        return F.scaled_dot_product_attention(query[cut], key[cut], key[cut], dropout_p=p, **own)  # type: ignore[arg-type]

    samples = range(6)
    without = attend(0.0)
    with placed():
        assert torch.equal(attend(0.0), without)
        dropped = attend(0.5)
    assert not torch.equal(dropped, without)
    parts = []
    for samples in ranges([4, 2]):
        with placed(samples):
            parts.append(attend(0.5))
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(torch.cat(parts), dropped, rtol=tolerance, atol=tolerance)


def test_attention_of_a_device_is_called_by_sample() -> None:
    """The way of devices whose kernels draw inside, walked on the CPU."""
    query = torch.randn(6, 4, 5, 8)

    def attend(samples: range, step: int = 0) -> Tensor:
        with Randomness(3).of(step, samples):
            mode = RandomFunctions(samples, lambda *_: pytest.fail("warned"))
            with torch._C.DisableTorchFunction():
                own = query[samples.start : samples.stop]
                mask = torch.ones(len(own), 1, 5, 5).tril().bool()
                return mode._attention(  # type: ignore[no-any-return]
                    F.scaled_dot_product_attention,
                    (own, own, own),
                    {"attn_mask": mask, "dropout_p": 0.5},
                )

    whole = attend(range(6))
    assert not torch.equal(whole, attend(range(6), step=1))
    for lengths in CUTS:
        parts = torch.cat([attend(samples) for samples in ranges(lengths)])
        torch.testing.assert_close(parts, whole)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        heads = attention(self.linear(x))
        x = x + F.dropout(heads.transpose(1, 2).flatten(2), 0.2)
        return F.dropout(torch.relu(x), 0.2) + 0.1 * torch.randn_like(x)


@pytest.mark.parametrize("cut", [WHOLE, *CUTS])
@pytest.mark.parametrize("recompute", ["no", "layer", "grad", "reentrant"])
def test_recomputed_layers_draw_the_same(cut: Sequence[int], recompute: str) -> None:
    """Gradients of [samples] micro-batches, forwards first, with a backward in another order."""
    torch.manual_seed(0)
    layers = [Block().double() for _ in range(3)]
    batch = torch.randn(6, 5, 16, dtype=torch.float64)

    def forward(places: Places, x: Tensor) -> Tensor:
        for number, layer in enumerate(layers):
            places.enter(number)
            if recompute == "no":
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=recompute == "reentrant")
            places.leave(number)
            x = F.dropout(x, 0.1)
        return x.square().sum()

    def gradients(lengths: Sequence[int]) -> list[Tensor]:
        randomness = Randomness(5)
        inputs = batch.clone().requires_grad_()
        leaves = [inputs, *(each.linear.weight for each in layers)]
        losses = []
        for samples in ranges(lengths):
            with randomness.of(2, samples) as places:
                losses.append((samples, forward(places, inputs[samples.start : samples.stop])))
        for samples, loss in reversed(losses):
            with randomness.of(2, samples):
                if recompute == "grad":
                    for each, value in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
                        each.grad = value if each.grad is None else each.grad + value
                else:
                    loss.backward()  # type: ignore[no-untyped-call]
        result = [each.grad for each in leaves]
        for each in leaves:
            each.grad = None
        return result  # type: ignore[return-value]

    found = gradients(cut)
    recompute = "no"
    for one, other in zip(found, gradients(WHOLE), strict=True):
        torch.testing.assert_close(one, other)


def test_a_skipped_layer_leaves_the_others_draws_as_they_are() -> None:
    def run(skipped: int | None) -> list[Tensor]:
        masks_of = []
        with Randomness(1).of(0, range(2)) as places:
            masks_of.append(F.dropout(torch.ones(2, 50)))
            for layer in range(3):
                places.enter(layer)
                if layer != skipped:
                    masks_of.append(F.dropout(torch.ones(2, 50)))
                    F.dropout(torch.ones(2, 50))
                places.leave(layer)
                masks_of.append(F.dropout(torch.ones(2, 50)))
        return masks_of

    whole = run(None)
    without = run(1)
    del whole[3]
    assert all(map(torch.equal, whole, without))


def test_nested_layers() -> None:
    def run(cut: range) -> Tensor:
        with Randomness(1).of(0, cut) as places:
            places.enter(0)
            first = F.dropout(torch.ones(len(cut), 50))
            places.enter(1)
            inner = F.dropout(torch.ones(len(cut), 50))
            places.leave(1)
            between = F.dropout(torch.ones(len(cut), 50))
            places.leave(0)
        return torch.stack([first, inner, between], 1)

    whole = run(range(4))
    assert len({tuple(each.flatten().tolist()) for each in whole.unbind(1)}) == 3
    assert torch.equal(whole, torch.cat([run(range(3)), run(range(3, 4))]))


def test_the_users_generator_is_as_it_was() -> None:
    torch.manual_seed(11)
    state = torch.get_rng_state()
    with placed():
        for draw in FUNCTIONS.values():
            draw(torch.randn(6, 7, 16))
        torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_generator_of_the_models_own_is_the_models() -> None:
    expected = torch.rand(6, 3, generator=torch.Generator().manual_seed(4))
    with placed():
        found = torch.rand(6, 3, generator=torch.Generator().manual_seed(4))
    assert torch.equal(found, expected)


def test_evaluation_draws_nothing() -> None:
    batch = torch.randn(6, 7, 16)
    modules = [nn.Dropout(0.5), nn.AlphaDropout(0.5), ENCODER, LSTM, nn.RReLU()]
    with placed():
        state = torch.get_rng_state()
        for module in modules:
            module.eval()
            try:
                module(batch)
            finally:
                module.train()
        F.scaled_dot_product_attention(batch, batch, batch)
        torch.native_dropout(batch, 0.5, False)
        assert torch.equal(torch.get_rng_state(), state)


def test_an_exception_leaves_torch_as_it_was() -> None:
    state = torch.get_rng_state()
    with pytest.raises(TypeError), placed():
        F.dropout(torch.ones(6, 3), "0.1")  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch._C._len_torch_function_stack() == 0
    with pytest.raises((RuntimeError, ValueError)), placed():
        F.dropout(torch.ones(6, 3), 2.0)
    with pytest.raises(AssertionError), placed():
        MULTI_HEAD(torch.ones(3, 6, 15), torch.ones(3, 6, 15), torch.ones(3, 6, 15))
    drop()


def test_one_at_a_time() -> None:
    """Also of another thread, for torch's generator is one for all."""
    said: list[str] = []

    def other() -> None:
        try:
            drop()
        except FailedPreconditionError as error:
            said.append(str(error))

    with placed():
        other()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(said) == 2
    assert "one forward or backward at a time" in said[0]
    drop()


def test_without_a_dim_of_samples_all_draw_the_same_and_one_warning_says_so() -> None:
    randomness = Randomness(2)

    def draw(samples: range) -> list[Tensor]:
        with randomness.of(0, samples) as places:
            places.enter(3)
            return [
                F.dropout(torch.ones(5, 7), 0.5),
                torch.rand(()),
                torch.randperm(5),
                torch.multinomial(torch.tensor([1.0, 0.0, 1.0, 0.0]), 2),
                F.dropout(nn.Parameter(torch.ones(4, 4)), 0.5),
            ]

    with pytest.warns(
        UserWarning, match=r"layer 3: dropout of a tensor of shape \(5, 7\).* 4 sam"
    ) as said:
        drawn = [*draw(range(4)), *draw(range(4, 8))]
    assert len(said) == 1
    for one, other in zip(drawn[:5], drawn[5:], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("shape", "samples", "known", "dim"),
    [
        ((), 1, None, None),
        ((6, 3), 6, None, 0),
        ((12, 3), 6, None, 0),
        ((12, 6, 5), 6, None, 1),
        ((12, 6, 5), 6, draws.FIRST, 0),
        ((12, 6, 5, 5), 6, None, 0),
        ((7, 6, 5), 6, None, 1),
        ((7, 5, 6), 6, None, 2),
        ((7, 1, 5), 1, None, 0),
        ((6, 6, 5), 6, None, 0),
        ((6, 4, 5), 4, draws.SECOND, 1),
        ((8, 5), 4, draws.SECOND, None),
        ((7, 4), 4, draws.FIRST, None),
        ((4, 4), 4, draws.NONE, None),
        ((0, 4), 4, None, 1),
        ((1, 8, 5), 4, draws.FIRST, 1),
        ((1, 1, 5), 1, draws.FIRST, 2),
        ((4, 4), 0, None, None),
    ],
)
def test_dim_of_samples(
    shape: tuple[int, ...], samples: int, known: str | None, dim: int | None
) -> None:
    assert draws.dim_of_samples(shape, samples, known) == dim


class Reenter(torch.autograd.Function):
    """Runs a backward inside of its backward, `depth` deep; the deepest calls `at_last`."""

    @staticmethod
    def forward(ctx, x, depth, at_last):  # type: ignore[no-untyped-def]
        ctx.rest = (depth, at_last)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        depth, at_last = ctx.rest
        if depth == 0:
            at_last()
        else:
            with torch.enable_grad():
                inner = torch.ones(1, requires_grad=True)
                Reenter.apply(inner, depth - 1, at_last).sum().backward()
        return gradient, None, None


def test_threads_of_autograd_draw_by_sample_too() -> None:
    """torch hands the mode on to its threads: it takes one of its own for deep backwards."""
    seen: list[tuple[int, Tensor]] = []

    def at_last() -> None:
        seen.append((threading.get_ident(), F.dropout(torch.ones(6, 100), 0.5)))

    with placed():
        Reenter.apply(torch.ones(1, requires_grad=True), 70, at_last).sum().backward()
    ((thread, mask),) = seen
    assert thread != threading.get_ident()
    assert torch.equal(mask, drop())
