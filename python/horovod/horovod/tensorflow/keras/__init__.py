"""horovod.keras, as scripts of tf.keras import it: import horovod.tensorflow.keras as hvd"""

from horovod.keras import *  # noqa: F403
from horovod.keras import __all__ as __all__
