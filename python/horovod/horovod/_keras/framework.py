"""The Keras that is used, and its back end: what is wrong with them is one line.

Keras 3 runs on TensorFlow, torch or JAX, whichever KERAS_BACKEND or keras.json says; the others are
not imported. Keras 2 is TensorFlow's own up to 2.15, and tf_keras with TF_USE_LEGACY_KERAS=1.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from corro._frameworks import check_framework

OLDEST = (2, 12)
BACK_ENDS = ("tensorflow", "torch", "jax")


def _name() -> str:
    """Returns the name of the package that tf.keras is, too."""
    asked = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    if not asked:
        return "keras"
    import_module("corro.tensorflow")  # Says what is wrong with TensorFlow.
    version = str(import_module("tensorflow").__version__)
    return "keras" if tuple(map(int, version.split(".")[:2])) < (2, 16) else "tf_keras"


def _imported(name: str) -> Any:
    try:
        check_framework("horovod.keras", name, "Keras", "Keras", OLDEST)
    except ModuleNotFoundError as error:
        if error.name not in BACK_ENDS:
            raise
        raise ModuleNotFoundError(
            f"horovod.keras needs Keras's back end, {error.name}, which is not installed here: pip"
            f" install {error.name}, or set KERAS_BACKEND to another of {', '.join(BACK_ENDS)}",
            name=error.name,
        ) from None
    module: Any = import_module(name)
    if name == "keras" and str(module.__version__).startswith("2."):
        return import_module("tensorflow").keras  # The same classes, under their public names.
    return module


def _back_end() -> str:
    return _that_trains(str(keras.backend.backend())) if is_keras_3 else "tensorflow"


def _that_trains(name: str) -> str:
    if name not in BACK_ENDS:
        raise ImportError(
            f"horovod.keras cannot train with Keras's back end {name}: set KERAS_BACKEND to one of"
            f" {', '.join(BACK_ENDS)} before keras is imported"
        )
    return name


_that_trains(os.environ.get("KERAS_BACKEND") or BACK_ENDS[0])  # Others need packages, too.
keras: Any = _imported(_name())
is_keras_3 = str(keras.__version__).startswith("3.")
back_end = _back_end()
