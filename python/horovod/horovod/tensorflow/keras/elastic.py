"""Elastic training of Keras's models."""

from horovod.keras.elastic import *  # noqa: F403
from horovod.keras.elastic import __all__ as __all__
