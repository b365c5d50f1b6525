"""What running ranks count is seen from outside, and grows."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from .conftest import Launcher, wait_until

pytestmark = pytest.mark.faults

COUNTING = """
import time
import corro
import corro.numpy as cn

corro.init()
step = 0
while True:
    cn.allreduce(float(step))
    corro.set_step(step := step + 1)
    time.sleep(0.001)
"""
SAMPLE = re.compile(
    r'(corro_\w+)\{job="([^"]+)",host="([^"]+)",rank="(\d)",pid="(\d+)"(.*)\} [\d.e+-]+'
)


def own_name(name: str) -> str:
    """That of the metric which Prometheus knows by this name: its times are in seconds."""
    return name.removeprefix("corro_").removesuffix("_total").replace("_seconds", "_ns")


class Ranks:
    """Two ranks that reduce for ever."""

    def __init__(self, launcher: Launcher, *options: str) -> None:
        self.program = launcher.program
        script = launcher.script(COUNTING)
        self.job = launcher.start("-np", 2, *options, script)
        wait_until(self.step_together, "both ranks take steps")

    def doctor(self, *options: str) -> str:
        command = [self.program, "doctor", *options, str(self.job.process.pid)]
        return subprocess.run(command, capture_output=True, check=False, text=True).stdout

    def metrics(self) -> list[dict[str, Any]]:
        """By rank."""
        return [patient["metrics"] for patient in json.loads(self.doctor("--json") or "[]")]

    def step_together(self) -> bool:
        return [one.get("step", 0) > 3 for one in self.metrics()] == [True, True]

    def end(self) -> None:
        self.job.process.terminate()
        self.job.process.communicate()


def test_the_doctor_shows_counters_that_grow(launcher: Launcher) -> None:
    ranks = Ranks(launcher, "--env", "CORRO_TRANSPORT=tcp")
    first = ranks.metrics()

    def more() -> bool:
        now = ranks.metrics()
        grown = ("ops", "step", "polls")
        return all(
            all(after[name] > before[name] for name in grown)
            and after["bytes_sent"]["tcp"] > before["bytes_sent"]["tcp"]
            and after["messages_received"]["tcp"] > before["messages_received"]["tcp"]
            for before, after in zip(first, now, strict=True)
        )

    wait_until(more, "every rank has counted more")
    for one in ranks.metrics():
        assert (one["ranks"], one["groups"], one["failures"], one["ranks_lost"]) == (2, 1, 0, 0)
        assert one["bytes_sent"]["shm"] == 0
    head, *lines = ranks.doctor().splitlines()
    assert head.split()[-4:] == ["ops", "failed", "sent", "received"]
    assert (
        len([line for line in lines if re.search(r"\d+ +0 +\d+ [KM]?i?B +\d+ [KM]?i?B$", line)])
        == 2
    )
    ranks.end()


def test_prometheus_gets_every_metric_of_every_rank(launcher: Launcher) -> None:
    ranks = Ranks(launcher)
    known = ranks.metrics()[0]
    assert known["arena_bytes"] > 0, "the memory in which they meet"
    text = ranks.doctor("--metrics")
    ranks.end()
    assert text.endswith("\n")
    found: dict[str, set[str]] = {}
    text, histograms = text.split("# HELP corro_step_duration_seconds ")
    for name in ("corro_step_duration_seconds", "corro_step_wait_duration_seconds"):
        assert (
            len(re.findall(rf'^{name}_bucket{{.*le="\+Inf"}} \d+$', histograms, re.MULTILINE)) == 2
        )
        assert len(re.findall(rf"^{name}_(?:sum|count){{.*}} \S+$", histograms, re.MULTILINE)) == 4
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found[name] = set()
            assert name.endswith("_total") == (kind == "counter")
        elif not line.startswith("# HELP "):
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            assert sample[1] in found, "described before it is shown"
            assert sample[4] + sample[6] not in found[sample[1]], "there twice"
            found[sample[1]].add(sample[4] + sample[6])
    assert {own_name(name) for name in found} == known.keys()
    for name, samples in found.items():
        transports = known[own_name(name)]
        assert len(samples) == 2 * (len(transports) if isinstance(transports, dict) else 1)
