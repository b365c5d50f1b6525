"""Optimizers of tf.compat.v1 by their options: eager, in a tf.function, and in sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd

v1 = tf.compat.v1

# One pass: returns the variables' values after it.
Pass = Callable[[float], list[Any]]


def mean(value: Any) -> Any:
    return sum(value(rank) for rank in range(hvd.size())) / hvd.size()


def session_of(build: Callable[[Any], tuple[Any, list[Any]]]) -> Pass:
    """`build` makes of a scalar the op that trains, and the variables."""
    graph = tf.Graph()
    with graph.as_default():
        scale = v1.placeholder(tf.float32, [])
        train_op, variables = build(scale)
        init = [v1.global_variables_initializer(), v1.local_variables_initializer()]
        session = v1.Session(graph=graph)
        session.run(init)

    def step(value: float) -> list[Any]:
        session.run(train_op, {scale: value})
        found: list[Any] = session.run(variables)
        return found

    return step


def optimizer(**options: Any) -> Any:
    return hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), **options)


@pytest.fixture(params=["eager", "function", "session"])
def passes(request: pytest.FixtureRequest) -> Callable[..., Pass]:
    """Returns what makes passes, each with gradient `value` for all of two variables."""

    def make(make_optimizer: Callable[[], Any], local: bool = False) -> Pass:
        def parts() -> tuple[Any, Any, list[Any]]:
            variables = [v1.Variable(tf.zeros([n]), use_resource=True) for n in (1, 2)]
            opt = make_optimizer()
            if local:
                opt.register_local_var(variables[1])
            step = v1.Variable(tf.zeros([], tf.int64), use_resource=True)
            return opt, step, variables

        def minimize(opt: Any, step: Any, variables: list[Any], scale: Any) -> Any:
            def loss() -> Any:
                return scale * tf.add_n([tf.reduce_sum(one) for one in variables])

            eager = tf.executing_eagerly() or request.param == "function"
            return opt.minimize(loss if eager else loss(), step, var_list=variables)

        if request.param == "session":

            def build(scale: Any) -> tuple[Any, list[Any]]:
                opt, step, variables = parts()
                return minimize(opt, step, variables, scale), [*variables, step]

            return session_of(build)
        opt, step, variables = parts()

        def eager(scale: Any) -> None:
            minimize(opt, step, variables, scale)

        call = eager if request.param == "eager" else tf.function(eager)

        def one_pass(value: float) -> list[Any]:
            call(tf.constant(value))
            return [one.numpy() for one in [*variables, step]]

        return one_pass

    return make


@pytest.mark.parametrize("averages", [False, True], ids=["sum", "mean"])
def test_a_step_of_several_passes(passes: Any, averages: bool) -> None:
    options = {"backward_passes_per_step": 3, "average_aggregated_gradients": averages}
    one_pass = passes(lambda: optimizer(**options))
    expected = 0.0
    for i in range(7):
        expected -= mean(lambda rank: rank + i) / (3 if averages else 1)  # noqa: B023
        small, large, step = one_pass(float(hvd.rank() + i))
        if i % 3 == 2:
            applied = expected
        shown = applied if i >= 2 else 0.0
        numpy.testing.assert_allclose(small, [shown], rtol=1e-5)
        numpy.testing.assert_allclose(large, [shown] * 2, rtol=1e-5)
        assert step == i + 1


@pytest.mark.parametrize("several", [1, 2], ids=["one_pass", "two_passes"])
def test_local_variables_are_not_reduced(passes: Any, several: int) -> None:
    one_pass = passes(lambda: optimizer(backward_passes_per_step=several), local=True)
    for _ in range(several):
        of_all, own, _ = one_pass(hvd.rank() + 1.0)
    numpy.testing.assert_allclose(of_all, [-several * mean(lambda rank: rank + 1)])
    numpy.testing.assert_allclose(own, [-several * (hvd.rank() + 1) / hvd.size()] * 2, rtol=1e-6)


@pytest.mark.parametrize("several", [1, 2], ids=["one_pass", "two_passes"])
def test_adasum_combines_what_the_ranks_have_changed(passes: Any, several: int) -> None:
    one_pass = passes(lambda: optimizer(op=hvd.Adasum, backward_passes_per_step=several))
    own = tf.constant([-(hvd.rank() + 1.0) * several])
    step = hvd.allreduce(own, op=hvd.Adasum).numpy()
    for count in (1, 2):
        for i in range(several):
            small, _, _ = one_pass(hvd.rank() + 1.0)
            if i + 1 < several:
                numpy.testing.assert_allclose(small, (count - 1) * step - hvd.rank() - 1.0)
        numpy.testing.assert_allclose(small, count * step, rtol=1e-5)


def test_sparse_gradients_are_made_dense_for_several_passes() -> None:
    table = tf.Variable(tf.zeros([3, 1]))

    def one_pass(**options: Any) -> None:
        opt = optimizer(backward_passes_per_step=2, **options)
        for _ in range(2):
            opt.minimize(lambda: tf.reduce_sum(tf.gather(table, [1])), var_list=[table])

    with pytest.raises(ValueError, match="IndexedSlices are not supported"):
        one_pass()
    one_pass(sparse_as_dense=True)
    assert table.numpy().tolist() == [[0.0], [-2.0], [0.0]]


def test_passes_with_gradients_of_other_variables_are_refused() -> None:
    a, b = tf.Variable(1.0), tf.Variable(1.0)
    opt = optimizer(backward_passes_per_step=2)
    opt.minimize(lambda: a * 1.0, var_list=[a, b])
    with pytest.raises(ValueError, match="gradients of the same variables"):
        opt.minimize(lambda: b * 1.0, var_list=[a, b])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backward_passes_per_step": 0}, "backward_passes_per_step must be > 0"),
        ({"op": hvd.Adasum, "average_aggregated_gradients": True}, "Adasum does not support"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "gradient_predivide_factor"),
        ({"groups": 0}, "groups should be"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        optimizer(**options)
