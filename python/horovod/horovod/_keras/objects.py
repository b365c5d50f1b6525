"""What ranks tell each other that is no tensor: by names, beside whatever a step still does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from horovod.common.objects import allgather_object


def all_ranks_say(yes: bool) -> bool:
    """Returns whether all ranks do; every rank calls it."""
    return all(allgather_object(yes, "all_ranks_say"))


def averaged(caller: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the averages of all ranks' numbers, or arrays, of each name; every rank calls it.

    Raises:
        ValueError: on every rank, if the names are not the same on all.
    """
    own = {name: numpy.asarray(value).tolist() for name, value in numbers.items()}
    everyone = allgather_object(own, caller)
    for rank, of_rank in enumerate(everyone):
        lacking = sorted(everyone[0].keys() ^ of_rank.keys())
        if lacking:
            has, has_not = (rank, 0) if lacking[0] in of_rank else (0, rank)
            raise ValueError(
                f"{caller}: rank {has} has {lacking[0]}, and rank {has_not} has not: all ranks"
                " need the same metrics, and the same validation"
            )
    means = {name: numpy.mean([one[name] for one in everyone], axis=0) for name in own}
    return {name: float(mean) if mean.ndim == 0 else mean for name, mean in means.items()}
