"""corro.jax's verbs as parts of programs: order, control flow, derivatives, vmap, optimizers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy
import optax
import pytest

import corro
import corro.jax as cj


def summed(x: Any) -> Any:
    return cj.allreduce(x, cj.Sum)


def same(found: Any, expected: Any) -> None:
    numpy.testing.assert_allclose(numpy.asarray(found), numpy.asarray(expected), rtol=1e-6)


def test_runs_of_a_program_keep_their_order() -> None:
    """Several are on their way at a time, and none depends on another."""

    @jax.jit
    def program(x: Any) -> Any:
        busy = jax.lax.fori_loop(0, 3 + corro.rank(), lambda _, y: jnp.tanh(y @ y.T), x)
        return summed(x + 0 * busy)

    for _ in range(5):
        found = [program(jnp.full((100, 100), float(i))) for i in range(20)]
        for i, one in enumerate(found):
            same(one[0, 0], i * corro.size())


def test_many_in_one_program() -> None:
    found = jax.jit(lambda x: [summed(x * i) for i in range(30)])(jnp.ones(3))
    for i, one in enumerate(found):
        same(one, jnp.full(3, i * corro.size()))


def test_a_part_that_is_used_twice() -> None:
    part = jax.jit(summed)
    found = jax.jit(lambda a, b: (part(a), part(b)))(jnp.ones(3), jnp.full(3, 5.0))
    same(found[0], jnp.full(3, corro.size()))
    same(found[1], jnp.full(3, 5.0 * corro.size()))


@pytest.mark.parametrize("unroll", [1, 2])
@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_scan(length: int, unroll: int) -> None:
    def loss(x: Any) -> Any:
        def body(carried: Any, y: Any) -> Any:
            return carried + summed(x * y), summed(y)

        return jax.lax.scan(body, 0.0, jnp.arange(length, dtype=x.dtype), unroll=unroll)

    carried, ys = jax.jit(loss)(jnp.float64(1))
    same(ys, jnp.arange(length) * corro.size())
    same(carried, sum(range(length)) * corro.size())
    gradient = jax.jit(jax.grad(lambda x: loss(x)[0]))(jnp.float64(1))
    same(gradient, sum(range(length)) * corro.size())


def test_other_control_flow() -> None:
    chosen = jax.jit(lambda x: jax.lax.cond(x > 0, summed, lambda y: y, x))
    same(chosen(jnp.float64(2)), 2 * corro.size())
    same(chosen(jnp.float64(-2)), -2)
    again = jax.jit(jax.grad(jax.checkpoint(lambda x: jnp.sin(summed(x)))))
    same(again(jnp.float64(1)), corro.size() * numpy.cos(corro.size()))


def test_vmap(run: Any) -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    same(run(jax.vmap(summed), x), x * corro.size())
    rows = jnp.arange(4.0 * corro.size()).reshape(2, 2 * corro.size())
    alone = jnp.stack([cj.reducescatter(row, cj.Sum) for row in rows])
    same(run(jax.vmap(lambda row: cj.reducescatter(row, cj.Sum)), rows), alone)
    with pytest.raises(corro.InvalidArgumentError, match="not in vmap"):
        run(jax.vmap(lambda x: cj.allreduce(x, cj.Adasum)), x)


def test_gradients_are_horovods(run: Any) -> None:
    rank, count = corro.rank(), corro.size()
    weights = jnp.arange(1.0, 2 * count + 1)  # What this rank's loss says of each result.
    mine = weights * (rank + 1)
    of_all = sum(weights * (other + 1) for other in range(count))

    def gradient(verb: Any, given: Any, says: Any) -> Any:
        return run(jax.grad(lambda x: (verb(x) * says).sum()), given)

    same(gradient(summed, mine, mine), of_all)
    same(gradient(cj.allreduce, mine, mine), of_all / count)
    of_root = of_all / count if rank == 0 else 0 * of_all
    same(gradient(cj.broadcast, mine, mine), of_root)
    same(gradient(cj.allgather, jnp.ones(2), mine), (of_all / count)[2 * rank : 2 * rank + 2])
    parts = jnp.repeat(jnp.arange(1.0, count + 1), 2)  # Each rank says its number of its part.
    says = jnp.full(2, rank + 1.0)
    same(gradient(lambda x: cj.reducescatter(x, cj.Sum), mine, says), parts * count)
    same(gradient(cj.reducescatter, mine, says), parts)
    scales = {"prescale_factor": 0.5, "postscale_factor": 6.0}
    same(gradient(lambda x: cj.reducescatter(x, cj.Sum, **scales), mine, says), parts * count * 3)
    same(gradient(lambda x: cj.allreduce(x, cj.Sum, **scales), mine, mine), of_all * 3)
    same(gradient(lambda x: cj.alltoall(x)[0], mine, jnp.full(2 * count, rank + 1.0)), parts)


def test_some_gradients_of_a_group_are_zero(run: Any) -> None:
    def loss(tree: Any) -> Any:
        return cj.grouped_allreduce(tree, cj.Sum)["a"].sum()

    found = run(jax.grad(loss), {"a": jnp.ones(2), "b": jnp.ones(3)})
    same(found["a"], jnp.full(2, corro.size()))
    same(found["b"], jnp.zeros(3))


def test_a_group_of_which_one_array_depends_on_nothing(run: Any) -> None:
    fixed, whole = jnp.ones(3), jnp.arange(2)
    found = run(
        jax.grad(lambda x: cj.grouped_allreduce([x, fixed, whole], cj.Sum)[0].sum()), jnp.ones(2)
    )
    same(found, jnp.full(2, corro.size()))


def test_an_array_that_is_no_argument_is_reduced_in_each_run() -> None:
    own = jnp.ones(2) * (corro.rank() + 1)
    program = jax.jit(lambda x: x.sum() * cj.allreduce(own, cj.Sum))
    if corro.rank() == 0:
        jax.make_jaxpr(program)(jnp.ones(5))  # Looks at it, and runs nothing.
    assert "corro_collective" in str(jax.make_jaxpr(program)(jnp.ones(3)))
    total = corro.size() * (corro.size() + 1) / 2
    same(program(jnp.ones(3)), jnp.full(2, 3 * total))


@pytest.mark.parametrize(
    "verb",
    [
        cj.barrier,
        cj.join,
        lambda: cj.broadcast_object(1),
        lambda: cj.allgather_object(1),
        lambda: cj.allreduce_async(jnp.ones(2)),
    ],
)
def test_what_a_program_cannot_have_is_refused(verb: Any) -> None:
    def step(x: Any) -> Any:
        verb()
        return x

    with pytest.raises(corro.InvalidArgumentError, match="not in a function that JAX compiles"):
        jax.jit(step)(jnp.ones(2))


def test_verbs_take_keywords(run: Any) -> None:
    same(run(lambda x: cj.allreduce(x=x, op=cj.Sum), jnp.ones(2)), jnp.full(2, corro.size()))


def test_a_state_without_arrays_is_sent() -> None:
    state = optax.sgd(0.1).init(jnp.ones(2))
    assert cj.broadcast_parameters(state) == state


def test_forward_and_second_derivatives(run: Any) -> None:
    _, tangent = run(lambda x: jax.jvp(summed, (x,), (x,)), jnp.ones(2))
    same(tangent, jnp.full(2, corro.size()))
    second = run(jax.grad(jax.grad(lambda x: summed(x) ** 3)), jnp.float64(1))
    same(second, 6 * corro.size() ** 3)


def test_the_greatest_has_no_gradient(run: Any) -> None:
    with pytest.raises(corro.InvalidArgumentError, match="only sums and averages"):
        run(jax.grad(lambda x: cj.allreduce(x, cj.Max)), jnp.float64(1))


@pytest.mark.parametrize("passes", [1, 2])
def test_an_optimizer_averages_gradients(run: Any, passes: int) -> None:
    optimizer = cj.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=passes)
    weights = {"a": jnp.zeros(3), "b": jnp.float64(0)}
    state = optimizer.init(weights)
    gradients = {"a": jnp.full(3, float(corro.rank())), "b": jnp.float64(1)}
    for _ in range(passes):
        updates, state = run(optimizer.update, gradients, state, weights)
        weights = optax.apply_updates(weights, updates)
    same(weights["a"], jnp.full(3, -(corro.size() - 1) / 2))
    same(weights["b"], -1.0)


def test_what_is_no_optimizer() -> None:
    with pytest.raises(corro.InvalidArgumentError, match=r"such as optax.sgd\(0.1\), not 3"):
        cj.DistributedOptimizer(3)
    with pytest.raises(corro.InvalidArgumentError, match="at least 1, not 0"):
        cj.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=0)


@pytest.mark.parametrize("passes", [1, 2])
def test_an_optimizer_is_distributed_once(passes: int) -> None:
    optimizer = cj.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=passes)
    with pytest.raises(corro.InvalidArgumentError, match="this optimizer is one already"):
        cj.DistributedOptimizer(optimizer)
