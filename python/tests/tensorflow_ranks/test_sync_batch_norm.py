"""SyncBatchNormalization against a plain layer of Keras that has all ranks' samples."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd

Shape = tuple[int, ...]


def plain(**options: Any) -> Any:
    keras_3 = hasattr(tf.keras.layers.Layer, "stateless_call")
    return tf.keras.layers.BatchNormalization(**({} if keras_3 else {"fused": False}), **options)


def samples(rows: list[int], rest: Shape) -> list[Any]:
    random = numpy.random.RandomState(5)
    return [100 + random.randn(count, *rest) for count in rows]


def loss_of(y: Any, first: int) -> Any:
    """Differs by element, so that each one's gradient matters."""
    flat = tf.reshape(y, [-1])
    return tf.reduce_sum(flat**3 * tf.cast(tf.range(tf.size(flat)) + first, y.dtype))


def trained(layer: Any, x: Any, first: int, **options: Any) -> list[Any]:
    """Output, gradients of input and weights, and the running estimates."""

    def step(x: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, **options)
            loss = loss_of(y, first)
        return [y, *tape.gradient(loss, [x, *layer.trainable_weights])]

    found = step(tf.convert_to_tensor(x))
    return [*found, *[tf.convert_to_tensor(one) for one in layer.non_trainable_weights]]


@pytest.mark.parametrize(
    ("rest", "options"),
    [((3,), {}), ((4, 3), {"axis": 1}), ((2, 2, 3), {"scale": False})],
    ids=["rows", "axis", "images"],
)
@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
def test_it_is_one_layer_with_all_samples(
    run: Any, rest: Shape, options: dict[str, Any], uneven: bool
) -> None:
    parts = samples([2 + (rank if uneven else 0) for rank in range(hvd.size())], rest)
    begins = numpy.cumsum([0, *[part.size for part in parts]])
    rows = numpy.cumsum([0, *[len(part) for part in parts]])
    mine = slice(rows[hvd.rank()], rows[hvd.rank() + 1])
    options = {"dtype": "float64", **options}
    layer, alone = hvd.SyncBatchNormalization(**options), plain(**options)
    layer.build((None, *rest))

    def call(x: Any) -> list[Any]:
        return trained(layer, x, int(begins[hvd.rank()]))

    y, of_x, *others = run(call, parts[hvd.rank()])
    y_alone, of_x_alone, *others_alone = trained(alone, numpy.concatenate(parts), 0)
    near = {"rtol": 1e-6, "atol": 1e-6}
    numpy.testing.assert_allclose(y, y_alone[mine], **near)
    numpy.testing.assert_allclose(of_x, of_x_alone[mine], **near)
    count = len(layer.trainable_weights)
    for one, expected in zip(others[:count], others_alone[:count], strict=True):
        numpy.testing.assert_allclose(hvd.allreduce(one, op=hvd.Sum), expected, **near)
    for one, expected in zip(others[count:], others_alone[count:], strict=True):
        numpy.testing.assert_allclose(one, expected, **near)


def test_samples_behind_a_mask_do_not_count() -> None:
    parts = samples([2] * hvd.size(), (4, 3))
    masks = [numpy.arange(8).reshape(2, 4) % 4 <= rank for rank in range(hvd.size())]
    layer, alone = hvd.SyncBatchNormalization(), plain()
    layer(tf.constant(parts[hvd.rank()]), training=True, mask=tf.constant(masks[hvd.rank()]))
    seen = numpy.concatenate([part[mask] for part, mask in zip(parts, masks, strict=True)])
    alone(tf.constant(seen), training=True)
    for one, expected in zip(layer.weights, alone.weights, strict=True):
        numpy.testing.assert_allclose(one, expected, rtol=1e-4)


def test_in_a_model_that_keras_compiles() -> None:
    """Keras 3 would have XLA compile it, if no layer refused."""
    model = tf.keras.Sequential(
        [tf.keras.Input((3,)), hvd.SyncBatchNormalization(), hvd.SyncBatchNormalization()]
    )
    model.compile("sgd", "mse")
    x = samples([4], (3,))[0] * (hvd.rank() + 1)
    model.fit(x, x, epochs=1, verbose=0)
    told = hvd.allgather_object([weight.tolist() for weight in model.layers[0].get_weights()[2:]])
    assert all(one == told[0] for one in told)
    again = hvd.SyncBatchNormalization.from_config(model.layers[0].get_config())
    assert again.name == model.layers[0].name


def test_evaluation_asks_no_other_rank() -> None:
    if hvd.rank() == 0:
        hvd.SyncBatchNormalization()(tf.ones([2, 3]), training=False)


def test_fused_is_refused() -> None:
    for fused in (True, None):
        with pytest.raises(ValueError, match="does not support fused=True"):
            hvd.SyncBatchNormalization(fused=fused)
