"""corro.torch's verbs, on every rank, against torch's own arithmetic."""

from __future__ import annotations

import pytest
import torch

import corro.numpy as cn
import corro.torch as corro

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
HALVES = [torch.float16, torch.bfloat16]
FLOATS = [*HALVES, torch.float32, torch.float64]
OPS = [corro.Sum, corro.Average, corro.Min, corro.Max, corro.Product]


def values(rank: int, dtype: torch.dtype, count: int = 10_007) -> torch.Tensor:
    """Returns a rank's contribution: any bits for floats, NaN and infinities included."""
    random = torch.Generator().manual_seed(1000 + rank)
    if dtype == torch.bool:
        return torch.rand(count, generator=random) < 0.5
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return torch.randint(info.min, info.max, (count,), generator=random, dtype=dtype)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[
        torch.empty((), dtype=dtype).element_size()
    ]
    info = torch.iinfo(bits)
    return torch.randint(info.min, info.max, (count,), generator=random, dtype=bits).view(dtype)


def expected(op: corro.ReduceOp, dtype: torch.dtype, count: int = 10_007) -> torch.Tensor:
    """Folds all contributions from the left, f16 and bf16 in f32, and rounds once."""
    if op == corro.Average and not dtype.is_floating_point:
        return average_of_integers(dtype, count)
    wide = torch.float32 if dtype in HALVES else dtype
    parts = [values(rank, dtype, count).to(wide) for rank in range(corro.size())]
    fold = {
        corro.Sum: torch.add,
        corro.Average: torch.add,
        corro.Min: torch.minimum,
        corro.Max: torch.maximum,
        corro.Product: torch.mul,
    }[op]
    result = parts[0]
    for part in parts[1:]:
        result = fold(result, part)
    if op == corro.Average:
        result = result * torch.tensor(1.0 / corro.size(), dtype=torch.float64).to(wide)
    return result.to(dtype)


