"""What a rank's device is and can do: its name, the memory left, and measured speeds.

Speeds are of windows of time that all ranks compute through together: several ranks on one core
each get their share of it in every window, whereas a single product may run without a pause.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from corro.errors import InvalidArgumentError
from corro.torch.parallel.links import Link
from corro.torch.parallel.offload import bandwidth_of, space_of

Limits = tuple[tuple[str, int], ...]
"""Limits of a process's memory: their names, and how many bytes of each are left."""
KNOWN = {
    "v100-16gb": r"V100-SXM2-16GB",
    "v100-32gb": r"V100-SXM[23]-32GB",
    "t4": r"T4",
    "a10": r"A10",
    "a100-40gb": r"A100-SXM4-40GB",
    "a100-80gb": r"A100-SXM4-80GB",
    "l4": r"L4",
    "rtx4090": r"GeForce RTX 4090",
    "h100-80gb": r"H100 80GB HBM3",
    "h200": r"H200",
    "b200": r"B200",
    "gb200": r"GB200",
}
"""The planner's device types (cpp/src/plan/cluster/known_devices.cc), and CUDA's names of them."""
FREE = 0.94
"""Part of a known device's memory that has to be left: what plan() takes of it."""
WINDOWS = 3
WINDOW = {"cpu": 0.025, "cuda": 0.01}
"""Seconds."""
WIDTH = {"cpu": 512, "cuda": 4096}
"""Of the square matrices that are multiplied."""
COPIED = {"cpu": 64 << 20, "cuda": 256 << 20}
"""Bytes, more than caches hold; of little memory a sixteenth."""
OPERATORS = 50
"""Small ones in a row, whose time is measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankReport:
    """What one rank is, and what it measured."""

    host: int
    """Ranks of one host follow each other in the group."""
    device: str
    """What ranks of equal machines have in common, such as "cpu" or what CUDA calls the GPU."""
    threads: int = 0
    """It computes with; 0: a GPU does."""
    known: str = ""
    """The planner's device type whose published figures hold, if one does."""
    memory: tuple[tuple[str, int], ...]
    """Each limit's name and the bytes that are left of it; ranks of a host with the same share."""
    peak: Mapping[str, float]
    """FLOP/s by dtype: of large matrix products while the neighbours compute, too."""
    memory_bandwidth: float
    """Bytes/s that a large copy reads and writes."""
    operator: float = 0.0
    """Seconds, the least that one takes in one direction; 0: not measured."""
    link: Link | None = None
    """Between ranks of the host; None: there is one alone."""
    network: Link | None = None
    """Of the host; None: there is one alone."""
    disk: float = 0.0
    """Bytes/s, of the folder that is offloaded to; 0: to none."""
    disk_left: float = 0.0
    """Bytes, of which each rank of the host has its share."""


