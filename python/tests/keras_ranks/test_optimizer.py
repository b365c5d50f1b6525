"""DistributedOptimizer."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from kerases import array, back_end, is_keras_3, keras, ones, step

import horovod.keras as hvd

full = numpy.full


def sgd(**settings: Any) -> Any:
    return keras.optimizers.SGD(1.0, **settings)


def mine(value: float, *shape: int) -> Any:
    """Returns a gradient that is `value` more on each next rank."""
    return full(shape, value * (1 + hvd.rank()), "float32")


def mean() -> float:
    return (hvd.size() + 1) / 2


def test_it_applies_the_average_of_all_ranks() -> None:
    variables = [ones(3), ones(2, 2)]
    optimizer = hvd.DistributedOptimizer(sgd())
    step(optimizer, variables, [mine(1.0, 3), mine(2.0, 2, 2)])
    assert array(variables[0]) == pytest.approx(full(3, 1 - mean()))
    assert array(variables[1]) == pytest.approx(full((2, 2), 1 - 2 * mean()))


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({"op": hvd.Sum}, hvd.size),
        ({"gradient_predivide_factor": 2.0}, lambda: 1),
        ({"compression": hvd.Compression.fp16}, lambda: 1),
        ({"groups": 2}, lambda: 1),
    ],
)
def test_options_of_the_reduction(options: dict[str, Any], factor: Any) -> None:
    variable = ones(3)
    step(hvd.DistributedOptimizer(sgd(), **options), [variable], [mine(1.0, 3)])
    assert array(variable) == pytest.approx(full(3, 1 - factor() * mean()))


def test_gradients_travel_as_what_they_are_compressed_to() -> None:
    if hvd.size() == 1:
        pytest.skip("no gradient of one rank travels")
    variable = ones(3)
    optimizer = hvd.DistributedOptimizer(sgd(), compression=hvd.Compression.fp16)
    step(optimizer, [variable], [full(3, 1 / 3, "float32")])
    travelled = float(numpy.float16(1 / 3))
    assert array(variable) == pytest.approx(full(3, 1 - travelled), abs=1e-6)


def test_groups_are_lists_of_variables() -> None:
    variables = [ones(n) for n in (1, 2, 3)]
    groups = [[variables[2], variables[0]]]
    optimizer = hvd.DistributedOptimizer(sgd(), groups=groups, op=hvd.Sum)
    step(optimizer, variables, [mine(n, n) for n in (1, 2, 3)])
    for n, variable in zip((1, 2, 3), variables, strict=True):
        assert array(variable) == pytest.approx(full(n, 1 - n * mean() * hvd.size()))


@pytest.mark.skipif(back_end != "tensorflow", reason="horovod.tensorflow needs TensorFlow")
@pytest.mark.parametrize("passes", [1, 2])
def test_horovod_tensorflow_has_the_same(passes: int) -> None:
    import horovod.tensorflow as hvd_tensorflow

    own = sgd()
    optimizer = hvd_tensorflow.DistributedOptimizer(
        own, op=hvd.Sum, backward_passes_per_step=passes, groups=2, scale_local_gradients=False
    )
    assert optimizer is own
    shared, local = variables = [ones(3), ones(2)]
    optimizer.register_local_var(local)
    for _ in range(passes):
        step(optimizer, variables, [mine(1.0, 3), mine(1.0, 2)])
    assert array(shared) == pytest.approx(full(3, 1 - passes * mean() * hvd.size()))
    assert array(local) == pytest.approx(full(2, 1 - passes * (1 + hvd.rank())))
    with pytest.raises(ValueError, match="only supports Average and Sum"):
        hvd_tensorflow.DistributedOptimizer(sgd(), op=hvd.Adasum)


def test_it_clips_what_all_ranks_have() -> None:
    variable = ones(1)
    step(hvd.DistributedOptimizer(sgd(clipvalue=1.25)), [variable], [mine(1.0, 1)])
    assert array(variable) == pytest.approx(1 - min(1.25, mean()))


def test_it_stays_the_same_object_of_the_same_class() -> None:
    own = keras.optimizers.Adam(0.5, beta_1=0.25)
    config = own.get_config()
    optimizer = hvd.DistributedOptimizer(own)
    assert optimizer is own
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert optimizer.get_config() == config


def test_what_is_saved_of_it_is_its_own_class() -> None:
    plain = keras.optimizers.Adam(0.5)
    saved = keras.optimizers.serialize(plain)
    distributed = hvd.DistributedOptimizer(plain)
    assert keras.optimizers.serialize(distributed) == saved
    assert keras.optimizers.deserialize(saved).get_config() == distributed.get_config()


def test_from_config_makes_one_that_is_distributed() -> None:
    optimizer = hvd.DistributedOptimizer(sgd())
    copied = optimizer.from_config(optimizer.get_config())
    variable = ones(3)
    step(copied, [variable], [mine(1.0, 3)])
    assert array(variable) == pytest.approx(full(3, 1 - mean()))


@pytest.mark.parametrize("averages", [False, True])
def test_several_passes_are_one_step(averages: bool) -> None:
    variables = [ones(3), ones(1)]
    optimizer = hvd.DistributedOptimizer(
        sgd(), backward_passes_per_step=3, average_aggregated_gradients=averages
    )
    expected = 1.0
    for passed in range(1, 8):
        step(optimizer, variables, [mine(0.5, 3), mine(0.5, 1)])
        if passed % 3 == 0:
            expected -= 0.5 * mean() * (1 if averages else 3)
        assert array(variables[0]) == pytest.approx(full(3, expected)), passed
        assert array(variables[1]) == pytest.approx(full(1, expected)), passed
        # Keras 3 counts updates, as its schedules of learning rates want them.
        assert int(array(optimizer.iterations)) == (passed // 3 if is_keras_3 else passed)


def test_the_gradients_of_some_layers_stay_local() -> None:
    layers = [keras.layers.Dense(1, use_bias=False) for _ in range(2)]
    for layer in layers:
        layer.build((None, 1))
        layer.set_weights([numpy.ones((1, 1))])
    optimizer = hvd.PartialDistributedOptimizer(sgd(), local_layers=layers[0])
    local, shared = (layer.trainable_weights[0] for layer in layers)
    step(optimizer, [local, shared], [mine(1.0, 1, 1), mine(1.0, 1, 1)])
    assert array(local) == pytest.approx(1 - (1 + hvd.rank()) / hvd.size())
    assert array(shared) == pytest.approx(1 - mean())


def test_ranks_outside_of_a_process_set_are_alone() -> None:
    if hvd.size() == 1:
        pytest.skip("one rank is all of them")
    first = hvd.add_process_set([0])
    try:
        variable = ones(1)
        optimizer = hvd.DistributedOptimizer(sgd(), process_set=first)
        step(optimizer, [variable], [mine(1.0, 1)])
        assert array(variable) == pytest.approx(1 - (1 + hvd.rank()))
    finally:
        hvd.remove_process_set(first)


@pytest.mark.skipif(back_end != "tensorflow", reason="others have no sparse gradients here")
@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("passes", [1, 2])
def test_an_embedding(as_dense: bool, passes: int) -> None:
    if passes > 1 and not as_dense and not is_keras_3:
        pytest.skip("Keras 2 has no sums of sparse gradients: as_dense is asked for")
    model = keras.Sequential([keras.layers.Embedding(2 + hvd.size(), 1)])
    model.build((None, 1))
    model.set_weights([numpy.zeros((2 + hvd.size(), 1))])
    optimizer = hvd.DistributedOptimizer(
        sgd(), sparse_as_dense=as_dense, op=hvd.Sum, backward_passes_per_step=passes
    )
    model.compile(optimizer, loss=lambda _, y: y)
    for _ in range(passes):
        model.train_on_batch(numpy.array([[hvd.rank()]]), numpy.zeros((1, 1, 1)))
    of_each = [passes * -1.0] * hvd.size()
    assert model.get_weights()[0][:, 0] == pytest.approx([*of_each, 0.0, 0.0])


# -- what is refused ------------------------------------------------------------------------------


def test_an_optimizer_that_is_given_twice_is_refused() -> None:
    optimizer = hvd.DistributedOptimizer(sgd())
    with pytest.raises(ValueError, match="this SGD is one already"):
        hvd.DistributedOptimizer(optimizer)


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes an optimizer of Keras \d.*'adam' is none"):
        hvd.DistributedOptimizer("adam")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"op": hvd.Adasum}, "only supports Average and Sum"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "not supported with op != Average"),
        ({"backward_passes_per_step": 0}, "must be > 0"),
        ({"groups": -1}, "groups should be"),
        ({"process_set": hvd.ProcessSet([0])}, "has not been registered"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        hvd.DistributedOptimizer(sgd(), **options)


@pytest.mark.skipif(not is_keras_3, reason="Keras 2 has its sums outside of the optimizer")
def test_passes_of_an_optimizer_with_variables_are_refused() -> None:
    optimizer = sgd()
    optimizer.build([ones(1)])
    with pytest.raises(ValueError, match="has its variables already"):
        hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2)
