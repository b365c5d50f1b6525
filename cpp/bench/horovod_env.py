"""Horovod in an environment of Python of its own: whether it is there, and how its jobs start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def horovod_run(environment: Path, ranks: int, *script: str) -> list[str]:
    """Returns the command of a job; `script` is one of Python, and its arguments."""
    programs = environment / "bin"
    launcher = [str(programs / "horovodrun"), "-np", str(ranks), "--gloo"]
    return [*launcher, str(programs / "python"), *script]


def checked(environment: Path) -> Path:
    """Returns the absolute path; ends this program unless Horovod for torch can be used there."""
    environment = environment.absolute()
    problem = problem_of(environment)
    if problem:
        what = f"HOROVOD_ENV={environment} has no Horovod for torch: {problem}"
        sys.exit(f'bench: {what}; docs/benchmarks.md, "Horovod", says how to make one that has')
    return environment


def problem_of(environment: Path) -> str:
    """Returns what is wrong, in a line; nothing if all is well."""
    for program in ("python", "horovodrun"):
        if not (environment / "bin" / program).is_file():
            return f"bin/{program} is missing"
    command = [str(environment / "bin/python"), "-c", "import horovod.torch"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
