"""Rows of the engine alone: what an idle group costs, and how soon a killed rank is known."""

from __future__ import annotations

import subprocess
import sys

from jobs import PROGRAMS, corro_run, lines_of, repeated, run


def idle() -> float:
    """CPU time of an idle group: microseconds for each second and rank; the goal is 0.0 %."""
    [line] = run(corro_run(2, str(PROGRAMS / "idle_corro"), "3"))
    return float(line["median_us"])


def loss() -> float:
    """From a rank's kill -9 to the error of the slowest survivor."""
    command = corro_run(4, "--show", "all", str(PROGRAMS / "loss_corro"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    times = [line["median_us"] for line in lines_of(done.stdout)]
    if len(times) != 3:
        sys.exit(f"loss: {len(times)} of 3 survivors\n{done.stdout}{done.stderr}")
    return max(times)


FAMILIES = {
    "idle": repeated("idle", idle, 500.0, (1, 1)),  # It is an average of seconds already.
    "loss": repeated("loss", loss, 100e3, (30, 10), ranks=4),
}
