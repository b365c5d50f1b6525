"""model.fit() with DistributedOptimizer and the callbacks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest
from kerases import array, back_end, compiled, is_keras_3, keras, some_data

import horovod.keras as hvd
from horovod._keras.training import variables_of
from horovod.common.compression import NoneCompressor


def sgd(rate: float = 0.01) -> Any:
    return keras.optimizers.SGD(rate, momentum=0.9)


def everyones(values: Any) -> Any:
    """Returns all ranks' arrays of numbers, flat, one after the other."""
    flat = numpy.concatenate([numpy.ravel(one) for one in values]).astype("float64")
    return array(hvd.allgather(flat.reshape(1, -1)))


def assert_all_have_the_same(model: Any) -> None:
    optimizer = [array(one) for one in variables_of(model.optimizer)]
    rows = everyones([*model.get_weights(), *optimizer])
    for row in rows:
        assert row == pytest.approx(rows[0], abs=0.0)


def fit(model: Any, x: Any, y: Any, *callbacks: Any, epochs: int = 2, **options: Any) -> Any:
    """Trains on this rank's part of each batch."""
    mine = slice(hvd.rank(), None, hvd.size())
    first = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), *callbacks]
    return model.fit(
        x[mine],
        y[mine],
        batch_size=16 // hvd.size(),
        shuffle=False,
        epochs=epochs,
        verbose=0,
        callbacks=first,
        **options,
    )


def test_all_ranks_together_train_as_one_with_all_data() -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(sgd()))
    alone = compiled(sgd())
    alone.set_weights([array(hvd.broadcast(one, 0)) for one in model.get_weights()])
    fit(model, x, y, epochs=3)
    alone.fit(x, y, batch_size=16, shuffle=False, epochs=3, verbose=0)
    for own, expected in zip(model.get_weights(), alone.get_weights(), strict=True):
        assert own == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert_all_have_the_same(model)


def test_a_model_that_is_built_by_its_first_batch() -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.Adam()), is_built=False)
    fit(model, x, y)
    assert_all_have_the_same(model)


def test_where_only_one_rank_has_built_its_model() -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(sgd()), is_built=hvd.rank() == 0)
    fit(model, x, y)
    assert_all_have_the_same(model)


def test_training_in_one_batch_at_a_time() -> None:
    x, y = some_data(16 * hvd.size())
    model = compiled(hvd.DistributedOptimizer(sgd()))
    model.set_weights([array(hvd.broadcast(one, 0)) for one in model.get_weights()])
    mine = slice(hvd.rank(), None, hvd.size())
    losses = [float(model.train_on_batch(x[mine], y[mine])) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert_all_have_the_same(model)


def test_several_passes_a_step_while_training() -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2))
    fit(model, x, y)
    rows = everyones(model.get_weights())
    assert rows[-1] == pytest.approx(rows[0], abs=0.0)
    of_optimizer = {id(one) for one in variables_of(model.optimizer)}
    assert of_optimizer.isdisjoint(id(one) for one in model.weights)


@pytest.mark.skipif(back_end != "torch", reason="it is torch.compile that compiles there")
def test_torch_compiles_a_step_but_not_the_reduction_in_it() -> None:
    if hvd.size() == 1:
        pytest.skip("torch takes its time, and two ranks see the same")
    import torch

    is_traced = set()

    class Watching(NoneCompressor):
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            is_traced.add(torch.compiler.is_compiling())
            return NoneCompressor.compress(tensor)

    x, y = some_data()
    weights = []
    for jit_compile in (True, False):
        optimizer = hvd.DistributedOptimizer(sgd(), compression=Watching)
        model = compiled(optimizer, jit_compile=jit_compile)
        fit(model, x, y)
        assert_all_have_the_same(model)
        weights.append(everyones(model.get_weights()))
    assert weights[0] == pytest.approx(weights[1], rel=1e-4, abs=1e-5)
    assert is_traced == {False}


def test_mixed_precision() -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        x, y = some_data()
        model = compiled(hvd.DistributedOptimizer(sgd(0.001)))
        history = fit(model, x, y, hvd.callbacks.MetricAverageCallback(), epochs=3)
        assert history.history["loss"][-1] < history.history["loss"][0]
        assert_all_have_the_same(model)
    finally:
        keras.mixed_precision.set_global_policy("float32")


