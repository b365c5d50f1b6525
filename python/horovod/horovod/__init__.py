"""Horovod's interface on corro: scripts that say `import horovod.torch as hvd` run unchanged.

__version__ is the release of Horovod whose interface this is; scripts compare it.
"""

from importlib import metadata as _metadata

__version__ = "0.28.1"


def _check_alone() -> None:
    """Two distributions with one package overwrite each other's files."""
    try:
        _metadata.distribution("horovod")
    except _metadata.PackageNotFoundError:
        return
    raise ImportError(
        "horovod and corro-horovod are both installed, and share files: "
        "pip uninstall horovod corro-horovod, then pip install corro-horovod"
    )


_check_alone()

from horovod.runner import run  # noqa: E402  # Not if the files are another distribution's.

__all__ = ["__version__", "run"]
