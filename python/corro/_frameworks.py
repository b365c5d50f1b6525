"""Is there a front end's framework, and is it new enough?"""

from __future__ import annotations

import re
from importlib import import_module


def check_framework(
    front_end: str, package: str, title: str, short: str, oldest: tuple[int, int]
) -> None:
    """Imports a framework; what is wrong with it is one line that says what to install.

    Args:
        front_end: whose it is: "corro.torch".
        package: what is imported, and installed by pip.
        title: what people call it.
        short: the same before a version.
        oldest: the oldest version that will do.

    Raises:
        ModuleNotFoundError: there is none.
        ImportError: it is older.
    """
    try:
        version = str(import_module(package).__version__)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"{front_end} needs {title}, which is not installed here: pip install {package}",
            name=package,
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < oldest:
        raise ImportError(
            f"{front_end} needs {short} {oldest[0]}.{oldest[1]} or newer, and {version} is"
            f" installed here: pip install --upgrade {package}"
        )