@pytest.mark.skipif(not is_keras_3, reason="Keras 2 looks for overflows behind the reduction")
def test_scaling_of_losses_around_a_distributed_optimizer_is_refused() -> None:
    x, y = some_data()
    distributed = hvd.DistributedOptimizer(sgd())
    model = compiled(keras.optimizers.LossScaleOptimizer(distributed))
    with pytest.raises(ValueError, match="a LossScaleOptimizer is around a DistributedOptimizer"):
        fit(model, x, y)


# -- callbacks ------------------------------------------------------------------------------------


def test_a_model_that_each_rank_trains_alone_is_a_warning_of_rank_0() -> None:
    x, y = some_data()
    clone = keras.models.clone_model(compiled(hvd.DistributedOptimizer(sgd())))
    clone.compile(sgd(), "mse")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(clone, x, y)
    said = [str(one.message) for one in caught if "horovod.keras" in str(one.message)]
    assert len(said) == (1 if hvd.rank() == 0 and hvd.size() > 1 else 0)
    assert all("SGD is no DistributedOptimizer" in one for one in said)


def test_a_model_with_a_step_of_its_own_is_no_warning() -> None:
    class Own(keras.Sequential):  # type: ignore[misc]
        def train_step(self, *args: Any, **kwargs: Any) -> Any:
            return super().train_step(*args, **kwargs)

    x, y = some_data()
    model = Own([keras.layers.Dense(1)])
    model.build((None, 8))
    model.compile(sgd(), "mse")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, x, y, epochs=1)
    assert not [one for one in caught if "horovod.keras" in str(one.message)]


def test_local_variables_are_not_broadcast() -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(sgd(0.0)))
    before = [array(hvd.broadcast(one, hvd.size() - 1)) for one in model.get_weights()]
    own = model.get_weights()[0]
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(
        hvd.size() - 1, local_variables=model.layers[0].kernel
    )
    model.fit(x, y, epochs=1, verbose=0, callbacks=[callback])
    after = model.get_weights()
    assert after[0] == pytest.approx(own)
    assert after[2] == pytest.approx(before[2])


def test_metrics_are_averaged() -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(sgd(0.0)))
    y = y + hvd.rank()  # Losses of their own.
    plain = fit(model, x, y, epochs=1).history["loss"][0]
    averaged = fit(model, x, y, hvd.callbacks.MetricAverageCallback(), epochs=1).history["loss"][0]
    assert averaged == pytest.approx(float(hvd.allreduce(plain)))


def test_other_metrics_on_a_rank_are_an_error_on_all() -> None:
    if hvd.size() == 1:
        pytest.skip("one rank has the same metrics as itself")
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(sgd()))
    validation = {} if hvd.rank() else {"validation_data": (x, y)}
    with pytest.raises(ValueError, match="rank 0 has val_loss, and rank 1 has not"):
        fit(model, x, y, hvd.callbacks.MetricAverageCallback(), **validation)


