"""Runs Horovod's own tests with corro's package horovod, and prints what passes.

With torch and with TensorFlow, each in the versions that the command line names.

Each file of test/parallel is one job of 2 ranks that run its tests in step, as Horovod's own CI
does it; a test has passed if it has on both. Other files run in one process. What is done to the
tests is in HOW, which of them do not run, and why, in NOT_RUN; the report repeats both.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
# By the framework with which they run.
FILES = {
    "torch": [
        "parallel/test_torch.py",
        "parallel/test_common.py",
        "parallel/test_timeline.py",
        "parallel/test_adasum_pytorch.py",
        "single/test_util.py",
        "single/test_run.py",
        "single/test_torch_elastic.py",
        "single/test_elastic_run.py",
        "single/test_elastic_discovery.py",
        "integration/test_elastic_torch.py",
        "integration/test_interactiverun.py",
        "integration/test_static_run.py",
    ],
    "tensorflow": [
        "parallel/test_tensorflow.py",
        "parallel/test_tensorflow_process_sets.py",
        "parallel/test_tensorflow_process_sets_dynamic.py",
        "parallel/test_process_sets_static.py",
        "parallel/test_tensorflow2_keras.py",
        "parallel/test_tensorflow2_keras_process_sets.py",
        "parallel/test_adasum_tensorflow.py",
    ],
}
# Keras 2 for Horovod's tests, which are of it: TensorFlow's own, or tf_keras.
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
SLOT = (
    "expects that a host is left out with all its ranks when one has failed; here that rank alone "
    "is replaced. test_elastic.py kills ranks in the same ways"
)
ADDED = (
    "its script waits for at most 3 s until inner parts of Horovod's state have heard of a host; "
    "here ranks go on until the new ones are there. test_horovodrun_elastic.py and "
    "test_elastic_joins.py add and remove hosts, and reach the limit of resets"
)
# Parts of Horovod that corro-horovod has not, by the names of their tests.
NOT_RUN = {
    "single/test_run.py": {
        "test_mpi_run*": "the command line of Horovod's mpirun; there is no MPI",
        "test_get_mpi_implementation": "Horovod's mpirun; there is no MPI",
        "test_js_run": "the command line of Horovod's jsrun; there is no jsrun",
        "test_generate_jsrun_rankfile": "Horovod's jsrun; there is no jsrun",
        "test_run_with_jsrun": "Horovod's jsrun; there is no jsrun",
        "test_run_controller": "the choice among Horovod's launchers; corro run is the only one",
        "test_gloo_run*": "Horovod's inner launcher; corro run starts the ranks",
        "test_safe_shell_exec*": "the shell in which Horovod starts a rank; corro run starts none",
        "test_on_event": "a thread of Horovod's inner launcher",
        "test_*hash": "names that Horovod's inner launcher gives to hosts",
    },
    "integration/test_interactiverun.py": {
        "test_happy_run_elastic": "an inner function of Horovod's launcher",
    },
    "integration/test_elastic_torch.py": {
        "test_hosts_added_and_removed": ADDED,
        "test_reset_limit": ADDED,
        "test_all_hosts_blacklisted": SLOT,
        "test_fault_tolerance_without_scaling": SLOT,
        "test_min_hosts_timeout": "calls itself with an argument that it does not have",
        "test_resurrecting_blacklisted_hosts_exponential_backoff": SLOT,
        "test_single_rank_failure": SLOT,
    },
    "integration/test_static_run.py": {
        "*_gloo_*": "replaces parts of Horovod's inner launcher, and compares what that says; "
        "test_horovodrun_hosts.py does the same with real hosts",
    },
}
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
optimizer of that list with vectors, which Muon refuses. In test_adasum_pytorch and
test_adasum_tensorflow, and there alone, hvd.mpi_enabled() says True: Horovod has Adasum over MPI
only, so its tests skip without; here Adasum needs no MPI, and mpi_enabled() stays False. Names of
Horovod's launcher that the tests import and that are not here are stand-ins that raise
NotImplementedError when they are used; tests of what Horovod's launcher is made of do not run, each
with its reason. In test_elastic_torch the inner function _run_elastic() is horovodrun. With
TensorFlow, Keras is Keras 2: TF_USE_LEGACY_KERAS=1, and tf_keras from TensorFlow 2.16 on."""
Cases = dict[str, tuple[str, str]]  # Outcome and the first line of the reason, by test.


