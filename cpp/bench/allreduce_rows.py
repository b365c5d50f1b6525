"""Rows of allreduce: corro beside its peers, from 4 B to 64 MiB."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jobs import BENCH, OUT, PROGRAMS, PYTHON, ROOT, Effort, Family, corro_run, note, run
from rows import Row, compared, timed

KINDS = ("private", "arena")  # Of memory.
SIZES = [4 * 4**i for i in range(13)]  # 4 B, 16 B, ... 64 MiB
QUICK_SIZES = [4, 1 << 12, 1 << 16, 1 << 20, 1 << 24]
SMALL = 64 << 10
BASE, BASE_BAR = "corro (base)", 1.05

Figures = dict[int, tuple[float, float]]  # bytes: (min_us, median_us)


@dataclass(frozen=True)
class Setting:
    ranks: int
    transport: str


@dataclass(frozen=True)
class Peer:
    """An implementation that is measured."""

    name: str
    memory: str
    command: Callable[[Setting, list[str]], list[str]]


def corro_peer(memory: str, name: str = "corro", root: Path = ROOT) -> Peer:
    """`root`: the checkout, benchmarked before if it is another one than this."""
    program = root / PROGRAMS.relative_to(ROOT) / "allreduce_corro"

    def command(setting: Setting, sizes: list[str]) -> list[str]:
        return corro_run(setting.ranks, str(program), memory, *sizes, root=root)

    return Peer(name, memory, command)


def torch_peer(backend: str) -> Peer:
    def command(setting: Setting, sizes: list[str]) -> list[str]:
        script = str(BENCH / "allreduce_torch.py")
        bind = "none" if backend == "gloo" else "auto"  # Gloo has a thread of its own.
        return corro_run(setting.ranks, "--bind", bind, str(PYTHON), script, backend, *sizes)

    return Peer("gloo" if backend == "gloo" else "corro (torch)", "private", command)


def open_mpi(name: str, launcher: str, program: str, memory_layer: str) -> Peer:
    def command(setting: Setting, sizes: list[str]) -> list[str]:
        layers = f"{'tcp' if setting.transport == 'tcp' else memory_layer},self"
        options = ["--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", layers]
        if os.geteuid() == 0:
            options.append("--allow-run-as-root")
        return [launcher, "-np", str(setting.ranks), *options, program, *sizes]

    return Peer(name, "private", command)


def mpich_command(setting: Setting, sizes: list[str]) -> list[str]:
    remote = ["-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "FI_PROVIDER", "tcp"]
    options = remote if setting.transport == "tcp" else []
    launcher, program = OUT / "mpich/bin/mpiexec", OUT / "mpich/allreduce"
    return [str(launcher), "-np", str(setting.ranks), *options, str(program), *sizes]


OPEN_MPIS = [
    open_mpi("openmpi", "mpirun", str(PROGRAMS / "allreduce_mpi"), "vader"),
    open_mpi("openmpi 5", str(OUT / "openmpi/bin/mpirun"), str(OUT / "openmpi/allreduce"), "sm"),
]
PEERS = [
    *(corro_peer(kind) for kind in KINDS),
    torch_peer("corro"),
    *OPEN_MPIS,
    Peer("mpich 5", "private", mpich_command),
    torch_peer("gloo"),
]


def figures_of(command: Sequence[str], transport: str) -> Figures:
    lines = run(command, {"CORRO_TRANSPORT": "tcp"} if transport == "tcp" else None)
    return {line["bytes"]: (line["min_us"], line["median_us"]) for line in lines}


def combine(rounds: list[Figures]) -> Figures:
    return {
        size: (min(r[size][0] for r in rounds), statistics.median(r[size][1] for r in rounds))
        for size in rounds[0]
    }


def interleaved(
    peers: Sequence[Peer], setting: Setting, arguments: list[str], rounds: int
) -> dict[Peer, Figures]:
    """Runs the peers in turns."""
    taken: dict[Peer, list[Figures]] = {peer: [] for peer in peers}
    for number in range(rounds):
        for peer in peers:
            place = f"{setting.ranks} ranks, {setting.transport}, round {number + 1}/{rounds}"
            note(f"{place}: {peer.name}")
            taken[peer].append(figures_of(peer.command(setting, arguments), setting.transport))
    return {peer: combine(figures) for peer, figures in taken.items()}


def measure_setting(setting: Setting, effort: Effort) -> list[Row]:
    sizes, seconds = (QUICK_SIZES, 0.1) if effort.quick else (SIZES, 0.2)
    arguments = [str(seconds), *map(str, sizes)]
    root = effort.base
    base = [corro_peer(kind, BASE, root) for kind in KINDS] if root is not None else []
    return compare(setting, interleaved([*base, *PEERS], setting, arguments, effort.rounds))


def bar_for(peer: str, size: int) -> float | None:
    """The ratio that corro must not exceed: docs/benchmarks.md. None: it is only shown."""
    if peer == BASE:
        return BASE_BAR
    if peer == "openmpi":
        return 1.5
    if peer in ("openmpi 5", "mpich 5"):
        return None
    return 0.2 if size <= SMALL else 1.0


def row(
    setting: Setting,
    size: int,
    peer: tuple[str, str],
    times: tuple[float, float],
    ratio: float | None = None,
    bar: float | None = None,
) -> Row:
    """`peer`: its name, and the memory."""
    columns = {
        "bytes": size,
        "ranks": setting.ranks,
        "transport": setting.transport,
        "memory": peer[1],
        "peer": peer[0],
        "min_us": times[0],
    }
    if ratio is None:
        return timed("allreduce", columns, times[1])
    return compared("allreduce", columns, times[1], ratio, bar)


def compare(setting: Setting, figures: dict[Peer, Figures]) -> list[Row]:
    keyed = []
    by_name = {(peer.name, peer.memory): by_size for peer, by_size in figures.items()}
    for (name, memory), by_size in by_name.items():
        for size, times in by_size.items():
            bar = bar_for(name, size)
            if name == "corro":
                ratios = {memory: None}
            elif name == "corro (torch)":
                ratios = {memory: times[1] / by_name["gloo", memory][size][1]}
            else:
                kinds = (memory,) if name == BASE else KINDS
                ratios = {kind: by_name["corro", kind][size][1] / times[1] for kind in kinds}
            for kind, ratio in ratios.items():
                made = row(setting, size, (name, kind), times, ratio, bar)
                keyed.append(((kind, size, name), made))
    return [made for _, made in sorted(keyed, key=lambda pair: pair[0])]


FAMILIES = {
    f"allreduce-{ranks}-{transport}": Family(partial(measure_setting, Setting(ranks, transport)))
    for ranks in (2, 4)
    for transport in ("shm", "tcp")
}
