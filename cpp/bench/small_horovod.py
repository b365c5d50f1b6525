"""small_horovod.py SAMPLES: the cases of small.py that Horovod has, through horovod.torch.

    horovodrun -np 2 --gloo python cpp/bench/small_horovod.py SAMPLES

Cases and lines are those of small.py. Every operation has the same name each time: Horovod gives
a call without one a new name, and negotiates it anew.
"""

from __future__ import annotations

import sys

import torch
from cases import MANY, Case, Measurement, many

import horovod.torch as hvd


def many_cases(count: int, size: int) -> dict[str, Case]:
    """Returns the cases of one number of operations."""
    tensors = [torch.zeros(size // 4) for _ in range(count)]
    together = torch.zeros(count * size // 4)
    place = f"{count}x{size}-private"
    names = [f"{place}.{i}" for i in range(count)]
    in_flight = many(hvd.allreduce_async_, hvd.synchronize, tensors, names)
    return {
        f"{place}-one": Case(lambda: hvd.allreduce_(together, name=place), [together]),
        f"{place}-named": Case(in_flight, tensors),
    }


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    measurement = Measurement(hvd.rank(), hvd.size(), samples=int(sys.argv[1]))
    tensor = torch.zeros(1)
    measurement.run({"torch": Case(lambda: hvd.allreduce_(tensor, name="4"), [tensor])})
    for count, size in MANY:
        measurement.run(many_cases(count, size))
    hvd.shutdown()


if __name__ == "__main__":
    main()
