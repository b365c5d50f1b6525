"""Runs every fuzz target for its share of the time, after looking that each decoder has one.

    tools/run_fuzz.py --seconds 60

docs/wire.md lists the decoders of foreign bytes in a table whose last column is `fuzz target`;
corro_fuzz() in CMake registers the targets. A decoder without a target fails, and so does a target
that no decoder names. Corpora grow in build/fuzz; an input that breaks something is left there with
its target's log. A target whose program and seeds are as they were when it passed is not run again
(passed.py).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from passed import ROOT, Suite
from suites import run_suites

FOLDER = ROOT / "build/fuzz"
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


def suite_of(target: Target, seconds: int, folder: Path) -> Suite:
    """Fuzzing a target for so long; what it found before is read again first."""
    corpus = folder / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    if target.seeds:
        write_seeds(target.seeds.read_text(), corpus)
    command = [str(target.program), str(corpus), f"-max_total_time={seconds}"]
    command += ["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]
    command += [f"-artifact_prefix={folder / target.name}-"]
    seeds = (str(target.seeds.resolve().relative_to(ROOT)),) if target.seeds else ()
    return Suite(f"fuzz/{target.name}", tuple(command), reads=seeds, timeout=seconds + 600)


def judge(suite: Suite, status: int, output: str) -> tuple[int, dict[str, str]]:
    """Keeps the log of a target, and says how much it tried."""
    log = FOLDER / f"{suite.name.removeprefix('fuzz/')}.log"
    log.write_text(output)
    executed = STATISTICS.search(output)
    print(f"{suite.name}: {executed[1] if executed else '?'} inputs, see {log}", flush=True)
    return status, {}


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

    share = max(1, options.seconds * (os.cpu_count() or 1) // len(targets))
    outcomes = run_suites([suite_of(target, share, FOLDER) for target in targets], judge)
    failed = sum(outcome.status != 0 for outcome in outcomes)
    print(f"fuzz: {len(outcomes) - failed} targets passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
