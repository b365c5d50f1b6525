"""Horovod in an environment of Python of its own: whether it is there, and how its jobs start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FRAMEWORKS = ("torch", "tensorflow")


def horovod_run(environment: Path, ranks: int, *script: str) -> list[str]:
    """Returns the command of a job; `script` is one of Python, and its arguments."""
    programs = environment / "bin"
    launcher = [str(programs / "horovodrun"), "-np", str(ranks), "--gloo"]
    return [*launcher, str(programs / "python"), *script]


def by_framework(environments: str) -> dict[str, Path]:
    """Returns the absolute paths of environments, given with colons between, by the framework whose
    Horovod is there: `torch`, `tensorflow`. Ends this program if one has neither."""
    found: dict[str, Path] = {}
    for environment in (Path(each).absolute() for each in environments.split(":")):
        problems = {name: problem_of(environment, name) for name in FRAMEWORKS}
        if all(problems.values()):
            what = f"HOROVOD_ENV={environment} has no Horovod: {problems['torch']}"
            sys.exit(f'bench: {what}; docs/benchmarks.md, "Horovod", says how to make one that has')
        found |= {name: environment for name, problem in problems.items() if not problem}
    return found


def problem_of(environment: Path, framework: str) -> str:
    """Returns what is wrong, in a line; nothing if all is well."""
    for program in ("python", "horovodrun"):
        if not (environment / "bin" / program).is_file():
            return f"bin/{program} is missing"
    command = [str(environment / "bin/python"), "-c", f"import horovod.{framework}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
