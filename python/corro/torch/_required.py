"""Imported before all else of corro.torch: is there a torch, and is it new enough?"""

from __future__ import annotations

import re
from importlib import import_module

OLDEST = (2, 2)


def check_torch() -> None:
    """Imports torch; what is wrong with it is one line that says what to install.

    Raises:
        ModuleNotFoundError: there is none.
        ImportError: it is older than OLDEST.
    """
    try:
        version = str(import_module("torch").__version__)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            "corro.torch needs PyTorch, which is not installed here: pip install torch",
            name="torch",
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < OLDEST:
        raise ImportError(
            f"corro.torch needs torch {OLDEST[0]}.{OLDEST[1]} or newer, and {version} is installed "
            "here: pip install --upgrade torch"
        )


check_torch()