class Rates(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """Notes the learning rate of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self.seen.append(float(array(self.model.optimizer.learning_rate)))


def test_warm_up_and_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = some_data()  # Four batches.
    model = compiled(hvd.DistributedOptimizer(sgd(0.02)))
    rates = Rates()
    history = fit(
        model,
        x,
        y,
        hvd.callbacks.LearningRateWarmupCallback(0.02, warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(0.02, 0.5, start_epoch=2, end_epoch=4),
        hvd.callbacks.LearningRateScheduleCallback(0.02, lambda _: 0.1, start_epoch=4),
        rates,
        epochs=5,
    )
    size = hvd.size()
    warming = [0.02 / size * (1 + (size - 1) * (batch + 1) / 8) for batch in range(8)]
    expected = [*warming, *[0.02] * 4, *[0.01] * 4, *[0.002] * 4]
    assert rates.seen == pytest.approx(expected, rel=1e-5)
    assert history.history["lr"] == pytest.approx([rates.seen[i] for i in (3, 7, 11, 15, 19)])
    says = "Epoch 2: finished gradual learning rate warmup to 0.02." in capsys.readouterr().out
    assert says == (hvd.rank() == 0)


def test_momentum_is_corrected() -> None:
    """A step of a tenth of the rate, with a tenth of the momentum, is a tenth of the old one's."""
    x, y = some_data(16)
    moved = []
    for correction in (True, False):
        model = compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=1.0)))
        schedule = hvd.callbacks.LearningRateScheduleCallback(
            0.01, lambda epoch: 1.0 if epoch == 0 else 1e-6, momentum_correction=correction
        )
        fit(model, x, y, schedule, epochs=1)
        before = model.get_weights()
        fit(model, x, y, schedule, epochs=2, initial_epoch=1)
        moved.append(float(numpy.abs(model.get_weights()[2] - before[2]).max()))
    assert moved[0] < 1e-5
    assert moved[1] > 1e-3


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("BroadcastGlobalVariablesCallback", [0]),
        ("MetricAverageCallback", []),
        ("LearningRateWarmupCallback", [0.1]),
    ],
)
def test_a_callback_that_is_given_twice_is_refused(name: str, arguments: list[Any]) -> None:
    x, y = some_data()
    make = getattr(hvd.callbacks, name)
    model = compiled(hvd.DistributedOptimizer(sgd()))
    for pair in ([make(*arguments), make(*arguments)], [make(*arguments)] * 2):
        with pytest.raises(ValueError, match=f"{name} is given twice"):
            model.fit(x, y, verbose=0, callbacks=pair)
    once = make(*arguments)
    model.fit(x, y, verbose=0, callbacks=[once])
    model.fit(x, y, verbose=0, callbacks=[once])  # In two calls it is no mistake.


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file in a directory that all ranks know."""
    own = str(tmp_path_factory.mktemp("shared"))
    width = 200
    sent = hvd.broadcast(numpy.frombuffer(own.ljust(width).encode(), "uint8").astype("int32"), 0)
    name = array(sent).astype("uint8").tobytes().decode().strip()
    return Path(name) / ("model.keras" if is_keras_3 else "model.h5")


def test_a_loaded_model_goes_on_where_the_saved_one_was(file: Path) -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(sgd()))
    fit(model, x, y)
    if hvd.rank() == 0:
        model.save(file)
        plain = keras.models.load_model(file)
        assert type(plain.optimizer) is keras.optimizers.SGD or is_keras_3
        assert not hasattr(plain.optimizer, "register_local_var")
    hvd.broadcast(0, 0)  # It is written.
    loaded = hvd.load_model(str(file))
    assert hasattr(loaded.optimizer, "register_local_var")
    for own, expected in zip(
        variables_of(loaded.optimizer), variables_of(model.optimizer), strict=True
    ):
        assert array(own) == pytest.approx(array(expected))
    fit(model, x, y)
    fit(loaded, x, y)
    for own, expected in zip(loaded.get_weights(), model.get_weights(), strict=True):
        assert own == pytest.approx(expected, rel=1e-5)


def test_a_file_that_one_rank_has_loaded_is_broadcast(file: Path) -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(sgd()))
    fit(model, x, y)
    if hvd.rank() == 0:
        model.save(file)
        resumed = hvd.load_model(str(file))
    else:
        resumed = compiled(hvd.DistributedOptimizer(sgd()))
    fit(resumed, x, y)
    fit(model, x, y)
    for own, expected in zip(resumed.get_weights(), model.get_weights(), strict=True):
        assert own == pytest.approx(expected, rel=1e-4, abs=1e-5)


class Own(keras.optimizers.SGD):  # type: ignore[misc,name-defined]
    """An optimizer that Keras does not know."""


def test_a_model_with_an_optimizer_that_is_not_keras_own(file: Path) -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(Own(0.01)))
    fit(model, x, y)
    if hvd.rank() == 0:
        model.save(file)
    hvd.broadcast(0, 0)
    loaded = hvd.load_model(str(file), custom_optimizers=[Own])
    assert isinstance(loaded.optimizer, Own)
    fit(loaded, x, y)
    assert_all_have_the_same(loaded)


def test_the_best_model_is_saved_by_rank_0(file: Path, tmp_path: Path) -> None:
    x, y = some_data()
    model = compiled(hvd.DistributedOptimizer(sgd()))
    own = tmp_path / file.name
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    with pytest.raises(ValueError, match="pass filepath"):
        fit(model, x, y, best)
    best.filepath = str(own)
    fit(model, x, y, best)
    assert own.exists() == (hvd.rank() == 0)