def average_of_integers(dtype: torch.dtype, count: int) -> torch.Tensor:
    """Sums without wrapping, and rounds toward zero."""
    parts = [values(rank, dtype, count).tolist() for rank in range(corro.size())]
    sums = [sum(column) for column in zip(*parts, strict=True)]
    signed = [abs(one) // corro.size() * (1 if one > 0 else -1) for one in sums]
    return torch.tensor(signed, dtype=dtype)


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_allreduce_equals_torch(op: corro.ReduceOp, dtype: torch.dtype) -> None:
    assert_same(corro.allreduce(values(corro.rank(), dtype), op), expected(op, dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_rounding_of_ties_is_to_even(dtype: torch.dtype) -> None:
    if corro.size() < 2:
        return
    # 1 + ulp/2 lies between 1 and 1 + ulp: to 1, which is even; 1 + 3 ulp/2: to 1 + 2 ulp.
    ulp = torch.finfo(dtype).eps
    ranks = [torch.tensor([1.0, 1.0 + ulp]), torch.tensor([ulp / 2, ulp / 2])]
    mine = ranks[corro.rank()] if corro.rank() < 2 else torch.zeros(2)
    assert_same(
        corro.allreduce(mine.to(dtype), corro.Sum), torch.tensor([1.0, 1.0 + 2 * ulp]).to(dtype)
    )


def test_bool() -> None:
    parts = torch.stack([values(rank, torch.bool) for rank in range(corro.size())])
    mine = values(corro.rank(), torch.bool)
    assert_same(corro.allreduce(mine, corro.Sum), parts.any(0))
    assert_same(corro.allreduce(mine, corro.Max), parts.any(0))
    assert_same(corro.allreduce(mine, corro.Product), parts.all(0))
    assert_same(corro.allreduce(mine, corro.Min), parts.all(0))
    with pytest.raises(corro.InvalidArgumentError, match="bool has neither averages nor factors"):
        corro.allreduce(mine)


@pytest.mark.parametrize("count", [0, 1, 3, 65_537])
@pytest.mark.parametrize("dtype", FLOATS)
def test_odd_counts(dtype: torch.dtype, count: int) -> None:
    got = corro.allreduce(values(corro.rank(), dtype, count), corro.Sum)
    assert_same(got, expected(corro.Sum, dtype, count))


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS, *FLOATS, torch.complex64])
def test_moving_verbs_keep_every_bit(dtype: torch.dtype) -> None:
    def of(rank: int) -> torch.Tensor:
        plain = torch.float32 if dtype == torch.complex64 else dtype
        return values(rank, plain, 12).view(dtype)

    n, rank, mine = corro.size(), corro.rank(), of(corro.rank())
    every = torch.cat([of(r) for r in range(n)])
    assert corro.broadcast(mine, n - 1).view(torch.uint8).equal(of(n - 1).view(torch.uint8))
    assert corro.allgather(mine).view(torch.uint8).equal(every.view(torch.uint8))
    got, rows = corro.alltoall(torch.cat([mine] * n))
    assert rows == [len(mine)] * n
    assert got.view(torch.uint8).equal(every.view(torch.uint8))
    assert rank == corro.rank()


def test_in_place_and_async_forms() -> None:
    x = torch.ones(3)
    assert corro.allreduce_(x, corro.Sum) is x
    assert x.tolist() == [corro.size()] * 3
    handle = corro.allreduce_async_(x, corro.Max)
    assert corro.synchronize(handle) is x
    y = torch.full((2,), float(corro.rank()))
    corro.broadcast_(y, corro.size() - 1)
    assert y.tolist() == [corro.size() - 1] * 2
    xs = [torch.ones(2), torch.ones(3, dtype=torch.int32)]
    corro.grouped_allreduce_(xs, corro.Sum)
    assert [t.tolist() for t in xs] == [[corro.size()] * 2, [corro.size()] * 3]


def test_a_group_in_place_takes_factors_and_compression() -> None:
    xs = [torch.full((2,), 2049.0), torch.full((3,), 4.0)]  # 2049 is no float16.
    handle = corro.grouped_allreduce_async_(
        xs, corro.Sum, prescale_factor=0.5, postscale_factor=2.0 / corro.size()
    )
    assert corro.synchronize(handle) == xs
    assert [t.tolist() for t in xs] == [[2049.0] * 2, [4.0] * 3]
    corro.grouped_allreduce_(xs, compression=corro.Compression.fp16)
    if corro.size() > 1:
        assert [t.tolist() for t in xs] == [[2048.0] * 2, [4.0] * 3]


def test_tensors_that_are_not_contiguous() -> None:
    base = torch.arange(12.0).view(3, 4)
    corro.allreduce_(base[:, 1], corro.Sum)
    assert base[:, 1].tolist() == [x * corro.size() for x in (1.0, 5.0, 9.0)]
    assert base[:, 2].tolist() == [2.0, 6.0, 10.0]
    assert torch.equal(corro.allreduce(base.t(), corro.Max), base.t())


def test_corro_numpy_takes_what_speaks_dlpack() -> None:
    tensor = torch.arange(6.0).view(2, 3).t()
    got = cn.allreduce(tensor, corro.Sum)
    assert got.tolist() == (tensor * corro.size()).tolist()


def test_scatter_refuses_another_dtype_than_outs() -> None:
    alone = [corro.new_group([r]) for r in range(corro.size())][corro.rank()]
    for dtype, other in [(torch.float32, torch.float64), (torch.complex64, torch.complex128)]:
        with pytest.raises(corro.InvalidArgumentError, match="dtype"):
            corro.scatter(
                torch.ones(3, dtype=other), torch.ones(3, dtype=dtype), corro.rank(), group=alone
            )


def test_conjugates_and_negatives_that_torch_has_not_carried_out() -> None:
    n = corro.size()
    z = torch.tensor([1 + 2j, 3 - 4j])
    conj, negative = z.conj(), z.conj().imag
    assert conj.is_conj()
    assert negative.is_neg()
    want = torch.tensor([-2.0, 4.0])
    assert torch.equal(corro.allreduce(negative, corro.Sum), n * want)
    assert torch.equal(corro.broadcast(negative), want)
    assert torch.equal(corro.broadcast(conj), torch.tensor([1 - 2j, 3 + 4j]))
    assert torch.equal(corro.allgather(conj), torch.tensor([1 - 2j, 3 + 4j] * n))
    corro.allreduce_(negative, corro.Sum)
    assert torch.equal(negative, n * want)
    assert torch.equal(z.imag, -n * want)
    corro.broadcast(torch.tensor([5 + 6j, 7j]), out=conj)
    assert torch.equal(conj, torch.tensor([5 + 6j, 7j]))
    assert torch.equal(z, torch.tensor([5 - 6j, -7j]))
    with pytest.raises(corro.InvalidArgumentError, match="complex64"):
        corro.allreduce(z)


def test_tensors_that_require_grad() -> None:
    x = torch.ones(3, requires_grad=True)
    assert not corro.allreduce(x, out=torch.empty(3)).requires_grad
    assert not corro.allreduce_async(x).wait().requires_grad
    corro.broadcast_parameters([x])
    with pytest.raises(corro.InvalidArgumentError, match="tensor is needed"):
        corro.allreduce(3.0)  # type: ignore[arg-type]
    with pytest.raises(corro.InvalidArgumentError, match="dense"):
        corro.allreduce(torch.ones(3).to_sparse())


def test_arena_tensors() -> None:
    x = corro.empty((4, 5), torch.bfloat16)
    assert x.count_nonzero() == 0
    x.fill_(1)
    corro.allreduce_(x, corro.Sum)
    assert x.float().unique().tolist() == [corro.size()]


def test_names_in_another_order_on_each_rank() -> None:
    for step in range(5):
        tensors = [torch.full((1 + i * 7,), float(i * 10 + corro.rank())) for i in range(40)]
        random = torch.Generator().manual_seed(step * 1000 + corro.rank())
        order = torch.randperm(len(tensors), generator=random).tolist()
        for handle in [corro.allreduce_async_(tensors[i], corro.Sum, f"{i}") for i in order]:
            handle.wait()
        for i, tensor in enumerate(tensors):
            total = sum(i * 10 + rank for rank in range(corro.size()))
            assert torch.equal(tensor, torch.full((1 + i * 7,), float(total)))


def test_objects() -> None:
    mine = {"rank": corro.rank(), "list": [None] * corro.rank()}
    assert corro.broadcast_object(mine, corro.size() - 1)["rank"] == corro.size() - 1
    assert [o["rank"] for o in corro.allgather_object(mine)] == list(range(corro.size()))


@pytest.mark.parametrize("compression", [corro.Compression.fp16, corro.Compression.bf16])
def test_a_codec_belongs_to_the_operation(compression: corro.EngineCodec) -> None:
    x = torch.full((300,), float(corro.rank() + 1))
    total = sum(range(1, corro.size() + 1))
    expected = torch.full((300,), float(total))
    assert torch.equal(corro.allreduce(x, corro.Sum, compression=compression), expected)
    handle = corro.allreduce_async(x, corro.Sum, name="small", compression=compression)
    assert torch.equal(handle.wait(), expected)
    assert torch.equal(
        corro.grouped_allreduce([x, x[:3]], corro.Sum, compression=compression)[1], expected[:3]
    )
    fine = torch.full((4,), 1 + 2**-14)
    assert torch.equal(corro.allreduce(fine, compression=compression), torch.ones(4))
    integers = torch.arange(5)
    assert torch.equal(corro.allreduce(integers, corro.Max, compression=compression), integers)
    assert torch.equal(corro.allreduce_(x, corro.Sum, compression=compression), expected)
    assert torch.equal(x, expected)


def test_gradients_travel_as_what_they_are_of() -> None:
    x = torch.ones(3, requires_grad=True)
    corro.allreduce(x, corro.Sum, compression=corro.Compression.bf16).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((3,), float(corro.size())))


