"""Rows of allreduces inside functions that a framework compiles: a tf.function, a jax.jit.

The drivers are compiled_tensorflow.py and compiled_jax.py; compiled_cases.py has their cases.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compiled_cases import CASES
from horovod_env import horovod_run
from jobs import BENCH, OUT, PROGRAMS, ROOT, Effort, Family, Line, corro_run, note, run, skipped
from processes import free_ports
from rows import Row, compared, timed

Job = Callable[[], list[str]]  # Makes the command of a round.
Taken = Mapping[str, list[dict[str, Line]]]  # By peer: each round's lines, by case.

ENGINE = "engine, by name"
ONE, IN_A_ROW = CASES[0][0], CASES[-1][0]
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclass(frozen=True)
class Bars:
    """What corro may take of a peer's time, by peer and case, and microseconds that an allreduce in
    a row may take beyond the engine's."""

    of_peers: Mapping[str, Mapping[str, float]]
    extra_us: float


HOROVOD, STRATEGY = "horovod", "MultiWorkerMirrored"
MPI4JAX, GLOO = "mpi4jax", "jax gloo"
SIZES = [case for case, *_ in CASES[:-1]]
TENSORFLOW_BARS = Bars(
    {
        HOROVOD: dict(zip(SIZES, (0.1, 0.15, 0.3), strict=True)),
        STRATEGY: dict.fromkeys(SIZES, 0.3),
    },
    extra_us=20,
)
JAX_BARS = Bars({peer: dict.fromkeys(SIZES, 0.5) for peer in (MPI4JAX, GLOO)}, extra_us=10)


def environment_of(framework: str) -> Path | None:
    """The environment with which a framework's front end is tested, if it has been made."""
    environment = ROOT / f".venv-{framework}"
    if (environment / "bin/python").exists():
        return environment
    skipped(f"{framework}: there is no {environment.name}, which `make test-setup` makes")
    return None


def in_corros_job(environment: Path, driver: str, *arguments: str, ports: int = 0) -> Job:
    """A job of two ranks that may use all processors: frameworks have threads of their own."""
    python, script = str(environment / "bin/python"), str(BENCH / driver)

    def command() -> list[str]:
        places = map(str, free_ports(ports))
        return corro_run(2, "--bind", "none", python, script, *arguments, *places)

    return command


def engines_job(effort: Effort) -> list[str]:
    seconds = str(effort.of(2, 1))
    program = str(PROGRAMS / "allreduce_corro")
    return corro_run(2, "--bind", "none", program, "named", seconds, "4")


# -- TensorFlow -----------------------------------------------------------------------------------


def measure_tensorflow(effort: Effort) -> list[Row]:
    environment = environment_of("tensorflow")
    if environment is None:
        return []
    driver, samples = "compiled_tensorflow.py", str(effort.of(200, 60))
    jobs = {
        "corro": in_corros_job(environment, driver, "hvd", samples),
        STRATEGY: in_corros_job(environment, driver, "ring", samples, ports=2),
    }
    horovod = effort.horovod_tensorflow
    if horovod is None:
        skipped("tensorflow: no rows of Horovod: HOROVOD_ENV has none that is for TensorFlow")
    else:
        jobs[HOROVOD] = lambda: horovod_run(horovod, 2, str(BENCH / driver), "hvd", samples)
    return rows_of("tensorflow", in_turns("tensorflow", effort, jobs), TENSORFLOW_BARS)


# -- JAX ------------------------------------------------------------------------------------------


def measure_jax(effort: Effort) -> list[Row]:
    environment = environment_of("jax")
    if environment is None:
        return []
    driver, samples = "compiled_jax.py", str(effort.of(200, 60))
    jobs = {
        "corro": in_corros_job(environment, driver, "corro", samples),
        GLOO: in_corros_job(environment, driver, "gloo", samples, ports=1),
    }
    programs = OUT / "mpi4jax/bin"
    if (programs / "mpirun").exists():
        jobs[MPI4JAX] = lambda: mpi_run(programs, str(BENCH / driver), "mpi4jax", samples)
    else:
        skipped(
            "jax: no rows of mpi4jax: build/bench/mpi4jax, which `make bench` makes, is missing"
        )
    return rows_of("jax", in_turns("jax", effort, jobs), JAX_BARS)


def mpi_run(programs: Path, *script: str) -> list[str]:
    """Open MPI with its defaults, which wait for a message without giving the processor away."""
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    launcher = [str(programs / "mpirun"), "-np", "2", "--bind-to", "none", *as_root]
    return [*launcher, str(programs / "python"), *script]


# -- Both -----------------------------------------------------------------------------------------


def in_turns(op: str, effort: Effort, jobs: Mapping[str, Job]) -> Taken:
    taken: dict[str, list[dict[str, Line]]] = {peer: [] for peer in [*jobs, ENGINE]}
    for number in range(effort.rounds):
        place = f"{op}, round {number + 1}/{effort.rounds}"
        for peer, job in jobs.items():
            note(f"{place}: {peer}")
            taken[peer].append({line["case"]: line for line in run(job(), ENVIRONMENT)})
        note(f"{place}: {ENGINE}")
        [line] = run(engines_job(effort))
        alone = {"min_us": line["min_us"], "us": line["median_us"]}
        taken[ENGINE].append({IN_A_ROW: alone})
    return taken


def rows_of(op: str, taken: Taken, bars: Bars) -> list[Row]:
    rows = []
    for case, *_ in CASES:
        for peer, rounds in taken.items():
            if case not in rounds[0]:
                continue
            times = [line[case]["us"] for line in rounds]
            ratios = [ours[case]["us"] / us for ours, us in zip(taken["corro"], times, strict=True)]
            columns = columns_of(case, peer, min(line[case]["min_us"] for line in rounds), ratios)
            median = statistics.median(times)
            if peer == "corro":
                rows.append(timed(op, columns, median))
                continue
            bar = bars.of_peers.get(peer, {}).get(case)
            rows.append(compared(op, columns, median, statistics.median(ratios), bar))
    return [*rows, extra_row(op, taken, bars.extra_us)]


def extra_row(op: str, taken: Taken, bar: float) -> Row:
    """What an allreduce in a row takes longer than the engine alone."""
    pairs = list(zip(taken["corro"], taken[ENGINE], strict=True))
    extra = [ours[IN_A_ROW]["us"] - alone[IN_A_ROW]["us"] for ours, alone in pairs]
    columns = columns_of(f"{IN_A_ROW}, beyond the engine", "corro", min(extra), [])
    return timed(op, columns, statistics.median(extra), bar)


def columns_of(case: str, peer: str, least: float, ratios: list[float]) -> dict[str, object]:
    """`ratios`: corro's time by the peer's, of each round."""
    spread = "" if peer == "corro" else f"{min(ratios):.3g} to {max(ratios):.3g}"
    return {"case": case, "peer": peer, "min_us": least, "ratios": spread}


FAMILIES = {
    "tensorflow": Family(measure_tensorflow, quick=False),
    "jax": Family(measure_jax, quick=False),
}
