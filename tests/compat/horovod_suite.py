"""Runs Horovod's own tests with corro's package horovod, and prints what passes.

Each file of test/parallel is one job of 2 ranks that run its tests in step, as Horovod's own CI
does it; a test has passed if it has on both. Other files run in one process. What is done to the
tests is in HOW, and the report repeats it.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
PARALLEL = ["test_torch", "test_common", "test_timeline", "test_adasum_pytorch"]
FILES = [
    *(f"parallel/{name}.py" for name in PARALLEL),
    "single/test_util.py",
    "single/test_run.py",
    "integration/test_interactiverun.py",
    "integration/test_static_run.py",
]
LACKING = {
    "horovod.runner": ["_HorovodArgs"],
    "horovod.runner.launch": [
        "_check_all_hosts_ssh_successful",
        "_run",
        "gloo_built",
        "run_controller",
    ],
    "horovod.runner.util.threads": ["on_event"],
}
HOW = """\
corro run starts the ranks; HOROVOD_RANK and HOROVOD_SIZE, which the tests read, are RANK and
WORLD_SIZE. torch.optim.Muon is hidden from Optimizer.__subclasses__(): three tests make each
optimizer of that list with vectors, which Muon refuses. Names of Horovod's launcher that the tests
import and that are not here are stand-ins that raise NotImplementedError when they are used."""
Cases = dict[str, tuple[str, str]]  # Outcome and the first line of the reason, by test.


def run_rank(arguments: Sequence[str]) -> int:
    """One rank: pytest, with the changes that HOW tells."""
    import pytest

    for name, of in (("HOROVOD_RANK", "RANK"), ("HOROVOD_SIZE", "WORLD_SIZE")):
        os.environ.setdefault(name, os.environ.get(of, "-1"))
    hide_muon()
    sys.meta_path.append(Absent())
    for module, names in LACKING.items():
        for one in names:
            setattr(importlib.import_module(module), one, StandIn(one))
    settings: Any = importlib.import_module("horovod.runner.common.util.settings")
    settings.Settings = types.SimpleNamespace  # Made while tests are collected.
    report = f"--junitxml={arguments[0]}.{os.environ.get('RANK', '0')}.xml"
    return pytest.main([report, "-q", "--tb=short", "-p", "no:cacheprovider", *arguments[1:]])


class StandIn:
    """What Horovod has and corro-horovod has not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(f"{self._name} is not there")


def stand_in(name: str) -> StandIn:
    """Any name of a module that is not there, but those that Python itself looks for."""
    if name.startswith("__"):
        raise AttributeError(name)
    return StandIn(name)


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of Horovod's launcher that are not there: all names in them stand in."""

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("horovod.runner."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__getattr__ = stand_in  # type: ignore[method-assign]


def hide_muon() -> None:
    import torch

    optimizer: Any = torch.optim.Optimizer
    every = type.__subclasses__
    optimizer.__subclasses__ = classmethod(
        lambda cls: [one for one in every(cls) if one.__name__ != "Muon"]
    )


def first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["no reason given"])[0][:200]


def read_cases(report: Path) -> Cases:
    """Reads one rank's outcomes."""
    cases: Cases = {}
    for case in ElementTree.parse(report).iter("testcase"):
        problem = case.find("failure")
        problem = problem if problem is not None else case.find("error")
        skipped = case.find("skipped")
        name = case.get("name") or case.get("classname") or "?"
        if problem is not None:
            cases[name] = ("failed", first_line(problem.get("message") or problem.text or ""))
        elif cases.get(name, ("", ""))[0] != "failed":
            reason = "" if skipped is None else first_line(skipped.get("message") or "")
            cases[name] = ("passed" if skipped is None else "skipped", reason)
    return cases


def merge(ranks: Sequence[Cases]) -> Cases:
    """The worst outcome of each test."""
    order = ["passed", "skipped", "failed"]
    names = {name: None for cases in ranks for name in cases}
    missing = ("failed", "did not run on every rank")
    return {
        name: max(
            (cases.get(name, missing) for cases in ranks), key=lambda one: order.index(one[0])
        )
        for name in names
    }


def run_file(checkout: Path, file: str, options: argparse.Namespace) -> Cases:
    """Runs one file; a job that leaves no report counts as one failure."""
    path = checkout / "test" / file
    if not path.exists():
        return {file: ("failed", "not in this checkout")}
    ranks = 2 if file.startswith("parallel/") else 1
    corro = [str(Path(sys.executable).with_name("corro")), "run", "-np", str(ranks), "--"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        rank = [sys.executable, __file__, "--rank", str(report), str(path)]
        rank += [f"--timeout={options.timeout}", *(["-k", options.k] if options.k else [])]
        log = options.out.with_suffix(f".{path.stem}.log")
        with log.open("w") as output:
            job = subprocess.run(
                [*(corro if ranks > 1 else []), *rank],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
        reports = [Path(f"{report}.{number}.xml") for number in range(ranks)]
        if not all(one.exists() for one in reports):
            return {file: ("failed", f"exit status {job.returncode}, no report; see {log}")}
        return merge([read_cases(one) for one in reports])


def summary(file: str, cases: Cases) -> dict[str, Any]:
    outcomes = [outcome for outcome, _ in cases.values()]
    counts = {name: outcomes.count(name) for name in ("passed", "failed", "skipped")}
    failures = {name: reason for name, (outcome, reason) in cases.items() if outcome == "failed"}
    return {"file": file, **counts, "failures": failures}


def table(runs: Sequence[dict[str, Any]]) -> str:
    lines = [f"{'file':36} {'passed':>7} {'failed':>7} {'skipped':>8}"]
    lines += [
        f"{run['file']:36} {run['passed']:7} {run['failed']:7} {run['skipped']:8}" for run in runs
    ]
    lines += [
        f"{run['file']}: {name}: {reason}"
        for run in runs
        for name, reason in run["failures"].items()
    ]
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of Horovod's repository")
    parser.add_argument("files", nargs="*", default=FILES, help="such as parallel/test_torch.py")
    parser.add_argument("-k", default="", help="only tests that fit, as pytest has it")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one test")
    parser.add_argument("--out", type=Path, default=ROOT / "build/compat/upstream.json")
    options = parser.parse_args(argv)
    if not (options.checkout / "test/parallel").is_dir():
        sys.exit(
            f"run_upstream: {options.checkout} has no test/parallel: is it Horovod's checkout?"
        )

    import torch

    options.out.parent.mkdir(parents=True, exist_ok=True)
    checkout, runs = options.checkout.resolve(), []
    for file in options.files:
        print(f"run_upstream: {file}", flush=True)
        runs.append(summary(file, run_file(checkout, file, options)))
        report = {"torch": torch.__version__, "how": HOW, "k": options.k, "files": runs}
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{HOW}\n\ntorch {torch.__version__}\n{table(runs)}\nwritten: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(run_rank(sys.argv[2:]) if sys.argv[1:2] == ["--rank"] else main(sys.argv[1:]))