class Halves:
    """Every second element travels."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Size]:
        return tensor.reshape(-1)[::2].to(torch.float64).contiguous(), tensor.shape

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.Size) -> torch.Tensor:
        whole = torch.zeros(context)
        whole.view(-1)[::2] = tensor.float()
        return whole


def test_a_compressor_in_python() -> None:
    x = torch.full((2, 3), float(corro.rank()))
    mean = (corro.size() - 1) / 2
    expected = torch.tensor([[mean, 0, mean], [0, mean, 0]])
    assert torch.equal(corro.allreduce(x, compression=Halves), expected)
    assert torch.equal(corro.allreduce_async(x, compression=Halves()).wait(), expected)
    assert torch.equal(corro.allreduce_(x, compression=Halves), expected)
    assert torch.equal(x, expected)


def test_compression_casts_only_what_is_larger() -> None:
    x = torch.tensor([1.0, 1 / 3])
    for compression, dtype in [
        (corro.Compression.fp16, torch.float16),
        (corro.Compression.bf16, torch.bfloat16),
    ]:
        small, context = compression.compress(x)
        assert small.dtype == dtype
        assert compression.decompress(small, context).dtype == torch.float32
    assert corro.Compression.fp16.compress(torch.arange(3))[0].dtype == torch.int64
    assert corro.Compression.bf16.compress(x.half())[0].dtype == torch.float16
    assert corro.Compression.none.compress(x)[0] is x


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_gpu_tensors() -> None:
    x = torch.arange(5.0, device="cuda")
    y = corro.allreduce(x, corro.Sum)
    assert y.is_cuda
    assert y.tolist() == [i * corro.size() for i in range(5)]
    corro.allreduce_(x, corro.Max)
    assert x.tolist() == [0, 1, 2, 3, 4]
