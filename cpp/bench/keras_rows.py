"""Rows of model.fit(): what other ranks add to a step, beside what back ends have themselves.

The driver is keras_ways.py; keras_cases.py has its models.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiled_rows import ENVIRONMENT, HOROVOD, STRATEGY, environment_of
from horovod_env import horovod_run
from jobs import BENCH, ROOT, Effort, Family, Line, corro_run, note, run, skipped
from processes import free_ports
from rows import Row, compared, timed

DRIVER = str(BENCH / "keras_ways.py")
BAR = 0.3  # Of a peer's.

Round = Mapping[str, list[Line]]  # By peer: what its job printed.


@dataclass(frozen=True)
class Keras:
    """A Keras on a back end; the peer that this back end has itself, the driver's name for it, and
    how many ports it needs."""

    name: str
    environment: Path
    variables: Mapping[str, str]
    peer: str
    way: str
    ports: int = 0

    def round(self, place: str, steps: str) -> Round:
        taken = {}
        for peer, way, ports in (("corro", "hvd", 0), (self.peer, self.way, self.ports)):
            note(f"keras, {self.name}, {place}: {peer}")
            script = [str(self.environment / "bin/python"), DRIVER, way, steps]
            places = map(str, free_ports(ports))
            # Frameworks have threads of their own.
            job = corro_run(2, "--bind", "none", *script, *places)
            taken[peer] = run(job, {**ENVIRONMENT, **self.variables})
        return taken


def measure_tensorflow(effort: Effort) -> list[Row]:
    environment = environment_of("tensorflow")
    if environment is None:
        return []
    if effort.horovod_tensorflow is None:
        skipped("keras: no rows of Horovod: HOROVOD_ENV has none that is for TensorFlow")
    peer = (STRATEGY, "ring", 2)
    kerases = [
        Keras("tensorflow", environment, {"KERAS_BACKEND": "tensorflow"}, *peer),
        Keras("tf_keras", environment, {"TF_USE_LEGACY_KERAS": "1"}, *peer),
    ]
    return rows_of(kerases, effort, effort.horovod_tensorflow)


def measure_torch(effort: Effort) -> list[Row]:
    variables = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}
    return rows_of([Keras("torch", ROOT / ".venv", variables, "ddp-gloo", "ddp")], effort)


def measure_jax(effort: Effort) -> list[Row]:
    environment = environment_of("jax")
    if environment is None:
        return []
    variables = {"KERAS_BACKEND": "jax"}
    return rows_of([Keras("jax", environment, variables, "DataParallel", "gloo", 1)], effort)


def rows_of(kerases: Sequence[Keras], effort: Effort, horovod: Path | None = None) -> list[Row]:
    """`horovod`: its environment; the Keras that is there is a peer of all these."""
    steps = str(effort.of(4, 2))
    taken: dict[str, list[Round]] = {keras.name: [] for keras in kerases}
    for number in range(effort.rounds):
        place = f"round {number + 1}/{effort.rounds}"
        common: dict[str, list[Line]] = {}
        if horovod is not None:
            note(f"keras, {place}: {HOROVOD}")
            common[HOROVOD] = run(horovod_run(horovod, 2, DRIVER, "hvd", steps), ENVIRONMENT)
        for keras in kerases:
            taken[keras.name].append({**keras.round(place, steps), **common})
    return [row for name, rounds in taken.items() for row in rows_of_one(name, rounds)]


def rows_of_one(name: str, rounds: Sequence[Round]) -> list[Row]:
    rows = []
    for case in [line["case"] for line in rounds[0]["corro"]]:
        ours = [line_of(lines["corro"], case) for lines in rounds]
        for peer in rounds[0]:
            theirs = [line_of(lines[peer], case) for lines in rounds]
            check_losses(f"{name}, {case}: {peer}", ours, theirs)
            rows.append(row_of({"case": case, "keras": name, "peer": peer}, ours, theirs))
    return rows


def line_of(lines: Sequence[Line], case: str) -> Line:
    """Returns a job's line of a case, or that of its problem."""
    return next(line for line in lines if line.get("case") == case or "problem" in line)


def check_losses(what: str, ours: Sequence[Line], theirs: Sequence[Line]) -> None:
    for own, other in zip(ours, theirs, strict=True):
        if "problem" not in other and not math.isclose(own["loss"], other["loss"], rel_tol=1e-4):
            sys.exit(f"keras, {what}: its loss is {other['loss']}, and corro's {own['loss']}")


def row_of(known: Mapping[str, str], ours: Sequence[Line], theirs: Sequence[Line]) -> Row:
    """The row of a peer, or of corro itself; times are those of communication."""
    problem = next((line["problem"] for line in theirs if "problem" in line), "")
    if problem:
        nothing = dict.fromkeys(("alone_us", "min_us", "ratios"))
        return Row("keras", {**known, **nothing, "note": problem}, None)
    times = [line["us"] for line in theirs]
    # Not below a microsecond: on a disturbed machine steps of two ranks can be the faster ones.
    ratios = [own["us"] / max(1.0, us) for own, us in zip(ours, times, strict=True)]
    is_corro = known["peer"] == "corro"
    columns = {
        **known,
        "alone_us": statistics.median(line["alone_us"] for line in theirs),
        "min_us": min(line["min_us"] for line in theirs),
        "ratios": None if is_corro else f"{min(ratios):.3g} to {max(ratios):.3g}",
        "note": None,
    }
    middle = statistics.median(times)
    if is_corro:
        return timed("keras", columns, middle)
    return compared("keras", columns, middle, statistics.median(ratios), BAR)


FAMILIES = {
    "keras-tensorflow": Family(measure_tensorflow, quick=False),
    "keras-torch": Family(measure_torch, quick=False),
    "keras-jax": Family(measure_jax, quick=False),
}