class Deselect:
    """A plug-in of pytest: leaves out what NOT_RUN says, and writes down what that was."""

    def __init__(self, path: str, reasons: dict[str, str]) -> None:
        self._path = Path(path)
        self._reasons = reasons

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        reasons = {item.name: self._reason_of(item.name) for item in items}
        left_out = [item for item in items if reasons[item.name]]
        items[:] = [item for item in items if not reasons[item.name]]
        config.hook.pytest_deselected(items=left_out)
        self._path.write_text(json.dumps({name: why for name, why in reasons.items() if why}))

    def _reason_of(self, name: str) -> str:
        found = (why for pattern, why in self._reasons.items() if fnmatch.fnmatch(name, pattern))
        return next(found, "")


def run_rank(file: str, report: str, arguments: Sequence[str]) -> int:
    """One rank: pytest, with the changes that HOW tells."""
    import pytest

    for name, of in (("HOROVOD_RANK", "RANK"), ("HOROVOD_SIZE", "WORLD_SIZE")):
        os.environ.setdefault(name, os.environ.get(of, "-1"))
    if file in FILES["torch"]:
        hide_muon()
    sys.meta_path.append(Absent())
    for module, names in LACKING.items():
        for one in names:
            setattr(importlib.import_module(module), one, StandIn(one))
    launch: Any = importlib.import_module("horovod.runner.launch")
    launch._run_elastic = run_elastic
    settings: Any = importlib.import_module("horovod.runner.common.util.settings")
    settings.Settings = types.SimpleNamespace  # Made while tests are collected.
    if "adasum" in file:
        lift_skip_without_mpi("torch" if file in FILES["torch"] else "tensorflow")
    rank = os.environ.get("RANK", "0")
    options = [f"--junitxml={report}.{rank}.xml", "-q", "--tb=short", "-p", "no:cacheprovider"]
    deselect = Deselect(f"{report}.{rank}.json", NOT_RUN.get(file, {}))
    return pytest.main([*options, *arguments], plugins=[deselect])


def run_elastic(args: argparse.Namespace) -> None:
    """Runs the job, and raises what Horovod raises if it fails."""
    launch: Any = importlib.import_module("horovod.runner.launch")
    job = subprocess.run(
        launch.command_of(args), env=launch.launchers_environment(args), check=False
    )
    if job.returncode != 0:
        raise RuntimeError(
            "Horovod detected that one or more processes exited with non-zero status"
        )


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


def lift_skip_without_mpi(framework: str) -> None:
    hvd: Any = importlib.import_module(f"horovod.{framework}")
    hvd.mpi_enabled = lambda: True


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


