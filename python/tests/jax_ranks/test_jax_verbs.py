"""corro.jax's verbs: dtypes, shapes, groups, trees and errors, eager and compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy
import pytest

import corro
import corro.jax as cj

DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
SHAPES = [(), (1,), (5,), (3, 2), (0,), (2, 0)]


def ranks() -> range:
    return range(corro.size())


def of_rank(rank: int, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    count = int(numpy.prod(shape))
    return (jnp.arange(count) % 5 + rank + 1).reshape(shape).astype(dtype)


def mine(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return of_rank(corro.rank(), shape, dtype)


def total(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    summed = sum(of_rank(rank, shape, "float64") for rank in ranks())
    return jnp.asarray(summed).astype(dtype)


def same(found: Any, expected: Any) -> None:
    assert isinstance(found, jax.Array)
    assert found.dtype == expected.dtype
    numpy.testing.assert_array_equal(numpy.asarray(found), numpy.asarray(expected))


@pytest.mark.parametrize("dtype", [*DTYPES, *FLOATS])
def test_allreduce_of_each_dtype(run: Any, dtype: str) -> None:
    same(run(lambda x: cj.allreduce(x, cj.Sum), mine((7,), dtype)), total((7,), dtype))


def test_allreduce_of_bools(run: Any) -> None:
    x = jnp.array([True, corro.rank() == 0, False])
    same(run(lambda x: cj.allreduce(x, cj.Max), x), jnp.array([True, True, False]))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_verbs_of_each_shape(run: Any, shape: tuple[int, ...]) -> None:
    last = corro.size() - 1
    same(run(lambda x: cj.allreduce(x, cj.Sum), mine(shape)), total(shape))
    same(run(lambda x: cj.broadcast(x, last), mine(shape)), of_rank(last, shape))


def test_the_other_reductions_and_scales(run: Any) -> None:
    x, last = mine((3,)), corro.size() - 1
    same(run(cj.allreduce, x), total((3,)) / corro.size())
    same(run(lambda x: cj.allreduce(x, cj.Min), x), of_rank(0, (3,)))
    same(run(lambda x: cj.allreduce(x, cj.Max), x), of_rank(last, (3,)))
    scales = {"prescale_factor": 2.0, "postscale_factor": 0.5}
    same(run(lambda x: cj.allreduce(x, cj.Sum, **scales), x), total((3,)))


def test_a_pytree_is_one_unit(run: Any) -> None:
    tree = {"a": mine((4,)), "b": [mine((2, 3), "int64"), jnp.float32(corro.rank())], "c": None}
    found = run(lambda tree: cj.grouped_allreduce(tree, cj.Sum), tree)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    same(found["a"], total((4,)))
    same(found["b"][0], total((2, 3), "int64"))
    same(found["b"][1], jnp.float32(sum(ranks())))


def test_parameters_become_the_roots(run: Any) -> None:
    root = corro.size() - 1
    tree = {"w": mine((2, 2)), "step": jnp.asarray(corro.rank())}
    found = run(lambda tree: cj.broadcast_parameters(tree, root), tree)
    same(found["w"], of_rank(root, (2, 2)))
    same(found["step"], jnp.asarray(root))


def test_compression(run: Any) -> None:
    found = run(lambda x: cj.allreduce(x, cj.Sum, compression=cj.Compression.bf16), mine((5,)))
    same(found, total((5,)))  # Small whole numbers.
    if corro.size() == 2:
        third = jnp.float32(1 / 3)
        found = run(lambda x: cj.allreduce(x, compression=cj.Compression.bf16), third)
        same(found, third.astype(jnp.bfloat16).astype(jnp.float32))  # As it has travelled.


def test_rows(run: Any) -> None:
    rank, count = corro.rank(), corro.size()
    found = run(cj.allgather, mine((2, 3)))
    same(found, jnp.concatenate([of_rank(other, (2, 3)) for other in ranks()]))
    found = run(lambda x: cj.reducescatter(x, cj.Sum), mine((2 * count, 3)))
    same(found, total((2 * count, 3))[2 * rank : 2 * rank + 2])
    found, received = run(cj.alltoall, jnp.arange(count) + 10 * rank)
    same(found, jnp.arange(count) * 10 + rank)
    assert [int(rows) for rows in received] == [1] * count


def test_rows_of_different_numbers() -> None:
    rank = corro.rank()
    found = cj.allgather(mine((rank + 1, 2)))
    same(found, jnp.concatenate([of_rank(other, (other + 1, 2)) for other in ranks()]))
    splits = [(rank + to) % 3 for to in ranks()]
    _, received = cj.alltoall(mine((sum(splits),)), splits)
    assert received == [(sender + rank) % 3 for sender in ranks()]


def test_handles_and_names() -> None:
    order = ["a", "b"] if corro.rank() % 2 else ["b", "a"]
    handles = {name: cj.allreduce_async(mine((3,)), cj.Sum, name) for name in order}
    same(handles["a"].wait(), total((3,)))
    same(cj.synchronize(handles["b"]), total((3,)))
    same(cj.broadcast_async(mine((3,)), 0).wait(), of_rank(0, (3,)))


def test_objects() -> None:
    assert cj.broadcast_object({"rank": corro.rank()}) == {"rank": 0}


def test_a_group(run: Any) -> None:
    group = corro.new_group([corro.size() - 1])
    if group.included():
        same(run(lambda x: cj.allreduce(x, cj.Sum, group=group), mine((3,))), mine((3,)))


# -- what cannot be -------------------------------------------------------------------------------


def test_what_cannot_be_reduced(run: Any) -> None:
    with pytest.raises(corro.InvalidArgumentError, match="no arithmetic for complex64"):
        run(cj.allreduce, jnp.ones(2, "complex64"))
    with pytest.raises(corro.InvalidArgumentError, match="no arrays given"):
        run(lambda _: cj.grouped_allreduce([]), jnp.ones(2))
    with pytest.raises(corro.InvalidArgumentError, match=r"compression has to be .* not 3"):
        run(lambda x: cj.allreduce(x, compression=3), jnp.ones(2))
    with pytest.raises(corro.InvalidArgumentError, match="rank 99 is not in the group"):
        run(lambda x: cj.broadcast(x, 99), jnp.ones(2))
    with pytest.raises(corro.InvalidArgumentError, match="at least one dim is needed"):
        run(cj.allgather, jnp.float32(1))


def test_what_a_compiled_function_cannot_have() -> None:
    with pytest.raises(corro.InvalidArgumentError, match="not in a function that JAX"):
        jax.jit(lambda x: cj.allreduce_async(x).wait())(jnp.ones(2))
    with pytest.raises(corro.InvalidArgumentError, match="leave splits out"):
        jax.jit(lambda x: cj.alltoall(x, [1] * corro.size()))(jnp.ones(corro.size()))
    if corro.size() > 1:
        rows = jnp.ones(corro.size() + 1)
        with pytest.raises(corro.InvalidArgumentError, match="rows do not divide by"):
            jax.jit(cj.reducescatter)(rows)


def test_ranks_that_differ() -> None:
    if corro.size() == 1:
        pytest.skip("needs ranks that differ")
    refused = (ValueError, jax.errors.JaxRuntimeError)  # JAX's, of an INVALID_ARGUMENT.
    differs = mine((3 + corro.rank() % 2,))
    with pytest.raises(refused, match=r"shape \[[34]\].* shape \[[34]\]"):
        jax.block_until_ready(jax.jit(cj.allreduce)(differs))
    op = cj.Max if corro.rank() % 2 else cj.Min
    with pytest.raises(refused, match="INVALID_ARGUMENT"):
        jax.block_until_ready(jax.jit(lambda x: cj.allreduce(x, op))(mine((3,))))
    same(jax.jit(lambda x: cj.allreduce(x, cj.Sum))(mine((3,))), total((3,)))
