"""Runs corro beside its peers, interleaved, and writes build/bench/results.{json,md}.

    cpp/bench/run.py [--only PATTERN] [--quick] [--base CHECKOUT] [--horovod-env ENVIRONMENTS]

docs/benchmarks.md says what is measured and how, and what the columns of a row mean. Each family
of rows is measured by a module beside this one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import agent_rows
import allreduce_rows
import compiled_rows
import dashboard_rows
import engine_rows
import horovod_env
import host_rows
import hvd_rows
import keras_rows
import launcher_rows
import many_rows
import parallel_rows
import plan_rows
import planner_rows
import recover_rows
import served_rows
import small_rows
import ssh_rows
import table_rows
import training_rows
from jobs import OUT, Effort, Family, note
from rows import Row, tables

FAMILIES: dict[str, Family] = {
    **allreduce_rows.FAMILIES,
    **small_rows.FAMILIES,
    **engine_rows.FAMILIES,
    **launcher_rows.FAMILIES,
    **training_rows.FAMILIES,
    **many_rows.FAMILIES,
    **plan_rows.FAMILIES,
    **parallel_rows.FAMILIES,
    **planner_rows.FAMILIES,
    **host_rows.FAMILIES,
    **ssh_rows.FAMILIES,
    **agent_rows.FAMILIES,
    **hvd_rows.FAMILIES,
    **compiled_rows.FAMILIES,
    **keras_rows.FAMILIES,
    **recover_rows.FAMILIES,
    **served_rows.FAMILIES,
    **table_rows.FAMILIES,
    **dashboard_rows.FAMILIES,
}


def chosen(only: str, quick: bool) -> dict[str, Family]:
    """Returns what is asked for, by name."""
    found = {name: family for name, family in FAMILIES.items() if re.search(only, name)}
    if not found:
        sys.exit(f"bench: nothing is called {only}: {', '.join(FAMILIES)}")
    all_of_them = quick and not only
    return {name: family for name, family in found.items() if not all_of_them or family.quick}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares corro with its peers.")
    parser.add_argument(
        "--only", default="", help="a pattern: of allreduce-2-shm, small, idle, loss, launch, ..."
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer sizes, one round, no rows that take minutes"
    )
    parser.add_argument(
        "--base", type=Path, help="another checkout, benchmarked before: the allreduce of its corro"
    )
    parser.add_argument(
        "--horovod-env",
        help="environments of Python with Horovod for torch or TensorFlow, colons between: peers",
    )
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    base = options.base and options.base.absolute()
    horovod = horovod_env.by_framework(options.horovod_env) if options.horovod_env else {}
    effort = Effort(options.quick, base, horovod.get("torch"), horovod.get("tensorflow"))
    for name, family in chosen(options.only, options.quick).items():
        note(name)
        rows += family.measure(effort)
    (OUT / "results.json").write_text(json.dumps([row.cells() for row in rows], indent=1) + "\n")
    (OUT / "results.md").write_text(tables(rows))
    print(tables(rows))
    missed = sum(not row.ok for row in rows)
    print(f"bench: {len(rows)} rows, {missed} missed their bar; build/bench/results.md")


if __name__ == "__main__":
    main()
