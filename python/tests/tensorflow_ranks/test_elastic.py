"""Elastic states of horovod.tensorflow on every rank; test_tensorflow.py kills ranks."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from corro.tensorflow.causes import cause_of

v1 = tf.compat.v1


def test_a_state_of_variables() -> None:
    own = float(hvd.rank() + 1)
    variables = [tf.Variable([own, own]), tf.Variable(int(own))]
    state: Any = hvd.elastic.TensorFlowState(variables, batch=hvd.rank(), seen=[hvd.rank()])
    state.sync()
    assert [variables[0].numpy().tolist(), int(variables[1])] == [[1.0, 1.0], 1]
    assert (state.batch, state.seen) == (0, [0])
    variables[0].assign([5.0, 6.0])
    state.batch = 7
    state.commit()
    variables[0].assign([0.0, 0.0])
    state.batch = 8
    state.seen.append(9)
    state.restore()
    assert variables[0].numpy().tolist() == [5.0, 6.0]
    assert (state.batch, state.seen) == (7, [0])


def test_a_state_of_a_session() -> None:
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        weights = v1.get_variable("weights", initializer=[float(hvd.rank())], use_resource=True)
        more = v1.assign_add(weights, [1.0])
        session.run(v1.global_variables_initializer())
        state: Any = hvd.elastic.TensorFlowState(session=session, batch=hvd.rank())
        graph.finalize()  # No op is made from here on.
        for batch in range(2):
            state.sync()
            assert state.batch == batch
            found = session.run(more)
            state.batch += 5
            state.restore()
            assert (session.run(weights), found, state.batch) == ([0.0], [1.0], batch)
            state.batch += 1 + hvd.rank()


def model_of(value: float) -> Any:
    initializer = tf.keras.initializers.Constant(value)
    model = tf.keras.Sequential(
        [tf.keras.Input((2,)), tf.keras.layers.Dense(1, kernel_initializer=initializer)]
    )
    model.compile(tf.keras.optimizers.Adam(0.1 * (value + 1)), "mse")
    return model


def test_a_state_of_a_model_and_its_optimizer() -> None:
    model = model_of(hvd.rank())
    x = numpy.ones([4, 2], numpy.float32)
    if hvd.rank() == 0:  # The others have just joined, and have never made a step.
        model.fit(x, x[:, :1], epochs=1, verbose=0)
    state: Any = hvd.elastic.TensorFlowKerasState(model, epoch=hvd.rank())
    state.sync()
    before = [variable.numpy() for variable in state._of_both()]
    told = hvd.allgather_object([value.tolist() for value in before])
    assert all(one == told[0] for one in told)
    assert len(before) >= 7  # Weights, iterations, learning rate, two moments for each weight.
    model.fit(x, x[:, :1], epochs=1, verbose=0)
    assert float(before[0][0, 0]) != float(model.get_weights()[0][0, 0])
    state.restore()
    for variable, value in zip(state._of_both(), before, strict=True):
        numpy.testing.assert_array_equal(variable.numpy(), value)


def test_states_say_what_they_lack() -> None:
    with pytest.raises(ValueError, match="no variables are given"):
        hvd.elastic.TensorFlowState([])
    with tf.Graph().as_default(), pytest.raises(ValueError, match="need the argument `session`"):
        hvd.elastic.TensorFlowState([v1.get_variable("some", [1], use_resource=True)])
    with pytest.raises(ValueError, match="has no optimizer"):
        hvd.elastic.TensorFlowKerasState(tf.Module())
    with pytest.raises(ValueError, match="must be built first"):
        hvd.elastic.TensorFlowKerasState(tf.keras.Sequential([tf.keras.layers.Dense(1)]))


def test_what_users_and_other_ops_raise_stays_as_it_is() -> None:
    error = tf.errors.UnknownError(None, None, "of the user's")
    assert cause_of(error) is None

    @hvd.elastic.run
    def train(_: Any) -> None:
        raise error

    with pytest.raises(tf.errors.UnknownError, match="of the user's"):
        train(hvd.elastic.TensorFlowState([tf.Variable(1.0)]))