def run_file(python: Path, version: str, file: str, options: argparse.Namespace) -> dict[str, Any]:
    """Runs one file; a job that leaves no report counts as one failure."""
    path = options.checkout.resolve() / "test" / file
    if not path.exists():
        return summary(file, {file: ("failed", "not in this checkout")}, {})
    ranks = 2 if file.startswith("parallel/") else 1
    corro = [str(python.with_name("corro")), "run", "-np", str(ranks), "--"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        rank = [str(python), __file__, "--rank", file, str(report), str(path)]
        rank += [f"--timeout={options.timeout}", *(["-k", options.k] if options.k else [])]
        log = options.out.with_suffix(f".{version.replace(' ', '-')}.{path.stem}.log")
        with log.open("w") as output:
            job = subprocess.run(
                [*(corro if ranks > 1 else []), *rank],
                cwd=folder,
                env=os.environ | (ENVIRONMENT if version.startswith("tensorflow") else {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
        reports = [Path(f"{report}.{number}.xml") for number in range(ranks)]
        if not all(one.exists() for one in reports):
            reason = f"exit status {job.returncode}, no report; see {log}"
            return summary(file, {file: ("failed", reason)}, {})
        left_out = Path(f"{report}.0.json")
        not_run = json.loads(left_out.read_text()) if left_out.exists() else {}
        return summary(file, merge([read_cases(one) for one in reports]), not_run)


def summary(file: str, cases: Cases, not_run: dict[str, str]) -> dict[str, Any]:
    outcomes = [outcome for outcome, _ in cases.values()]
    counts = {name: outcomes.count(name) for name in ("passed", "failed", "skipped")}
    failures = {name: reason for name, (outcome, reason) in cases.items() if outcome == "failed"}
    return {"file": file, **counts, "failures": failures, "not_run": not_run}


def table(version: str, files: Sequence[dict[str, Any]]) -> str:
    lines = [f"{version:48} {'passed':>7} {'failed':>7} {'skipped':>8} {'not run':>8}"]
    for one in files:
        counts = f"{one['passed']:7} {one['failed']:7} {one['skipped']:8} {len(one['not_run']):8}"
        lines.append(f"{one['file']:48} {counts}")
    lines += [
        f"{one['file']}: {name} failed: {reason}"
        for one in files
        for name, reason in one["failures"].items()
    ]
    return "\n".join(lines)


def describe_not_run(files: Sequence[dict[str, Any]]) -> str:
    """Returns the tests that do not run, by reason."""
    lines = []
    for one in files:
        for reason in dict.fromkeys(one["not_run"].values()):
            names = [name for name, why in one["not_run"].items() if why == reason]
            lines.append(f"{one['file']}: not run, because: {reason}: {', '.join(names)}")
    return "\n".join(lines)


def version_of(framework: str, python: Path) -> str:
    """Returns "torch 2.13.0"."""
    command = [str(python), "-c", f"import {framework} as one; print(one.__version__)"]
    quiet = os.environ | ENVIRONMENT
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=quiet)
    return f"{framework} {done.stdout.strip()}"


def runs_asked_for(options: argparse.Namespace) -> Iterator[tuple[str, Path, list[str]]]:
    """Yields (framework and version, Python, files) for the Pythons that have any to run."""
    pythons = {"torch": options.python, "tensorflow": options.tensorflow}
    for framework, files in FILES.items():
        chosen = [file for file in options.files or files if file in files]
        for python in pythons[framework] if chosen else []:
            yield version_of(framework, python), python, chosen


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of Horovod's repository")
    parser.add_argument("files", nargs="*", help="such as parallel/test_torch.py; default: all")
    parser.add_argument("-k", default="", help="only tests that fit, as pytest has it")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one test")
    parser.add_argument("--out", type=Path, default=ROOT / "build/compat/upstream.json")
    for option, what in (("--python", "torch"), ("--tensorflow", "TensorFlow")):
        parser.add_argument(
            option,
            type=Path,
            action="append",
            default=[],
            help=f"with which {what}; may be given several times",
        )
    options = parser.parse_args(argv)
    unknown = set(options.files) - {file for files in FILES.values() for file in files}
    if unknown:
        sys.exit(f"run_upstream: no such file in FILES: {', '.join(sorted(unknown))}")
    if not (options.checkout / "test/parallel").is_dir():
        sys.exit(
            f"run_upstream: {options.checkout} has no test/parallel: is it Horovod's checkout?"
        )

    options.out.parent.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, Any]] = []
    report = {"how": HOW, "k": options.k, "runs": runs}
    for version, python, chosen in runs_asked_for(options):
        files: list[dict[str, Any]] = []
        runs.append({"version": version, "files": files})
        for file in chosen:
            print(f"run_upstream: {version}: {file}", flush=True)
            files.append(run_file(python.absolute(), version, file, options))
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    left_out = [one for run in runs for one in run["files"]]
    print(f"\n{HOW}\n\n{describe_not_run(left_out)}")
    for run in runs:
        print(f"\n{table(run['version'], run['files'])}")
    print(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        sys.exit(run_rank(sys.argv[2], sys.argv[3], sys.argv[4:]))
    sys.exit(main(sys.argv[1:]))
