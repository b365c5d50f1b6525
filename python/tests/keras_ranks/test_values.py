"""Collectives on values."""

from __future__ import annotations

import numpy
import pytest
from kerases import array, back_end

import horovod.keras as hvd
from horovod.common.exceptions import HorovodInternalError


def test_allreduce() -> None:
    own = numpy.full((2, 3), hvd.rank(), "float32")
    total = sum(range(hvd.size()))
    assert array(hvd.allreduce(own)) == pytest.approx(numpy.full((2, 3), total / hvd.size()))
    summed = array(hvd.allreduce(own, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0))
    assert summed == pytest.approx(numpy.full((2, 3), 6.0 * total))
    assert float(hvd.allreduce(float(hvd.rank()), name="number")) == total / hvd.size()


def test_other_reductions() -> None:
    own = numpy.full(2, 1.0 + hvd.rank(), "float32")
    assert array(hvd.allreduce(own, op=hvd.Max)) == pytest.approx(hvd.size())
    assert array(hvd.allreduce(own, op=hvd.Min)) == pytest.approx(1.0)


def test_allgather_of_rows_of_different_numbers() -> None:
    own = numpy.full((hvd.rank() + 1, 2), hvd.rank())
    expected = [[rank, rank] for rank in range(hvd.size()) for _ in range(rank + 1)]
    assert array(hvd.allgather(own)).tolist() == expected


def test_broadcast() -> None:
    root = hvd.size() - 1
    assert array(hvd.broadcast([hvd.rank(), 7], root)).tolist() == [root, 7]


def test_reducescatter() -> None:
    own = numpy.full((hvd.size(), 2), hvd.rank() + 1.0, "float32")
    average = (hvd.size() + 1) / 2
    assert array(hvd.reducescatter(own)) == pytest.approx(numpy.full((1, 2), average))
    summed = numpy.full((1, 2), average * hvd.size())
    assert array(hvd.reducescatter(own, op=hvd.Sum)) == pytest.approx(summed)


def test_reducescatter_adds_up_alone() -> None:
    with pytest.raises(HorovodInternalError, match=r"only hvd\.Average and hvd\.Sum"):
        hvd.reducescatter(numpy.ones(4, "float32"), op=hvd.Max)


def test_global_variables_are_those_of_a_graph() -> None:
    with pytest.raises(RuntimeError, match=r"graph|eager"):
        hvd.broadcast_global_variables(0)


@pytest.mark.skipif(back_end != "tensorflow", reason="horovod.tensorflow needs TensorFlow")
def test_scripts_of_tf_keras_find_the_same() -> None:
    import horovod.tensorflow.keras as of_tensorflow
    import horovod.tensorflow.keras.callbacks as its_callbacks

    assert of_tensorflow.DistributedOptimizer is hvd.DistributedOptimizer
    assert its_callbacks.MetricAverageCallback is hvd.callbacks.MetricAverageCallback
