"""The gradients that a tape of horovod.tensorflow returns, by its options, on every rank."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd


def mean(value: Any) -> Any:
    return sum(value(rank) for rank in range(hvd.size())) / hvd.size()


def gradients(sources: list[Any], partial: bool = False, **options: Any) -> list[Any]:
    """Of the sum of all sources' elements, times this rank's number plus one."""
    with tf.GradientTape() as tape:
        for source in sources:
            tape.watch(source)
        loss = tf.add_n([tf.reduce_sum(source) for source in sources]) * (hvd.rank() + 1.0)
    make = hvd.PartialDistributedGradientTape if partial else hvd.DistributedGradientTape
    found: list[Any] = make(tape, **options).gradient(loss, sources)
    return found


def three() -> list[Any]:
    return [tf.Variable(tf.ones([length])) for length in (1, 2, 3)]


@pytest.mark.parametrize("groups", [None, 1, 2, 5, "lists"], ids=str)
def test_groups_change_no_gradient(run: Any, groups: Any) -> None:
    sources = three()
    if groups == "lists":
        groups = [[sources[2], sources[0]]]
    for one, source in zip(run(lambda: gradients(sources, groups=groups)), sources, strict=True):
        numpy.testing.assert_allclose(one, mean(lambda rank: rank + 1) * tf.ones_like(source))


def test_groups_are_units_of_a_graph() -> None:
    sources = three()

    def units(groups: Any) -> list[int]:
        graph = tf.function(lambda: gradients(sources, groups=groups)).get_concrete_function().graph
        ops = [op for op in graph.get_operations() if op.type == "CorroAllreduce"]
        return sorted(len(op.inputs) for op in ops)

    assert units(1) == [3]
    assert units(2) == [1, 2]
    assert units([[sources[0], sources[2]]]) == [1, 2]


def test_wrong_groups_are_refused() -> None:
    for groups in (0, -1):
        with pytest.raises(ValueError, match="groups should be a positive number"):
            gradients(three(), groups=groups)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        gradients(three(), num_groups=2)


def test_an_average_is_divided_before_and_after(run: Any) -> None:
    sources = three()
    found = run(lambda: gradients(sources, gradient_predivide_factor=4.0)[1])
    numpy.testing.assert_allclose(found, mean(lambda rank: rank + 1) * tf.ones([2]))
    averaging = tf.function(lambda: gradients(sources, gradient_predivide_factor=4.0))
    ops = averaging.get_concrete_function().graph.get_operations()
    factors = {
        (op.get_attr("prescale_factor"), op.get_attr("postscale_factor"))
        for op in ops
        if op.type == "CorroAllreduce"
    }
    assert factors == {(0.25, 4.0)}
    with pytest.raises(ValueError, match="gradient_predivide_factor"):
        gradients(three(), gradient_predivide_factor=4.0, op=hvd.Sum)


def test_generic_names_are_those_of_places() -> None:
    sources = three()

    def graph() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(source) for source in sources])
        tape = hvd.DistributedGradientTape(tape, groups=3)
        return tape.gradient(loss, sources, use_generic_names=True)

    made = tf.function(graph).get_concrete_function().graph
    names = {op.name for op in made.get_operations() if op.type == "CorroAllreduce"}
    assert names == {"grad_0", "grad_1", "grad_2"}


@pytest.mark.parametrize("scales", [True, False], ids=["scaled", "not_scaled"])
def test_local_sources_keep_their_gradients(run: Any, scales: bool) -> None:
    a, b, table = three()[0], tf.Variable([1.0, 2.0]), tf.Variable(tf.ones([4, 2]))

    def graph() -> Any:
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(a) + tf.reduce_sum(b) + tf.reduce_sum(tf.gather(table, [1]))
            loss *= hvd.rank() + 1.0
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scales)
        tape.register_local_source(b)
        tape.register_local_source(table)
        local, of_all = tape.get_local_and_global_gradients(loss, [a, b, table])
        assert [source is b or source is table for source, _ in local] == [True, True]
        assert [source is a for source, _ in of_all] == [True]
        assert isinstance(local[1][1], tf.IndexedSlices)
        return of_all[0][1], local[0][1], tf.convert_to_tensor(local[1][1])

    own = (hvd.rank() + 1.0) / (hvd.size() if scales else 1)
    reduced, kept, sparse = run(graph)
    numpy.testing.assert_allclose(reduced, [mean(lambda rank: rank + 1)])
    numpy.testing.assert_allclose(kept, [own, own])
    numpy.testing.assert_allclose(sparse[1], [own, own])


def test_local_layers_keep_their_gradients(run: Any) -> None:
    local, others = tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)
    x = tf.ones([4, 3]) * (hvd.rank() + 1.0)

    def step() -> Any:
        tape = hvd.PartialDistributedGradientTape(
            tf.GradientTape(), local_layers=local, scale_local_gradients=False
        )
        with tape:  # The layers get their weights in here.
            loss = tf.reduce_sum(others(local(x)))
        return tape.gradient(loss, [local.trainable_weights, others.trainable_weights])

    (_, bias), (_, bias_of_all) = run(step)
    weights = tf.reduce_sum(others.weights[0], 1)  # Each rank has begun with others.
    numpy.testing.assert_allclose(bias, 4 * weights, rtol=1e-6)
    numpy.testing.assert_allclose(bias_of_all, [4.0])
    with pytest.raises(ValueError, match="Layer type, not int"):
        gradients(three(), partial=True, local_layers=[local, 3])


def test_a_rank_outside_of_the_set_keeps_its_gradients(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hvd.size() < 3:
        pytest.skip("a set of some of the ranks has two at least")
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    some = hvd.add_process_set([0, 1])
    sources = three()
    found = run(lambda: gradients(sources, process_set=some)[0])
    assert hvd.remove_process_set(some)
    numpy.testing.assert_allclose(found, [1.5 if hvd.rank() < 2 else hvd.rank() + 1])


@pytest.mark.parametrize("wrap", [hvd.DistributedGradientTape, hvd.PartialDistributedGradientTape])
def test_a_tape_that_is_given_twice_is_refused(wrap: Any) -> None:
    tape = hvd.DistributedGradientTape(tf.GradientTape())
    with pytest.raises(ValueError, match="this tape is one already"):
        wrap(tape)


def test_a_barrier_waits_for_all(run: Any, tmp_path: Any) -> None:
    folder = type(tmp_path)(hvd.broadcast_object(str(tmp_path), 0))
    (folder / str(hvd.rank())).touch()

    def barrier() -> None:
        hvd.barrier()

    run(barrier)
    assert len(list(folder.iterdir())) == hvd.size()
    run(barrier)
