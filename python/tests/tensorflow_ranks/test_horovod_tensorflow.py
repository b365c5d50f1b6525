"""horovod.tensorflow: what scripts call, on every rank."""

from __future__ import annotations

import threading
from typing import Any

import numpy
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.common.exceptions import HorovodInternalError


def total(value: Any) -> Any:
    return sum(value(rank) for rank in range(hvd.size()))


def test_training_is_that_of_one_process(run: Any) -> None:
    """Ranks with a part of the batch each get the gradients of the whole."""
    random = numpy.random.RandomState(7)
    x = random.randn(hvd.size() * 4, 3).astype(numpy.float32)
    y = (x @ [[1.0], [2.0], [3.0]]).astype(numpy.float32)
    ours, alone = tf.Variable(tf.zeros([3, 1])), tf.Variable(tf.zeros([3, 1]))
    part = slice(hvd.rank() * 4, hvd.rank() * 4 + 4)

    def step(weights: Any, images: Any, labels: Any, distributes: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((images @ weights - labels) ** 2)
        if distributes:
            tape = hvd.DistributedGradientTape(tape)
        weights.assign_sub(0.1 * tape.gradient(loss, [weights])[0])
        return loss

    for _ in range(5):
        run(lambda a, b: step(ours, a, b, True), x[part], y[part])
        step(alone, x, y, False)
    numpy.testing.assert_allclose(ours.numpy(), alone.numpy(), rtol=1e-5)


def test_a_tape_keeps_structures_and_none() -> None:
    a, b = tf.Variable(1.0 + hvd.rank()), tf.Variable(2.0)
    with tf.GradientTape(persistent=True) as tape:
        loss = a * a
    tape = hvd.DistributedGradientTape(tape)
    assert isinstance(tape, tf.GradientTape)
    found = tape.gradient(loss, {"a": a, "b": b})
    assert found["b"] is None
    assert float(found["a"]) == total(lambda rank: 2.0 * (1 + rank)) / hvd.size()


def test_sparse_gradients(run: Any) -> None:
    table = tf.Variable(tf.zeros([4, 2]))

    def gradient(as_dense: bool) -> Any:
        with tf.GradientTape() as tape:
            rows = tf.gather(table, [0, hvd.rank() % 4])
            loss = tf.reduce_sum(rows)
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=as_dense)
        return tf.convert_to_tensor(tape.gradient(loss, table))

    sparse, dense = run(lambda: gradient(False)), run(lambda: gradient(True))
    numpy.testing.assert_allclose(sparse.numpy(), dense.numpy())
    assert float(sparse[0, 0]) >= 1


def test_variables_get_the_values_of_a_rank(run: Any) -> None:
    variables = [tf.Variable([float(hvd.rank())] * 3), tf.Variable(hvd.rank())]

    def give() -> None:
        hvd.broadcast_variables(variables, hvd.size() - 1)

    run(give)
    assert variables[0].numpy().tolist() == [hvd.size() - 1.0] * 3
    assert int(variables[1]) == hvd.size() - 1


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product, hvd.Adasum])
def test_reducescatter_adds_up_alone(op: Any) -> None:
    with pytest.raises(HorovodInternalError, match=r"only hvd\.Average and hvd\.Sum"):
        hvd.reducescatter(tf.ones([4]), op=op)


def test_objects() -> None:
    own = {"rank": hvd.rank(), "some": "x" * (hvd.rank() + 1)}
    assert hvd.broadcast_object(own, 0)["rank"] == 0
    assert [one["rank"] for one in hvd.allgather_object(own)] == list(range(hvd.size()))


def test_an_object_that_cannot_be_pickled_is_an_error_on_every_rank() -> None:
    own = threading.Lock() if hvd.rank() == hvd.size() - 1 else None
    with pytest.raises(ValueError, match="cannot send it"):
        hvd.broadcast_object(own, hvd.size() - 1)
    with pytest.raises(ValueError, match="cannot send it"):
        hvd.allgather_object(own)


