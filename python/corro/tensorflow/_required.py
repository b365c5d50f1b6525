"""Imported before all else of corro.tensorflow: is there a TensorFlow, and is it new enough?"""

from __future__ import annotations

import re
from importlib import import_module

OLDEST = (2, 12)


def check_tensorflow() -> None:
    """Imports TensorFlow; what is wrong with it is one line that says what to install.

    Raises:
        ModuleNotFoundError: there is none.
        ImportError: it is older than OLDEST.
    """
    try:
        version = str(import_module("tensorflow").__version__)
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ModuleNotFoundError(
            "corro.tensorflow needs TensorFlow, which is not installed here: pip install "
            "tensorflow",
            name="tensorflow",
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < OLDEST:
        raise ImportError(
            f"corro.tensorflow needs TensorFlow {OLDEST[0]}.{OLDEST[1]} or newer, and {version} is"
            " installed here: pip install --upgrade tensorflow"
        )


check_tensorflow()
