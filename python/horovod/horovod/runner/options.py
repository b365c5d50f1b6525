"""horovodrun's options: how they are spelt, and what each means to the ranks.

Most of them are variables that Horovod's engine reads. A row of TUNING is such an option, with its
place in the YAML file; what the command line says wins over the file.
"""

from __future__ import annotations

import argparse
import difflib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.runner.elastic.options import MOST

LOG_HIDE_TIME = "HOROVOD_LOG_HIDE_TIME"
STALL_CHECK_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"
ON_OFF = "on or off"  # --x and --no-x.


@dataclass(frozen=True)
class Tuning:
    """An option that is a variable of the ranks."""

    name: str  # Of the argument; the option is --name with dashes.
    variable: str
    kind: Any  # int, float, str or ON_OFF.
    place: str  # In the YAML file.
    help: str
    needs: str = ""  # Another argument that has to be given, too.


def _row(
    name: str, kind: Any, place: str, text: str, variable: str = "", needs: str = ""
) -> Tuning:
    return Tuning(name, "HOROVOD_" + (variable or name.upper()), kind, place, text, needs)


TUNING = [
    _row(
        "fusion_threshold_mb",
        int,
        "params.fusion_threshold_mb",
        "bytes of a bucket of tensors, in MiB",
        "FUSION_THRESHOLD",
    ),
    _row("cycle_time_ms", float, "params.cycle_time_ms", "no cycles here", "CYCLE_TIME"),
    _row("cache_capacity", int, "params.cache_capacity", "no cache of names here"),
    _row("hierarchical_allreduce", ON_OFF, "params.hierarchical_allreduce", "hosts as a level"),
    _row("hierarchical_allgather", ON_OFF, "params.hierarchical_allgather", "hosts as a level"),
    _row("torus_allreduce", ON_OFF, "params.torus_allreduce", "hosts as a level"),
    _row("autotune", ON_OFF, "autotune.enabled", "tune what can be tuned"),
    _row("autotune_log_file", str, "autotune.log_file", "its log", "AUTOTUNE_LOG", "autotune"),
    _row("autotune_warmup_samples", int, "autotune.warmup_samples", "of tuning", "", "autotune"),
    _row(
        "autotune_steps_per_sample", int, "autotune.steps_per_sample", "of tuning", "", "autotune"
    ),
    _row(
        "autotune_bayes_opt_max_samples",
        int,
        "autotune.bayes_opt_max_samples",
        "of tuning",
        "",
        "autotune",
    ),
    _row(
        "autotune_gaussian_process_noise",
        float,
        "autotune.gaussian_process_noise",
        "of tuning, 0 to 1",
        "",
        "autotune",
    ),
    _row("timeline_filename", str, "timeline.filename", "file of a timeline", "TIMELINE"),
    _row(
        "timeline_mark_cycles",
        ON_OFF,
        "timeline.mark_cycles",
        "mark cycles in it",
        "",
        "timeline_filename",
    ),
    _row(
        "stall_check_warning_time_seconds",
        int,
        "stall_check.warning_time_seconds",
        "when to say who is waited for",
        "STALL_CHECK_TIME_SECONDS",
    ),
    _row(
        "stall_check_shutdown_time_seconds",
        int,
        "stall_check.shutdown_time_seconds",
        "when to give up waiting",
        "STALL_SHUTDOWN_TIME_SECONDS",
    ),
    _row("mpi_threads_disable", ON_OFF, "library_options.mpi_threads_disable", "no MPI here"),
    _row("num_nccl_streams", int, "library_options.num_nccl_streams", "no NCCL here"),
    _row("thread_affinity", int, "library_options.thread_affinity", "see corro run --bind"),
    _row(
        "gloo_timeout_seconds",
        int,
        "library_options.gloo_timeout_seconds",
        "deadline of an operation",
    ),
    _row("log_level", str, "logging.level", "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL"),
]
LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
# What the file has beside TUNING.
OTHER_PLACES = (
    "controller",
    "stall_check.enabled",
    "logging.with_timestamp",
    "logging.hide_timestamp",
)