def test_compression(run: Any) -> None:
    third = tf.fill([3], 1 / 3)
    found = run(lambda t: hvd.allreduce(t, compression=hvd.Compression.fp16), third)
    assert found.dtype == tf.float32
    as_it_travels = tf.cast(tf.cast(third, tf.float16), tf.float32)
    numpy.testing.assert_allclose(found, as_it_travels, rtol=1e-3)  # An average is rounded, too.
    assert abs(float(found[0]) - 1 / 3) > 1e-5  # 1/3 has no closer number of 16 bits.


def test_place_is_asked_for_when_it_runs(run: Any) -> None:
    found = run(lambda: [hvd.rank_op(), hvd.size_op(), hvd.process_set_included_op(99)])
    assert [int(one) for one in found] == [hvd.rank(), hvd.size(), 0]


@pytest.mark.parametrize("length", [2, 1000])
def test_a_captured_tensor_has_the_same_name_on_every_rank(length: int) -> None:
    """TensorFlow counts eager tensors, of which ranks make more or fewer; small ones it copies."""
    for _ in range(hvd.rank()):
        tf.function(lambda y: y + 1.0)(tf.ones([length]))
    x = tf.ones([length])

    @tf.function
    def inner() -> Any:
        return hvd.allreduce(x, op=hvd.Sum)

    @tf.function
    def outer() -> Any:
        with tf.name_scope("scope"):
            total = hvd.grouped_allreduce([x, 2.0 * x, x], op=hvd.Sum)[2]
        for _ in tf.range(2):
            total += hvd.broadcast(x, 0)
        return total + inner()

    made = outer.get_concrete_function().graph.as_graph_def()
    inside = [node for function in made.library.function for node in function.node_def]
    names = sorted(node.name for node in [*made.node, *inside] if node.op.startswith("Corro"))
    everywhere = hvd.allgather_object(names)
    assert all(one == everywhere[0] for one in everywhere), everywhere
    assert outer().numpy().tolist() == [2.0 * hvd.size() + 2.0] * length


def test_a_process_set() -> None:
    only = hvd.ProcessSet([0])
    with pytest.raises(ValueError, match="has not been registered"):
        hvd.allreduce(tf.ones([2]), process_set=only)


def test_ranks_of_a_set_may_be_an_iterator() -> None:
    assert hvd.ProcessSet(reversed(range(3))).ranks == [0, 1, 2]


def test_all_ranks_know_the_size_of_a_process_set(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    if hvd.size() == 1:
        pytest.skip("every set has its only rank")
    first = hvd.add_process_set([0])
    assert int(run(lambda: hvd.size_op(first.process_set_id))) == 1
    hvd.remove_process_set(first)


def test_who_is_not_in_a_process_set_gets_the_error_of_an_op(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    if hvd.size() == 1:
        pytest.skip("every set has its only rank")
    first = hvd.add_process_set([0])
    if hvd.rank() == 0:
        assert hvd.allreduce(tf.ones([2]), op=hvd.Sum, process_set=first).numpy().tolist() == [1, 1]
    else:
        for call in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            with pytest.raises(tf.errors.InvalidArgumentError, match="not a member"):
                call(tf.ones([2]), process_set=first)
        with pytest.raises(tf.errors.InvalidArgumentError, match="not a member"):
            hvd.broadcast(tf.ones([2]), 0, process_set=first)
    hvd.remove_process_set(first)


def test_the_average_argument_of_old_scripts() -> None:
    with pytest.warns(DeprecationWarning, match="average"):
        found = hvd.allreduce(tf.ones([2]), average=False)
    assert found.numpy().tolist() == [float(hvd.size())] * 2
    with pytest.raises(ValueError, match="supersedes"):
        hvd.allreduce(tf.ones([2]), average=False, op=hvd.Sum)
