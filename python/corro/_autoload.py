"""The entry point of the group "torch.backends", which torch calls while it is imported.

Has to be tiny, to load nothing that torch has not loaded, and never to raise: an exception here
would be one of `import torch`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any


def register() -> None:
    """Makes the back end "corro" known to torch.distributed.

    Ranks of `corro run` get it by the name "gloo" as well, which is also what torch takes for
    arrays in CPU memory where a script names nothing: unless CORRO_TORCH is "keep", and from torch
    2.15 on, since older ones cannot shard over back ends in Python.
    """
    try:
        import torch.distributed as dist

        if dist.is_available() and "CORRO" not in dist.Backend._plugins:
            dist.Backend.register_backend(
                "corro", _create, extended_api=True, devices=["cpu", "cuda"]
            )
            if _is_rank_of_corro_run() and hasattr(dist.Backend, "_ensure_backend_registered"):
                # Also of torch's type for others: by "gloo" DDP would take it for Gloo's class.
                dist.Backend.register_backend(
                    "gloo", _create_as_gloo, extended_api=True, devices=["cpu", "cuda"]
                )
    except Exception:  # noqa: S110  # See above.
        pass


def is_corro(name: str) -> bool:
    """Returns whether torch's back end of this name is corro, as get_backend() says it."""
    import torch.distributed as dist

    # What a script has not named torch calls "undefined", and takes what the device has.
    plugin = dist.Backend._plugins.get("GLOO" if name == "undefined" else name.upper())
    return plugin is not None and plugin.creator_fn in (_create, _create_as_gloo)


def _is_rank_of_corro_run() -> bool:
    return "CORRO_RANK" in os.environ and os.environ.get("CORRO_TORCH") != "keep"


def _create_as_gloo(options: Any, backend_options: Any) -> Any:
    """Says so once, of the group of all ranks."""
    if options.group_rank == 0 and not options.global_ranks_in_group:
        line = 'corro: torch\'s back end "gloo" is corro here; CORRO_TORCH=keep keeps Gloo'
        print(line, file=sys.stderr, flush=True)
    return _create(options, backend_options)


def _create(options: Any, backend_options: Any) -> Any:
    """Makes the back end's object of one process group; only now the engine is loaded."""
    # By name, as an entry point: this module stands below corro.torch, which calls register() too.
    return import_module("corro.torch.backend").create(options, backend_options)
