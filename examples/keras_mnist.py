"""A script of Horovod's for Keras: horovodrun -np 2 python keras_mnist.py

It runs on each back end of Keras 3, whichever KERAS_BACKEND names: tensorflow, torch or jax. The
images are Fashion-MNIST of Debian's package dataset-fashion-mnist.
"""

import argparse
import gzip

import keras
import numpy as np

import horovod.keras as hvd

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
parser.add_argument("--images", type=int, default=60_000, help="of the training set")
args = parser.parse_args()


def load(kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    def read(name: str, header: int) -> np.ndarray:
        with gzip.open(f"{args.data}/{kind}-{name}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    images = read("images-idx3", 16).reshape(-1, 28, 28, 1)[:count]
    return images.astype("float32") / 255, read("labels-idx1", 8)[:count].astype("int32")


hvd.init()
keras.utils.set_random_seed(42 + hvd.rank())
images, labels = load("train", args.images)
mine = slice(
    hvd.rank(), len(images) // hvd.size() * hvd.size(), hvd.size()
)  # As many on each rank.

model = keras.Sequential([
    keras.Input((28, 28, 1)),
    keras.layers.Conv2D(16, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D(),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D(),
    keras.layers.Flatten(), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10),
])  # fmt: skip

scaled_lr = 0.001 * hvd.size()
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(scaled_lr))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])

callbacks = [
    # All ranks begin with rank 0's weights.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # What is shown is of all ranks.
    hvd.callbacks.MetricAverageCallback(),
    # The learning rate grows from that of one rank.
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=1),
]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint("checkpoint.keras"))

history = model.fit(
    images[mine],
    labels[mine],
    batch_size=args.batch,
    epochs=args.epochs,
    callbacks=callbacks,
    verbose=1 if hvd.rank() == 0 else 0,
)

tests, answers = load("t10k", 10_000)
parts = slice(hvd.rank(), None, hvd.size())
_, right = model.evaluate(tests[parts], answers[parts], batch_size=500, verbose=0)
accuracy = float(hvd.allreduce(right))

weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
apart = float(np.abs(weights - np.asarray(hvd.broadcast(weights, 0))).max())
farthest = np.max(np.asarray(hvd.allgather([apart])))
if hvd.rank() == 0:
    first, last = (history.history["loss"][i] for i in (0, -1))
    print(
        f"demo: back_end={keras.backend.backend()} ranks={hvd.size()} accuracy={accuracy:.4f}"
        f" first_loss={first:.4f} last_loss={last:.4f} apart={farthest}"
    )
