"""The entry point of the group "torch.backends", which torch calls while it is imported.

Has to be tiny, to load nothing that torch has not loaded, and never to raise: an exception here
would be one of `import torch`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def register() -> None:
    """Makes the back end "corro" known to torch.distributed."""
    try:
        import torch.distributed as dist

        if dist.is_available() and "CORRO" not in dist.Backend._plugins:
            dist.Backend.register_backend(
                "corro", _create, extended_api=True, devices=["cpu", "cuda"]
            )
    except Exception:  # noqa: S110  # See above.
        pass


def _create(options: Any, backend_options: Any) -> Any:
    """Makes the back end's object of one process group; only now the engine is loaded."""
    # By name, as an entry point: this module stands below corro.torch, which calls register() too.
    return import_module("corro.torch.backend").create(options, backend_options)
