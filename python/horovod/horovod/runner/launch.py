"""horovodrun: reads Horovod's options and becomes a `corro run`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from corro import _front_ends
from horovod import __version__
from horovod.common.settings import stall_warning
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts, under_one_name
from horovod.runner.elastic.options import Elastic
from horovod.runner.options import environment_of, parse_args
from horovod.runner.remote_shell import remote_shell
from horovod.runner.shell_line import split_assignments, without_builtins

__all__ = ["check_build", "command_of", "parse_args", "run_commandline"]


class UsageError(Exception):
    """What the command line asks for cannot be done; the text says why."""


def check_build() -> str:
    """Returns what --check-build prints: Horovod's block, then why frameworks do not work.

    Blocks for seconds: each framework is tried, in a process of its own.
    """
    answers = {one.title: one for one in _front_ends.examine()}

    def box(framework: str) -> str:
        return "[X]" if answers[framework].works else "[ ]"

    lines = "\n".join(f"    {one}" for one in answers.values())

    return f"""\
Horovod v{__version__}:

Available Frameworks:
    {box("TensorFlow")} TensorFlow
    {box("PyTorch")} PyTorch
    {box("MXNet")} MXNet

Available Controllers:
    [ ] MPI
    [X] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] DDL
    [ ] CCL
    [ ] MPI
    [X] Gloo

Tried here:
{lines}
"""


def command_of(args: argparse.Namespace) -> list[str]:
    """Returns the `corro run` that does what was asked for.

    Raises:
        UsageError: it cannot be done.
        ValueError: hosts that are none.
    """
    _refuse(args)
    environment = environment_of(args)
    assigned, program = split_assignments(args.command, environment)
    if not program:
        raise UsageError("no program: horovodrun -np 2 python train.py")
    environment |= assigned
    command = [_corro(), "run", "-np", str(args.num_proc), "--show", "streams"]
    if args.hosts:
        hosts = parse_hosts(args.hosts)
        get_host_assignments(hosts, args.num_proc)  # They do not fit: ValueError.
        command += ["-H", under_one_name(hosts)]
    if args.hostfile:
        command += ["--hostfile", args.hostfile]
    asked = {field.name: getattr(args, field.name) for field in fields(Elastic)}
    command += Elastic(**asked).options(args.num_proc, args.hosts, args.hostfile)
    if args.ssh_port or args.ssh_identity_file:
        command += ["--rsh", remote_shell(args.ssh_port, args.ssh_identity_file)]
    if args.output_filename:
        command += ["--output-dir", args.output_filename]
    if args.prefix_output_with_timestamp:
        command.append("--timestamps")
    long_wait = stall_warning(environment)
    if long_wait is not None:
        command += ["--long-wait", f"{long_wait:g}"]
    if args.verbose:
        command.append("--verbose")
    for name, value in assigned.items():
        command += ["--env", f"{name}={value}"]
    return [*command, "--", *without_builtins(program, environment.get("PATH"))]


def launchers_environment(args: argparse.Namespace) -> dict[str, str]:
    """Returns what `corro run` has: of what the command assigns, the path to its program alone."""
    environment = environment_of(args)
    assigned, _ = split_assignments(args.command, environment)
    return environment | {name: assigned[name] for name in ("PATH",) if name in assigned}


def _refuse(args: argparse.Namespace) -> None:
    if args.use_mpi or args.use_jsrun:
        raise UsageError("there is no MPI and no jsrun here: leave out --mpi and --jsrun")
    if args.num_proc is None:
        raise UsageError("say how many ranks: horovodrun -np 2 python train.py")


def _corro() -> str:
    beside = Path(sysconfig.get_path("scripts"), "corro")
    found = str(beside) if beside.exists() else shutil.which("corro")
    if not found:
        raise UsageError(f"no program {beside}: is corro installed?")
    return found


def run_commandline(argv: Sequence[str] | None = None) -> int:
    """The command horovodrun. Does not return where a job is started: it becomes that job."""
    try:
        args = parse_args(argv)
        if args.version:
            print(__version__)
            return 0
        if args.check_build:
            print(check_build())
            return 0
        command = command_of(args)
        environment = launchers_environment(args)
    except (UsageError, ValueError, OSError) as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return 2
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    sys.exit(run_commandline())
