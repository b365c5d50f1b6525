"""The back end of the Keras that is used; no other one is imported."""

from __future__ import annotations

from importlib import import_module

from horovod._keras import framework
from horovod._keras.back_end import BackEnd

_MODULES = {
    "tensorflow": "horovod._keras.on_tensorflow",
    "torch": "horovod._keras.on_torch",
    "jax": "horovod._keras.on_jax",
}

BACK_END: BackEnd = import_module(_MODULES[framework.back_end]).BACK_END
