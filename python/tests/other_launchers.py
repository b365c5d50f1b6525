"""What the tests of mpirun, torchrun and Slurm have in common: four ranks on two hosts."""

from __future__ import annotations

from pathlib import Path

MEETS = """
import os
import numpy
import corro
import corro.numpy as cn

corro.init()
assert cn.allreduce(numpy.full(1000, corro.rank() + 1.0), corro.Sum)[0] == 10
layout = [corro.rank(), corro.local_rank(), corro.cross_rank(), corro.cross_size()]
address = os.popen("ip -4 -o address show dev eth0").read().split()[3].split("/")[0]
with open(f"rank-{corro.rank()}", "w") as file:
    print(*layout, address, file=file)
corro.shutdown()
corro.init()  # Once more, by the same ways.
assert cn.allreduce(1.0, corro.Sum) == 4
"""


def without_launchers(environment: dict[str, str]) -> dict[str, str]:
    """Returns what is left without what a launcher around the tests has set."""
    theirs = ("SLURM_", "CORRO_", "PET_", "OMPI_", "PMIX_", "TORCHELASTIC_")
    return {name: value for name, value in environment.items() if not name.startswith(theirs)}


def check_layout(directory: Path) -> None:
    """Two ranks on each of two hosts."""
    for rank in range(4):
        expected = f"{rank} {rank % 2} {rank // 2} 2 10.77.0.{rank // 2 + 1}\n"
        assert (directory / f"rank-{rank}").read_text() == expected


def script(directory: Path, text: str) -> Path:
    path = directory / "script.py"
    path.write_text(text)
    return path
