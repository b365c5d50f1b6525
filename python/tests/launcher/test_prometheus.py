"""What Prometheus is given has the names, units and texts that its users expect."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from urllib.parse import urlsplit

import pytest
from prometheus_rules import by_rules, problems

from .conftest import DEADLINE, Launcher, wait_until

COUNTING = """
import os, time
import corro
import corro.numpy

corro.init()
step = 0
going = True
while going:
    corro.set_step(step := step + 1)
    going = corro.numpy.allreduce(float(not os.path.exists("end")), corro.Min) > 0
    time.sleep(0.02)
"""
ADDRESS = re.compile(r"^dashboard  (\S+)\n", re.MULTILINE)


def metrics_of(url: str) -> str:
    """Returns what the dashboard at this address says to Prometheus."""
    parts = urlsplit(url)
    bearer = {"Authorization": "Bearer " + parts.query.removeprefix("token=")}
    request = urllib.request.Request(f"http://{parts.netloc}/metrics", headers=bearer)
    with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
        return str(reply.read().decode())


def test_metrics_of_ranks_and_of_the_job_are_well_named(launcher: Launcher) -> None:
    screen = launcher.directory / "screen"
    with screen.open("wb") as shown:
        job = launcher.start(
            *("--dashboard", "127.0.0.1:0", "-np", 2, launcher.script(COUNTING)),
            stderr=shown,
        )
    wait_until(lambda: ADDRESS.search(screen.read_text()) is not None, "an address")
    url = ADDRESS.findall(screen.read_text())[0]
    wait_until(lambda: "corro_job_step_min" in metrics_of(url), "steps")
    of_job = metrics_of(url)
    doctor = [launcher.program, "doctor", "--metrics", str(job.process.pid)]
    of_ranks = subprocess.run(doctor, capture_output=True, check=True, text=True).stdout
    (launcher.directory / "end").touch()
    job.wait()
    assert "corro_ops_total" in of_ranks
    assert problems(of_job) == []
    assert problems(of_ranks) == []


GOOD = """# HELP corro_a_seconds How long.
# TYPE corro_a_seconds histogram
corro_a_seconds_bucket{le="1"} 0
corro_a_seconds_bucket{le="+Inf"} 0
corro_a_seconds_sum 0
corro_a_seconds_count 0
# HELP corro_b_total How many.
# TYPE corro_b_total counter
corro_b_total{host="a\\\\n\\"}",rank="1"} 3
"""


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("corro_b_total", "corro_b", "counters end in _total"),
        (" counter", " gauge", "counters end in _total"),
        ("corro_a_seconds", "corro_a_milliseconds", "milliseconds is no base unit"),
        ("corro_a_seconds", "corro_aB_seconds", "parted by _"),
        ("corro_b_total", "corro_b_counter_total", "its type in its name"),
        ("# HELP corro_b_total How many.\n", "", "TYPE and HELP"),
        (" histogram", " gauge", "belongs to histograms"),
        (" 3\n", " three\n", "no number"),
        (',rank="1"', ",rank=1", "not well formed"),
        (',rank="1"', ',host="1"', "a label is there twice"),
    ],
)
def test_rules_of_our_own_find(was: str, becomes: str, said: str) -> None:
    assert list(by_rules(GOOD)) == []
    assert any(said in problem for problem in by_rules(GOOD.replace(was, becomes)))
