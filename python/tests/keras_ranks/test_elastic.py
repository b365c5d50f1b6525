"""Elastic states, and the callbacks that keep them, while no rank comes or goes."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from kerases import array, compiled, is_keras_3, keras, some_data

import horovod.keras as hvd
from horovod._keras.training import variables_of


def test_a_state_is_that_of_rank_0_and_goes_back_to_its_last_commit() -> None:
    model = compiled(keras.optimizers.SGD(0.1 * (1 + hvd.rank()), momentum=0.9))
    of_root = [array(hvd.broadcast(one, 0)) for one in model.get_weights()]
    state = hvd.elastic.KerasState(model, batch=20 + hvd.rank(), epoch=10 + hvd.rank())
    state.sync()
    assert (state.batch, state.epoch) == (20, 10)
    for own, expected in zip(model.get_weights(), of_root, strict=True):
        assert own == pytest.approx(expected)
    if is_keras_3:  # There the rate is one of the optimizer's variables.
        assert float(array(model.optimizer.learning_rate)) == pytest.approx(0.1)

    x, y = some_data()
    model.fit(x, y, verbose=0)
    state.batch = 21
    state.restore()
    assert state.batch == 20
    assert model.get_weights()[0] == pytest.approx(of_root[0])
    assert int(array(model.optimizer.iterations)) == 0

    model.fit(x, y, verbose=0)
    trained = model.get_weights()
    state.batch = 22
    state.commit()
    model.set_weights(of_root)
    state.batch = 23
    state.restore()
    assert state.batch == 22
    assert model.get_weights()[0] == pytest.approx(trained[0])
    assert any(numpy.abs(array(one)).sum() > 0 for one in variables_of(model.optimizer))


def test_a_model_without_variables_is_refused() -> None:
    model = compiled(keras.optimizers.SGD(0.1), is_built=False)
    with pytest.raises(ValueError, match=r"call model.build\(input_shape\) first"):
        hvd.elastic.KerasState(model)


class Notes:
    """Counts commits of what it looks like then."""

    def __init__(self) -> None:
        self.batch = 0
        self.epoch = 0
        self.commits: list[tuple[int, int]] = []

    def commit(self) -> None:
        self.commits.append((self.epoch, self.batch))


@pytest.mark.parametrize(("every", "expected"), [(1, 6), (2, 4)])
def test_callbacks_keep_batch_and_epoch(every: int, expected: int) -> None:
    x, y = some_data(32)  # Two batches.
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    state: Any = Notes()
    callbacks = [
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=every),
    ]
    model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=callbacks)
    assert (state.epoch, state.batch) == (2, 0)
    assert len(state.commits) == expected
    assert state.commits[-1] == (2, 0)
    assert state.commits[0] == ((0, 0) if every == 1 else (0, 1))