def report_of(
    host: int, device: torch.device, dtype: torch.dtype, folder: str | None = None
) -> RankReport:
    """Returns this rank's report, without its links. Does not communicate.

    Args:
        dtype: what is to be computed in, whose peak is in the report if planners know of it.
        folder: to offload to.

    Raises:
        OSError: the folder cannot be written to.
        InvalidArgumentError: the device is neither a "cpu" nor a "cuda".
        RuntimeError: torch cannot compute on it.
    """
    if device.type not in WINDOW:
        raise InvalidArgumentError(
            f"corro cannot measure a device of type {device.type}: give resources=, a cluster file"
        )
    gpu = device.type == "cuda"
    memory = _gpu_memory(device) if gpu else host_memory()
    copied = min(COPIED[device.type], min(left for _, left in memory) // 16)
    return RankReport(
        host=host,
        device=torch.cuda.get_device_name(device) if gpu else "cpu",
        threads=0 if gpu else min(torch.get_num_threads(), len(os.sched_getaffinity(0))),
        known=_known(device) if gpu else "",
        memory=memory,
        peak=_peaks(device, dtype),
        memory_bandwidth=_copying(device, copied),
        operator=_operator(device),
        disk=bandwidth_of(folder) if folder else 0.0,
        disk_left=space_of(folder) if folder else 0.0,
    )


def known_name(name: str) -> str:
    """Returns the planner's name of what CUDA calls a GPU so; "" if it has none. Pure."""
    found = (known for known, pattern in KNOWN.items() if _names(pattern, name))
    return next(found, "")


def _names(pattern: str, name: str) -> bool:
    return re.fullmatch(rf"(?:(?:NVIDIA|Tesla) )*(?:{pattern})", name) is not None


def _known(device: torch.device) -> str:
    """Returns the planner's name of the GPU, if what is published of it holds here."""
    ((_, left),) = _gpu_memory(device)
    total = torch.cuda.get_device_properties(device).total_memory
    return known_name(torch.cuda.get_device_name(device)) if left >= FREE * total else ""


def _gpu_memory(device: torch.device) -> tuple[tuple[str, int]]:
    """Returns the GPU's name in this host, and the bytes left: free ones, and this process's."""
    free, _ = torch.cuda.mem_get_info(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    properties = torch.cuda.get_device_properties(device)
    name = str(getattr(properties, "uuid", f"{chosen}:{index}"))  # torch before 2.4 has no uuid.
    return ((name, free + torch.cuda.memory_reserved(device)),)


def sharers_of(ranks: Iterable[tuple[int, Limits]]) -> Counter[tuple[int, str]]:
    """Returns how many ranks share each limit of memory, by host and name.

    Args:
        ranks: of each the host, and its limits.
    """
    return Counter((host, limit) for host, limits in ranks for limit, _ in limits)


def share_of(host: int, limits: Limits, sharers: Mapping[tuple[int, str], int]) -> float:
    """Returns the bytes of memory that a rank may take: an even share of the least limit."""
    return min(left / sharers[host, limit] for limit, left in limits)


def host_memory(
    root: Path = Path("/sys/fs/cgroup"),
    process: Path = Path("/proc/self/cgroup"),
    meminfo: Path = Path("/proc/meminfo"),
) -> Limits:
    """Returns each limit of this process's memory, and how many bytes of it are left.

    The machine's own, and those of its control groups and all around them. Linux gives file pages
    back before it refuses memory, so they count as left.
    """
    available = _keys(meminfo).get("MemAvailable:", 0) * 1024
    return (("machine", available), *_cgroups(root, process))


def _cgroups(root: Path, process: Path) -> Iterator[tuple[str, int]]:
    for line in _lines(process):
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            yield from _limits(root, path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            yield from _limits(root / "memory", path, *files)


def _limits(root: Path, path: str, most: str, used: str, prefix: str) -> Iterator[tuple[str, int]]:
    """Yields what is left in each control group from `path` up to the root."""
    own = root / path.strip("/")
    for directory in (own, *own.parents):
        limit, taken = _number(directory / most), _number(directory / used)
        if limit is not None and taken is not None:
            stat = _keys(directory / "memory.stat")
            files = stat.get(f"{prefix}active_file", 0) + stat.get(f"{prefix}inactive_file", 0)
            # Two containers may see their groups by one path: they are told by their inodes.
            name = f"{directory} {directory.stat().st_ino}"
            yield name, max(0, limit - max(0, taken - files))
        if directory == root:
            return


def _number(path: Path) -> int | None:
    """Returns what the file says, unless it is no number or stands for "unlimited"."""
    text = next(iter(_lines(path)), "")
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None


def _keys(path: Path) -> dict[str, int]:
    """Returns the numbers of lines as "key 12" or "key 12 kB"."""
    words = (line.split() for line in _lines(path))
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _peaks(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """Returns FLOP/s of matrix products, of f32, of what is faster, and of this dtype."""
    f32 = _multiplying(device, torch.float32)
    dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
    fast = ("bf16", "f16") if device.type == "cuda" else ("bf16",)
    measured = {name: each for name, each in dtypes.items() if name in fast or each == dtype}
    peaks = {name: _multiplying(device, each) for name, each in measured.items()}
    kept = {n: rate for n, rate in peaks.items() if rate > f32 or measured[n] == dtype}
    return {"f32": f32, **kept}


def _multiplying(device: torch.device, dtype: torch.dtype) -> float:
    """Returns FLOP/s."""
    width = WIDTH[device.type]
    one, other, product = (torch.ones(width, width, device=device, dtype=dtype) for _ in range(3))
    return 2 * width**3 * _rate(device, lambda: torch.mm(one, other, out=product))


def _copying(device: torch.device, size: int) -> float:
    """Returns bytes/s that are read and written."""
    source, target = (torch.ones(size, device=device, dtype=torch.uint8) for _ in range(2))
    return 2 * size * _rate(device, lambda: target.copy_(source))


def _operator(device: torch.device) -> float:
    """Returns the seconds of a small operator in one direction; backward goes two ways."""
    x, weight = (torch.ones(8, 8, device=device) for _ in range(2))
    weight.requires_grad_()

    def run() -> None:
        y = x
        for _ in range(OPERATORS):
            y = torch.nn.functional.linear(y, weight)
        torch.autograd.grad(y.sum(), weight)

    return 1 / (3 * OPERATORS * _rate(device, torch.enable_grad()(run)))


def _rate(device: torch.device, run: Callable[[], object]) -> float:
    """Returns how often a second it runs: the median of some windows."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def window() -> float:
        times, start = 0, perf_counter()
        while (seconds := perf_counter() - start) < WINDOW[device.type] or times == 0:
            for _ in range(once):
                run()
            wait()
            times += once
        return times / seconds

    once = 1
    with torch.no_grad():
        run()  # Makes what the first run makes.
        wait()
        once = 8 if device.type == "cuda" else 1  # A GPU computes one while the next is asked for.
        rates: list[float] = []
        begin = perf_counter()
        while len(rates) < WINDOWS and perf_counter() - begin < WINDOWS * WINDOW[device.type]:
            rates.append(window())  # Fewer where the device is too slow, or too busy, for windows.
        return median(rates)
