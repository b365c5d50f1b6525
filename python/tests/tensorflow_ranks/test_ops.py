"""corro.tensorflow's ops: gradients, graphs, sessions. test_conformance.py has the verbs."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy
import pytest
import tensorflow as tf

import corro
import corro._context
import corro.tensorflow as verbs
from corro.tensorflow import ops

needs_threads = pytest.mark.skipif(
    not ops.leave_their_threads, reason="ops of this TensorFlow keep their threads"
)


def ranks() -> range:
    return range(corro.size())


def of_rank(rank: int, shape: tuple[int, ...], dtype: Any = tf.float32) -> Any:
    count = int(numpy.prod(shape))
    return tf.cast(tf.reshape(tf.range(count) % 5 + rank + 1, shape), dtype)


def mine(shape: tuple[int, ...], dtype: Any = tf.float32) -> Any:
    return of_rank(corro.rank(), shape, dtype)


def world() -> int:
    return corro.world().number


def same(found: Any, expected: Any) -> None:
    found, expected = tf.convert_to_tensor(found), tf.convert_to_tensor(expected)
    assert found.dtype == expected.dtype
    numpy.testing.assert_array_equal(
        tf.cast(found, tf.float64).numpy(), tf.cast(expected, tf.float64).numpy()
    )


def test_the_other_reductions(run: Any) -> None:
    x, count = mine((3,)), corro.size()
    same(run(lambda t: verbs.allreduce(t, verbs.Min), x), of_rank(0, (3,)))
    product = numpy.prod([of_rank(rank, (3,)).numpy() for rank in ranks()], axis=0)
    same(run(lambda t: verbs.allreduce(t, verbs.Product), x), product)
    mean = sum(of_rank(rank, (3,)) for rank in ranks()) / count
    same(run(verbs.allreduce, x), mean)
    scaled = run(
        lambda t: verbs.allreduce(t, verbs.Sum, prescale_factor=2.0, postscale_factor=0.5), x
    )
    same(scaled, mean * count)


def test_several_tensors_are_one_unit(run: Any) -> None:
    xs = [mine((4,)), mine((2, 3), tf.int64), tf.constant(True)]
    a, b, c = run(lambda *t: verbs.grouped_allreduce(list(t), verbs.Max), *xs)
    last = corro.size() - 1
    same(a, of_rank(last, (4,)))
    same(b, of_rank(last, (2, 3), tf.int64))
    assert bool(c)


def test_a_graph_knows_what_it_can_of_shapes() -> None:
    seen = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def graph(x: Any) -> Any:
        seen.append(verbs.allreduce(x).shape.as_list())
        seen.append(ops.gather([x], world())[0].shape.as_list())
        return x

    graph(tf.zeros([2, 3]))
    assert seen == [[None, 3], [None, 3]]


@needs_threads
def test_ranks_may_start_named_ops_in_different_orders() -> None:
    rank = corro.rank()

    @tf.function
    def graph(x: Any) -> Any:
        first, second = ("a", "b") if rank % 2 else ("b", "a")
        one = verbs.allreduce(x, name=first)
        with tf.control_dependencies([x]):
            two = verbs.allreduce(x, name=second)
        return one + two

    x = mine((3,))
    for _ in range(3):
        same(graph(x), 2 * sum(of_rank(other, (3,)) for other in ranks()) / corro.size())


def test_constants_are_reduced_each_time() -> None:
    """TensorFlow runs ops of constants while it optimizes a graph, if they are not stateful."""

    @tf.function
    def graph() -> Any:
        return verbs.allreduce(tf.constant([1.0, 2.0]), verbs.Sum, name="constant")

    engine: Any = corro._context.current().engine
    counts = []
    for _ in range(3):
        same(graph(), tf.constant([1.0, 2.0]) * corro.size())
        counts.append(engine.counter("ops"))
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0


@needs_threads
def test_collectives_of_a_function_do_not_wait_for_each_other() -> None:
    """They are stateful ops, between which TensorFlow would draw edges."""

    @tf.function
    def graph(x: Any) -> Any:
        return verbs.allreduce(x, name="one"), verbs.allreduce(x, name="two")

    graph_def = graph.get_concrete_function(tf.TensorSpec([3])).graph
    collectives = [op for op in graph_def.get_operations() if op.type == "CorroAllreduce"]
    assert len(collectives) == 2
    assert not any(op.control_inputs for op in collectives)


def test_gradients(run: Any) -> None:
    rank, count = corro.rank(), corro.size()

    def gradient(function: Any, x: Any) -> Any:
        def graph(t: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(t)
                y = function(t)
                loss = tf.reduce_sum(y * tf.cast(rank + 1, y.dtype))
            return tape.gradient(loss, t)

        return run(graph, x)

    total = sum(range(1, count + 1))
    x = mine((count, 2))
    ones = tf.ones_like(x)
    same(gradient(lambda t: verbs.allreduce(t, verbs.Sum), x), total * ones)
    same(gradient(lambda t: verbs.broadcast(t, 0), x), (rank == 0) * total / count * ones)
    same(gradient(lambda t: ops.gather([t], world())[0], x), total / count * ones)
    same(
        gradient(lambda t: ops.exchange(t, tf.constant([], tf.int32), world())[0], x),
        tf.repeat(tf.range(1.0, count + 1.0)[:, None], 2, 1),
    )
    scattered = gradient(lambda t: ops.scatter_reduced([t], verbs.Sum, world())[0], x)
    same(scattered, count * tf.repeat(tf.range(1.0, count + 1.0)[:, None], 2, 1))


def test_what_is_wrong_on_this_rank_is_an_error_at_once(run: Any) -> None:
    with pytest.raises(tf.errors.FailedPreconditionError, match="at least one dim"):
        run(lambda t: ops.gather([t], world())[0], tf.constant(1.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="splits have to be"):
        run(
            lambda t: ops.exchange(t, tf.constant([99] * corro.size()), world())[0],
            tf.zeros([2]),
        )
    with pytest.raises(tf.errors.FailedPreconditionError, match="no group of the number 99"):
        run(lambda t: ops.reduce([t], verbs.Sum, 99)[0], tf.zeros([2]))


def test_a_group_of_some_ranks(run: Any) -> None:
    last = corro.size() - 1
    group = corro.new_group([last])
    if corro.rank() == last:
        same(run(lambda t: verbs.allreduce(t, verbs.Sum, group=group), mine((2,))), mine((2,)))


def test_sessions_of_tensorflow_1() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None])
        total = verbs.allreduce(x, verbs.Sum)
        for length in (1, 3):
            given = numpy.full(length, corro.rank() + 1.0, numpy.float32)
            found = session.run(total, {x: given})
            assert found.tolist() == [sum(rank + 1.0 for rank in ranks())] * length


def test_a_graph_outlives_its_engine() -> None:
    @tf.function
    def graph(x: Any) -> Any:
        return verbs.allreduce(x, verbs.Sum, name="again")

    import horovod.tensorflow as hvd

    expected = sum(of_rank(rank, (2,)) for rank in ranks())
    same(graph(mine((2,))), expected)
    x = mine((2,))
    hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match="call corro"):
        graph(x)
    hvd.init()
    same(graph(x), expected)


@pytest.mark.parametrize("where", ["directly", "in_a_function", "in_a_branch", "gradient"])
def test_what_xla_compiles_is_refused_before_it_runs(where: str) -> None:
    def reduced(x: Any) -> Any:
        return verbs.allreduce(x, verbs.Sum, name="compiled")

    @tf.function(jit_compile=True)
    def compiled(x: Any) -> Any:
        if where == "directly":
            return reduced(x)
        if where == "in_a_function":
            return tf.function(reduced)(x)
        if where == "in_a_branch":
            return tf.cond(tf.reduce_sum(x) > 0, lambda: reduced(x), lambda: x)
        return tf.gradients(reduced(x), x)[0]

    with pytest.raises(NotImplementedError) as raised:
        compiled(tf.ones([2]))
    lines = [line for line in str(raised.value).splitlines() if "jit_compile=True, which" in line]
    assert len(lines) == 1
    assert "allreduce: no op of corro can be in a tf.function with jit_compile=True" in lines[0]


def test_a_function_with_a_collective_calls_one_that_xla_compiles() -> None:
    @tf.function(jit_compile=True)
    def compiled(x: Any) -> Any:
        return x * 2.0

    @tf.function
    def graph(x: Any) -> Any:
        return compiled(verbs.allreduce(compiled(x), verbs.Sum))

    same(graph(tf.ones([2])), tf.ones([2]) * 4.0 * corro.size())


CALLS = {
    "allreduce": verbs.allreduce,
    "broadcast": verbs.broadcast,
    "allgather": lambda t: ops.gather([t], world())[0],
    "reducescatter": lambda t: ops.scatter_reduced([t], verbs.Sum, world())[0],
    "alltoall": lambda t: ops.exchange(t, tf.constant([], tf.int32), world())[0],
}


@pytest.mark.parametrize("verb", CALLS)
def test_a_loop_whose_runs_do_not_depend_on_each_other(verb: str) -> None:
    """TensorFlow begins several at a time, and the op has one name."""
    count = corro.size()

    @tf.function
    def loop(x: Any) -> Any:
        rows = tf.TensorArray(tf.float32, 16)
        for i in tf.range(16):
            busy = tf.tanh(tf.ones([50, 50]) @ tf.ones([50, 50]))[0, 0]
            rows = rows.write(i, CALLS[verb](x[i] * busy + 0.0 * busy))
        return rows.stack()

    x = tf.range(16.0)[:, None] * tf.ones([count])
    for _ in range(5):
        found = loop(x)[:, 0].numpy()
        factor = count if verb == "reducescatter" else 1  # Sums; allreduce averages.
        assert found.tolist() == [i * factor for i in range(16)]


@pytest.mark.parametrize("verb", CALLS)
def test_a_loop_of_tensorflow_1_whose_runs_do_not_depend_on_each_other(verb: str) -> None:
    """They run in another order on each rank, several at a time, in a loop that does so, too."""
    count = corro.size()
    factor = count if verb == "reducescatter" else 1

    def call(i: Any) -> Any:
        value = tf.cast(i, tf.float32) * tf.ones([count])
        return tf.reshape(CALLS[verb](value), [-1])[0]

    control_flow = importlib.import_module("tensorflow.python.ops.control_flow_util")
    enabled = control_flow.ENABLE_CONTROL_FLOW_V2
    control_flow.ENABLE_CONTROL_FLOW_V2 = False
    try:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            table = tf.reshape(tf.range(20), [4, 5])
            rows = tf.map_fn(
                lambda row: tf.map_fn(call, row, fn_output_signature=tf.float32),
                table,
                fn_output_signature=tf.float32,
            )
            for _ in range(3):
                assert session.run(rows).ravel().tolist() == [i * factor for i in range(20)]
    finally:
        control_flow.ENABLE_CONTROL_FLOW_V2 = enabled


@pytest.mark.parametrize("verb", CALLS)
def test_what_tensorflow_vectorizes_is_refused_in_one_line(run: Any, verb: str) -> None:
    x = tf.ones([3, corro.size()])
    with pytest.raises(NotImplementedError, match=f"{verb}: no collective can be in tf.vectorized"):
        run(lambda: tf.vectorized_map(CALLS[verb], x))


def test_an_op_that_is_started_twice_at_once_says_so() -> None:
    """Rank 0 does so before the others start it."""
    if corro.size() == 1:
        pytest.skip("nobody is waited for")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        total = verbs.allreduce(tf.ones([2]), verbs.Sum, name="twice")
        if corro.rank() == 0:
            with ThreadPoolExecutor(2) as threads:
                both = [threads.submit(session.run, total) for _ in range(2)]
                first = next(as_completed(both))
                corro.barrier()
                with pytest.raises(tf.errors.AlreadyExistsError, match="once at a time"):
                    first.result()
                both.remove(first)
                found = both[0].result()
        else:
            corro.barrier()
            found = session.run(total)
    assert found.tolist() == [corro.size()] * 2


def test_the_gradient_of_rows_that_go_nowhere_is_zero(run: Any) -> None:
    count = corro.size()
    x = tf.ones([count + 3, 2])

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            received, _ = ops.exchange(x, tf.ones([count], tf.int32), world())
            loss = tf.reduce_sum(received) + 0.0 * tf.reduce_sum(x)
        return tape.gradient(loss, x)

    assert run(gradient, x).numpy().tolist() == [[1, 1]] * count + [[0, 0]] * 3


OTHERS = {
    "string": (lambda: tf.constant(["a", "b"]), "a tensor of dtype string is given"),
    "complex": (lambda: tf.zeros([2], tf.complex64), "a tensor of dtype complex64 is given"),
    "ragged": (lambda: tf.ragged.constant([[1.0], []]), "RaggedTensor is no tensor"),
    "sparse": (lambda: tf.sparse.from_dense([[1.0]]), "SparseTensor is no tensor"),
}


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("what", OTHERS)
def test_what_cannot_be_sent_is_refused_in_one_line(run: Any, verb: str, what: str) -> None:
    make, text = OTHERS[what]
    given = make()
    with pytest.raises(TypeError) as raised:
        run(CALLS[verb], given)
    lines = [line for line in str(raised.value).splitlines() if f"{verb}: a" in line]
    assert len(lines) == 1
    assert text in lines[0]


@pytest.mark.parametrize("verb", ["allgather", "reducescatter", "alltoall"])
def test_verbs_of_rows_refuse_scalars(run: Any, verb: str) -> None:
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"{verb}: at least one dim"):
        run(CALLS[verb], tf.constant(1.0))


def test_ops_are_on_the_cpu_whatever_device_is_asked_for() -> None:
    """A session refuses an op on a device where it has no kernel, or that is not there."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([1.0])
        with tf.device("/gpu:0"):
            total = verbs.allreduce(x, verbs.Sum)
        assert session.run(total).tolist() == [corro.size()]
