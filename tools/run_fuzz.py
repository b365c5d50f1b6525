"""Runs every fuzz target for its share of the time, after looking that each decoder has one.

    tools/run_fuzz.py --seconds 60

docs/wire.md lists the decoders of foreign bytes in a table whose last column is `fuzz target`;
corro_fuzz() in CMake registers the targets. A decoder without a target fails, and so does a target
that no decoder names. Corpora grow in build/fuzz; an input that breaks something is left there with
its target's log.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATISTICS = re.compile(r"stat::number_of_executed_units:\s+(\d+)")


@dataclass(frozen=True)
class Target:
    name: str
    program: Path
    seeds: Path | None  # A text file: a name and the input's bytes in hexadecimal digits a line.


def read_decoders(document: str) -> dict[str, str]:
    """Returns {decoder: fuzz target} of every table whose last column is headed `fuzz target`."""
    decoders = {}
    inside = False
    for line in document.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|"):
            inside = False
        elif cells[-1].lower().replace("_", " ") == "fuzz target":
            inside = True
        elif inside and set(line) - set("|-: "):
            decoders[cells[0]] = cells[-1]
    return decoders


def read_targets(listing: str) -> list[Target]:
    """Reads what corro_finish_fuzz() wrote: name, program and seeds, one target a line."""
    rows = [line.split() for line in listing.splitlines() if line]
    return [Target(row[0], Path(row[1]), Path(row[2]) if row[2:] else None) for row in rows]


def write_seeds(text: str, folder: Path) -> None:
    """Writes the inputs that a file of seeds lists, where libFuzzer reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, digits = line.split()
            (folder / name).write_bytes(bytes.fromhex(digits))


def compare(decoders: dict[str, str], targets: Sequence[Target]) -> list[str]:
    names = {target.name for target in targets}
    problems = [
        f"docs/wire.md: decoder {decoder}: no fuzz target '{name}' is built"
        for decoder, name in decoders.items()
        if name not in names
    ]
    problems += [
        f"docs/wire.md: no decoder names the fuzz target {name}"
        for name in sorted(names - set(decoders.values()))
    ]
    if not decoders:
        problems.append("docs/wire.md: no table with a column `fuzz target`")
    return problems


def run(target: Target, seconds: int, folder: Path) -> bool:
    corpus = folder / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    log = folder / f"{target.name}.log"
    if target.seeds:
        write_seeds(target.seeds.read_text(), corpus)
    command = [str(target.program), str(corpus), f"-max_total_time={seconds}"]
    command += ["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]
    command += [f"-artifact_prefix={folder / target.name}-"]
    with log.open("w") as output:
        status = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    text = log.read_text(errors="replace")
    if status:
        print(f"fuzz: {target.name}: FAILED, see {log}\n{text[-3000:]}", flush=True)
        return False
    executed = STATISTICS.search(text)
    print(
        f"fuzz: {target.name}: {executed[1] if executed else '?'} inputs in {seconds} s", flush=True
    )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--build", type=Path, default=ROOT / "build/asan")
    options = parser.parse_args()

    targets = read_targets((options.build / "fuzz_targets.txt").read_text())
    problems = compare(read_decoders((ROOT / "docs/wire.md").read_text()), targets)
    for problem in problems:
        print(f"fuzz: {problem}", file=sys.stderr)
    if problems:
        return 1

    workers = min(os.cpu_count() or 1, len(targets))
    share = max(1, options.seconds * workers // len(targets))
    with ThreadPoolExecutor(workers) as pool:
        passed = list(pool.map(lambda target: run(target, share, ROOT / "build/fuzz"), targets))
    print(f"fuzz: {sum(passed)} targets passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
