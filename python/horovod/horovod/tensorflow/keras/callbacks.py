"""What model.fit() calls."""

from horovod.keras.callbacks import *  # noqa: F403
from horovod.keras.callbacks import __all__ as __all__
