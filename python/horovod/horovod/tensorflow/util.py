"""What scripts and tests of Horovod ask about TensorFlow."""

from __future__ import annotations

import tensorflow as tf


def _executing_eagerly() -> bool:
    """Returns whether what is called now is done now, and not put into a graph."""
    return bool(tf.executing_eagerly())
