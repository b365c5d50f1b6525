"""keras_ways.py WAY STEPS [PORT PORT]: what other ranks add to a step of model.fit(), two ranks.

    KERAS_BACKEND=torch horovodrun -np 2 python cpp/bench/keras_ways.py hvd 6

Keras is that of the environment, on KERAS_BACKEND; TF_USE_LEGACY_KERAS=1 takes tf_keras. WAY is
`hvd`, `import horovod.keras`, corro's or Horovod's, or what a back end has itself: `ring`, `ddp` or
`gloo`. STEPS are those of one turn. If a back end's own way fails, which is seen on all ranks, they
print {"problem": "ValueError: ..."} in place of what keras_cases.py says.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from keras_cases import (
    BATCH,
    MODELS,
    RANKS,
    RATE,
    Ended,
    Shape,
    Way,
    calls,
    compiled,
    fit,
    keras,
    measure,
)


class Horovod:
    """horovod.keras: nothing but the optimizer differs from the training of one rank."""

    def __init__(self) -> None:
        import horovod.keras as hvd  # The other ways do without.

        hvd.init()
        self.hvd, self.rank = hvd, hvd.rank()

    def alone(self, shapes: Sequence[Shape]) -> Any:
        return compiled(shapes, keras.optimizers.SGD(RATE))

    def together(self, shapes: Sequence[Shape]) -> Any:
        return compiled(shapes, self.hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)))

    def weigh(self, model: Any, weights: Sequence[Any]) -> None:
        model.set_weights(weights)

    def train_alone(self, model: Any, batch: Any, steps: int, ended: Ended) -> None:
        fit(model, batch, steps, ended)

    def train(self, model: Any, batch: Any, steps: int, ended: Ended) -> None:
        fit(model, batch, steps, ended)


class Ring(Horovod):
    """TensorFlow's MultiWorkerMirroredStrategy, with its ring, at two ports of this host."""

    def __init__(self, *ports: str) -> None:
        from compiled_tensorflow import ring_of

        self.rank, self.strategy = ring_of(ports)

    def together(self, shapes: Sequence[Shape]) -> Any:
        with self.strategy.scope():
            return self.alone(shapes)

    def train(self, model: Any, batch: Any, steps: int, ended: Ended) -> None:
        import tensorflow as tf

        # Of a batch of all ranks' size each rank takes a part, and the next part in the next step.
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        data = tf.data.Dataset.from_tensors(batch).repeat().unbatch().batch(RANKS * BATCH)
        data = data.with_options(options)
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[calls(ended)])


class Ddp(Horovod):
    """torch's DistributedDataParallel over Gloo around a model of Keras, in a loop of torch's, as
    Keras's guide has it: fit() knows nothing of it."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        self.torch, self.rank = torch, dist.get_rank()

    def together(self, shapes: Sequence[Shape]) -> Any:
        model = self.alone(shapes)
        self.parallel = self.torch.nn.parallel.DistributedDataParallel(model)
        return model

    def train_alone(self, model: Any, batch: Any, steps: int, ended: Ended) -> None:
        torch = self.torch
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        x, y = map(torch.from_numpy, batch)
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            ended()

    def train(self, model: Any, batch: Any, steps: int, ended: Ended) -> None:  # noqa: ARG002
        self.train_alone(self.parallel, batch, steps, ended)


class Gloo(Horovod):
    """keras.distribution.DataParallel over two processes of JAX, with its Gloo, which meet at a
    port of this host."""

    def __init__(self, port: str) -> None:
        import jax

        self.rank = int(os.environ["RANK"])
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        keras.distribution.initialize(f"127.0.0.1:{port}", RANKS, self.rank)
        devices = keras.distribution.list_devices()
        self.parallel = keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False)

    def together(self, shapes: Sequence[Shape]) -> Any:
        with self.parallel.scope():
            return self.alone(shapes)

    def weigh(self, model: Any, weights: Sequence[Any]) -> None:
        with self.parallel.scope():
            model.set_weights(weights)

    def train(self, model: Any, batch: Any, steps: int, ended: Ended) -> None:
        with self.parallel.scope():
            fit(model, batch, steps, ended)


OWN_WAYS = {"ring": Ring, "ddp": Ddp, "gloo": Gloo}


def main() -> None:
    name, steps, *ports = sys.argv[1:]
    if name == "hvd":
        measure_all(Horovod(), int(steps))
        return
    try:
        measure_all(OWN_WAYS[name](*ports), int(steps))
    except Exception as problem:
        text = f"{type(problem).__name__}: {problem}".splitlines()[0]
        print(json.dumps({"problem": text}), flush=True)


def measure_all(way: Way, steps: int) -> None:
    for case in MODELS:
        measure(way, case, steps)


if __name__ == "__main__":
    main()
