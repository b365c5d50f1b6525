"""What ranks tell each other that is no tensor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import cloudpickle
import numpy

import corro.numpy
from corro._context import exchange
from corro._objects import broadcast_bytes
from horovod.common import basics
from horovod.common.exceptions import raised_as_horovods


def all_ranks_say(yes: bool) -> bool:
    """Returns whether all ranks do; every rank calls it."""
    with raised_as_horovods():
        return all(said for (said,) in exchange(basics.world(), [int(yes)]))


def averaged(caller: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the averages of all ranks' numbers, or arrays, of each name; every rank calls it.

    Raises:
        ValueError: on every rank, if the names are not the same on all.
    """
    own = {name: numpy.asarray(value).tolist() for name, value in numbers.items()}
    everyone = [json.loads(text) for text in _gathered(json.dumps(own))]
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


def of_rank_0(value: Any) -> Any:
    """Returns rank 0's object, sent with cloudpickle; every rank calls it."""
    with raised_as_horovods():
        data = broadcast_bytes(
            "broadcast_object", lambda: cloudpickle.dumps(value), 0, basics.world()
        )
    return cloudpickle.loads(data)


def _gathered(text: str) -> list[str]:
    """Returns the texts of all ranks, in order."""
    group = basics.world()
    data = numpy.frombuffer(text.encode(), numpy.uint8)
    with raised_as_horovods():
        sizes = [size for (size,) in exchange(group, [len(data)])]
        joined = corro.numpy.allgather(data, sizes=sizes, group=group)
    ends = list(accumulate(sizes))
    return [
        joined[end - size : end].tobytes().decode() for size, end in zip(sizes, ends, strict=True)
    ]
