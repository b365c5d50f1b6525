"""allreduce_torch.py BACKEND SECONDS BYTES...: a torch.distributed back end's times.

The same measurement as measure.h, through torch: answers first, then batches, as JSON lines.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist


def check_answer(data: torch.Tensor) -> None:
    """Ends the program where the sum is not exact."""
    size = dist.get_world_size()
    base = torch.arange(data.numel()) % 13
    data.copy_(base + dist.get_rank())
    dist.all_reduce(data)
    want = (base * size + size * (size - 1) // 2).to(data.dtype)
    if not torch.equal(data, want):
        sys.exit("wrong answer")


def measure(byte_count: int, seconds: float) -> list[float]:
    """Returns microseconds for each operation of every batch, sorted."""
    data = torch.zeros(max(byte_count // 4, 1))
    stop = torch.zeros(1)
    check_answer(data)
    data.zero_()
    batch = 100 if byte_count <= 4096 else 10 if byte_count <= 65536 else 1
    times: list[float] = []
    begin = time.perf_counter()
    while stop.item() == 0:
        for _ in range(10):
            start = time.perf_counter()
            for _ in range(batch):
                dist.all_reduce(data)
            times.append((time.perf_counter() - start) * 1e6 / batch)
        stop.fill_(time.perf_counter() - begin > seconds)
        dist.all_reduce(stop)
    return sorted(times[len(times) // 5 :])


def main() -> None:
    torch.set_num_threads(1)
    backend, seconds, *sizes = sys.argv[1:]
    dist.init_process_group(backend)
    for size in map(int, sizes):
        times = measure(size, float(seconds))
        if dist.get_rank() == 0:
            middle = times[len(times) // 2]
            print(json.dumps({"bytes": size, "min_us": times[0], "median_us": middle}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
