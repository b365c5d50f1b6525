"""horovod.tensorflow does what every front end does: eager, and as a tf.function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from conformance.front_end import FLOATS, FrontEnd, Horovod, Values
from conformance.verbs import Verbs

import horovod.tensorflow as hvd


class TensorFlow(Horovod):
    dtypes = (*FrontEnd.dtypes, "bfloat16")
    differs = tf.errors.FailedPreconditionError
    refusals = (ValueError, tf.errors.OpError)

    def make(self, values: Values, dtype: str) -> Any:
        return tf.cast(tf.constant(values), dtype)

    def read(self, x: Any) -> Values:
        wide = tf.float64 if self.dtype(x) in (*FLOATS, "bfloat16") else tf.int64
        return tf.cast(x, wide).numpy()

    def dtype(self, x: Any) -> str:
        return str(x.dtype.name)

    def transposed(self, x: Any) -> Any:
        return tf.transpose(x)

    def text(self, error: Any) -> str:
        """Without what TensorFlow says of the graph."""
        said = next(line for line in error.message.splitlines() if "Mismatched" in line)
        return str(said.rpartition("}} ")[2])


class InFunctions(TensorFlow):
    refusals = (Exception,)  # What tracing raises, AutoGraph wraps in a class of its own.

    def run(self, function: Callable[..., Any], *arrays: Any) -> Any:
        return tf.function(function)(*arrays)

    def join(self) -> int:
        return int(self.run(self.module.join))

    def barrier(self) -> None:
        def wait() -> None:
            self.module.barrier()  # In a graph it returns an op, which a tf.function cannot.

        self.run(wait)


class TestEager(Verbs):
    front = TensorFlow(hvd)


class TestFunctions(Verbs):
    front = InFunctions(hvd)
