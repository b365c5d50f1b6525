"""Scripts of TensorFlow 1: graphs, monitored sessions, optimizers of tf.compat.v1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd

v1 = tf.compat.v1


def train(steps: int, folder: str | None) -> Any:
    """The script that Horovod became known by, with a model of one layer."""
    random = numpy.random.RandomState(hvd.rank())
    with tf.Graph().as_default():
        images = v1.placeholder(tf.float32, [None, 3])
        labels = v1.placeholder(tf.float32, [None, 1])
        start = tf.fill([3, 1], float(hvd.rank() + 1))
        weights = v1.get_variable("weights", initializer=start, use_resource=True)
        loss = tf.reduce_mean((tf.matmul(images, weights) - labels) ** 2)
        optimizer = v1.train.AdagradOptimizer(0.1 * hvd.size())
        optimizer = hvd.DistributedOptimizer(optimizer)
        step = v1.train.get_or_create_global_step()
        train_op = optimizer.minimize(loss, global_step=step)
        hooks = [
            hvd.BroadcastGlobalVariablesHook(0),
            v1.train.StopAtStepHook(last_step=steps),
        ]
        config = v1.ConfigProto()
        config.gpu_options.allow_growth = True
        config.gpu_options.visible_device_list = str(hvd.local_rank())
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=folder if hvd.rank() == 0 else None, config=config, hooks=hooks
        ) as session:
            while not session.should_stop():
                x = random.randn(8, 3).astype(numpy.float32)
                y = (x @ [[1.0], [2.0], [3.0]]).astype(numpy.float32)
                _, found, at = session.run([train_op, weights, step], {images: x, labels: y})
    return found, int(at)


def test_a_session_starts_many_collectives_in_another_order_on_each_rank() -> None:
    """More than there are processors; those that a slow op holds back are others on each rank."""
    numbers = range(40)
    with tf.Graph().as_default():
        slow = tf.random.normal([400, 400])
        for _ in range(20):
            slow = tf.tanh(slow @ slow)
        gathered = []
        for i in numbers:
            late = i % hvd.size() == hvd.rank()
            with tf.control_dependencies([slow] if late else []):
                value = tf.fill([1], float(i))
            gathered.append(hvd.allgather(value, name=f"gathered{i}"))
        with v1.Session() as session:
            found = session.run(gathered)
    assert [one.tolist() for one in found] == [[i] * hvd.size() for i in numbers]


def test_a_monitored_session_trains_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    folder = hvd.broadcast_object(str(tmp_path), 0)
    found, at = train(20, folder)
    assert at in (19, 20)
    everywhere = hvd.allgather_object(found.tolist())
    assert all(one == everywhere[0] for one in everywhere)
    again, at = train(60, folder)  # Only rank 0 has the checkpoint.
    assert at in (59, 60)
    everywhere = hvd.allgather_object(again.tolist())
    assert all(one == everywhere[0] for one in everywhere)
    right = numpy.array([[1.0], [2.0], [3.0]])
    assert abs(again - right).max() < abs(found - right).max()


def test_an_optimizer_keeps_what_it_has() -> None:
    with tf.Graph().as_default():
        weights = v1.get_variable("weights", [2], use_resource=True)
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.1, 0.9))
        assert isinstance(optimizer, v1.train.Optimizer)
        optimizer.minimize(tf.reduce_sum(weights))
        assert optimizer.get_slot_names() == ["momentum"]
        assert optimizer.get_slot(weights, "momentum") is not None
        assert len(optimizer.variables()) == 1


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_an_optimizer_that_is_given_twice_is_refused(op: Any) -> None:
    distributed = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), op=op)
    with pytest.raises(ValueError, match=r"this .* is one already: give it an optimizer once"):
        hvd.DistributedOptimizer(distributed)


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(TypeError, match="takes an optimizer of Keras"):
        hvd.DistributedOptimizer(object())
