"""compiled_tensorflow.py hvd|ring SAMPLES [PORT PORT]: allreduces in a tf.function, two ranks.

    horovodrun -np 2 python cpp/bench/compiled_tensorflow.py hvd 200

`hvd` is `import horovod.tensorflow`, corro's or Horovod's. `ring` is what TensorFlow has itself:
MultiWorkerMirroredStrategy, with its ring, at two ports of this host.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy
import tensorflow as tf
from compiled_cases import Body, measure


class Horovod:
    """Reduces by horovod.tensorflow."""

    def __init__(self) -> None:
        import horovod.tensorflow as hvd  # The other way does without.

        hvd.init()
        self.hvd, self.rank = hvd, hvd.rank()

    def compiled(self, body: Body) -> Body:
        function: Body = tf.function(body, autograph=False)
        return function

    def reduced(self, tensor: Any, name: str) -> Any:
        return self.hvd.allreduce(tensor, op=self.hvd.Sum, name=name)

    def put(self, values: numpy.ndarray) -> Any:
        return tf.constant(values)

    def get(self, tensor: Any) -> numpy.ndarray:
        values: numpy.ndarray = tensor.numpy()
        return values


class Ring(Horovod):
    """Reduces in the replicas of TensorFlow's own strategy."""

    def __init__(self, ports: Sequence[str]) -> None:
        self.rank, self.strategy = ring_of(ports)

    def compiled(self, body: Body) -> Body:
        def replicated(tensor: Any, share: Any) -> Any:
            return self.strategy.run(body, args=(tensor, share))

        return super().compiled(replicated)

    def reduced(self, tensor: Any, name: str) -> Any:  # noqa: ARG002
        # The identity, which copies nothing, has a device; an argument has none.
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(tensor))


def ring_of(ports: Sequence[str]) -> tuple[int, Any]:
    """Returns this rank and TensorFlow's own strategy, whose ranks are at these ports."""
    rank = int(os.environ["RANK"])
    place = {
        "cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
        "task": {"type": "worker", "index": rank},
    }
    os.environ["TF_CONFIG"] = json.dumps(place)
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    return rank, tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def main() -> None:
    way, samples, *ports = sys.argv[1:]
    measure(Horovod() if way == "hvd" else Ring(ports), int(samples))


if __name__ == "__main__":
    main()