class _Given(argparse.Action):
    """Notes that the command line has said something: the file does not change it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        del parser, option_string
        namespace.given.add(self.dest)
        setattr(namespace, self.dest, self.const if self.nargs == 0 else values)


def _add_on_off(group: Any, name: str, text: str) -> None:
    option = name.replace("_", "-")
    for spelling, value in ((f"--{option}", True), (f"--no-{option}", False)):
        group.add_argument(
            spelling,
            action=_Given,
            nargs=0,
            const=value,
            dest=name,
            default=None,
            help=text if value else argparse.SUPPRESS,
        )


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of horovodrun's command line."""
    parser = argparse.ArgumentParser(
        "horovodrun",
        description="Starts a program on several ranks, as Horovod's launcher does, by corro run.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-v", "--version", action="store_true", help="print the version")
    add("-np", "--num-proc", type=int, help="number of ranks")
    add("-cb", "--check-build", action="store_true", help="print what is there, and end")
    add("--disable-cache", action="store_true", help="nothing is cached here")
    add("--start-timeout", type=int, help="starting takes less than a second here")
    add(
        "--network-interfaces",
        "--network-interface",
        dest="nics",
        action="append",
        help="such as eth0,eth1; by which hosts reach each other",
    )
    add("--output-filename", metavar="DIR", help="folder for rank.N/stdout and stderr")
    add("--verbose", action="store_true", help="say what is done")
    add("--config-file", metavar="FILE", help="options in YAML")
    add("-p", "--ssh-port", type=int, help="port of ssh on all hosts")
    add("-i", "--ssh-identity-file", metavar="FILE", help="key for ssh")
    add(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        action="store_true",
        help="put the time in front of every line",
    )
    tuning = parser.add_argument_group("tuning", "variables of the ranks")
    for row in TUNING:
        if row.kind is ON_OFF:
            _add_on_off(tuning, row.name, row.help)
        else:
            tuning.add_argument(
                "--" + row.name.replace("_", "-"),
                action=_Given,
                type=row.kind,
                choices=LEVELS if row.name == "log_level" else None,
                help=row.help,
            )
    for spelling, value in (("--stall-check", False), ("--no-stall-check", True)):
        tuning.add_argument(
            spelling, action=_Given, nargs=0, const=value, dest="no_stall_check", default=None
        )
    for spelling, value in (("--log-with-timestamp", True), ("--log-without-timestamp", False)):
        tuning.add_argument(
            spelling, action=_Given, nargs=0, const=value, dest="log_with_timestamp", default=None
        )
    tuning.add_argument("--log-hide-timestamp", action="store_true", help=argparse.SUPPRESS)
    tuning.add_argument("--no-log-hide-timestamp", action="store_true", help=argparse.SUPPRESS)
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument("-H", "--hosts", help="hosts and their slots: a:2,b:4")
    hosts.add_argument("-hostfile", "--hostfile", metavar="FILE", help="a line each: a slots=2")
    hosts.add_argument("--host-discovery-script", metavar="FILE", help="which prints such hosts")
    _add_elastic(parser.add_argument_group("elastic jobs", "which ranks join and leave"))
    mpi = parser.add_argument_group("MPI's, which is not used here")
    mpi.add_argument("--mpi-args")
    mpi.add_argument("--tcp", dest="tcp_flag", action="store_true")
    mpi.add_argument("--binding-args")
    controller = parser.add_mutually_exclusive_group()
    controller.add_argument("--gloo", dest="use_gloo", action="store_true", help="changes nothing")
    controller.add_argument("--mpi", dest="use_mpi", action="store_true", help="not there")
    controller.add_argument("--jsrun", dest="use_jsrun", action="store_true", help="not there")
    add("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser


def _add_elastic(group: Any) -> None:
    group.add_argument(
        "--min-np",
        "--min-num-proc",
        dest="min_num_proc",
        type=int,
        help="go on with so many ranks, or wait for them; -np",
    )
    group.add_argument(
        "--max-np",
        "--max-num-proc",
        dest="max_num_proc",
        type=int,
        help=f"start ranks until there are so many; the slots of -H, or {MOST}",
    )
    group.add_argument(
        "--slots-per-host", dest="slots", type=int, help="of hosts that the script prints without"
    )
    group.add_argument("--elastic-timeout", type=int, help="seconds to wait for enough ranks; 600")
    group.add_argument("--reset-limit", type=int, help="how often ranks may come or go; no limit")
    group.add_argument(
        "--blacklist-cooldown-range",
        dest="cooldown_range",
        type=int,
        nargs=2,
        metavar=("MIN", "MAX"),
        help="seconds until the place of a rank that has failed again is used again; 1 300",
    )


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line (sys.argv if not given) and the file that it names.

    Raises:
        ValueError: a value below 0, or a key of the file that is not known.
    """
    args = make_parser().parse_args(argv, argparse.Namespace(given=set()))
    for flag, value in (("log_hide_timestamp", False), ("no_log_hide_timestamp", True)):
        if getattr(args, flag):
            warnings.warn(
                f"--{flag.replace('_', '-')} is deprecated: use --log-with-timestamp or "
                "--log-without-timestamp",
                DeprecationWarning,
                stacklevel=2,
            )
            args.log_with_timestamp = value
    if args.config_file:
        _take_file(args, _read_file(args.config_file))
    _validate(args)
    return args


def _read_file(path: str) -> Mapping[str, Any]:
    import yaml

    with open(path) as file:
        try:
            content = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise ValueError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if content is not None and not isinstance(content, dict):
        raise ValueError(f"{path}: expected sections with keys, as in: params:")
    return content or {}


def _take_file(args: argparse.Namespace, content: Mapping[str, Any]) -> None:
    rows = {row.place: row for row in TUNING}
    for place, value in _places(content):
        if place in rows:
            _check_value(args.config_file, place, rows[place].kind, value)
            _take(args, rows[place].name, value)
        elif place == "controller":
            if value not in ("gloo", "mpi"):
                raise ValueError(f"{args.config_file}: controller: gloo or mpi, not {value!r}")
            if not (args.use_gloo or args.use_mpi or args.use_jsrun):
                setattr(args, f"use_{value}", True)
        elif place == "stall_check.enabled":
            _check_value(args.config_file, place, ON_OFF, value)
            _take(args, "no_stall_check", not value)
        elif place == "logging.with_timestamp":
            _take(args, "log_with_timestamp", value)
        elif place != "logging.hide_timestamp":
            near = difflib.get_close_matches(place, [*rows, *OTHER_PLACES], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{args.config_file}: {place} is not known{hint}")


def _check_value(file: str, place: str, kind: Any, value: Any) -> None:
    """Raises ValueError if the value is none of this kind."""
    if kind is ON_OFF:
        fits, wanted = isinstance(value, bool), "true or false"
    elif kind is str:
        fits, wanted = isinstance(value, str | int | float), "a word"
    else:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        wanted = "a number"
    if not fits:
        raise ValueError(f"{file}: {place}: {wanted} is needed, not {value!r}")


def _places(content: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns the keys that have a value."""
    places: list[tuple[str, Any]] = []
    for section, value in content.items():
        if isinstance(value, dict):
            places += [(f"{section}.{key}", inner) for key, inner in value.items()]
        else:
            places.append((section, value))
    return [(place, value) for place, value in places if value is not None]


def _take(args: argparse.Namespace, name: str, value: Any) -> None:
    if name not in args.given:
        setattr(args, name, value)


def _validate(args: argparse.Namespace) -> None:
    for row in TUNING:
        value = getattr(args, row.name)
        if row.kind in (int, float) and value is not None and value < 0:
            raise ValueError(f"{row.name}={value} must be >= 0")
    noise = args.autotune_gaussian_process_noise
    if noise is not None and noise > 1:
        raise ValueError(f"autotune_gaussian_process_noise={noise} must be in [0, 1]")


def variables_of(args: argparse.Namespace) -> dict[str, str]:
    """Returns the ranks' variables that the options ask for."""
    variables: dict[str, str] = {}
    for row in TUNING:
        value = getattr(args, row.name)
        if value is None or (row.needs and not getattr(args, row.needs)):
            continue
        if row.name == "autotune" and not value:
            continue
        if row.name == "fusion_threshold_mb":
            value *= 1024 * 1024
        variables[row.variable] = str(int(value) if row.kind is ON_OFF else row.kind(value))
    if args.no_stall_check:
        variables[STALL_CHECK_DISABLE] = "1"
    if args.log_with_timestamp is not None:
        variables[LOG_HIDE_TIME] = "0" if args.log_with_timestamp else "1"
    if args.nics:
        variables["NCCL_SOCKET_IFNAME"] = ",".join(args.nics)
    return variables


def environment_of(args: argparse.Namespace) -> dict[str, str]:
    """Returns this process's environment with these variables."""
    return {**os.environ, **variables_of(args)}
