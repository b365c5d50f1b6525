"""Who this process is, as the launcher has said it."""

from __future__ import annotations

import os


def get_env_rank_and_size() -> tuple[int, int]:
    """Returns the rank and the number of ranks of which the environment tells; (0, 1) without.

    In an elastic job they are those of its beginning: ask hvd.rank() and hvd.size().
    """
    return int(os.environ.get("HOROVOD_RANK", "0")), int(os.environ.get("HOROVOD_SIZE", "1"))
