"""schedule_corro.py SCHEDULE TIMES: steps of four stages that wait instead of computing.

    corro run -np 4 --show 0 python cpp/bench/schedule_corro.py zero_bubble 10

SCHEDULE is that of the planner's pin. The plan's own graph runs, each service for as long as the
planner says that it takes; slots are empty. A step is eight micro-batches, from a state in which
all ranks are idle to one in which all are done.

Rank 0 prints {"us": 1.0, "theory_us": 1.0, "simulated_us": 1.0}: the median of the slowest rank's
steps, the step of the literature, and what the planner simulates.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import corro
from corro.planned import Planned

STAGES, MICRO_BATCHES = 4, 8
MODEL = {"layers": 16, "hidden": 1024, "heads": 16, "vocabulary": 2048, "sequence": 128}


def planned(schedule: str) -> Planned:
    """Returns a plan whose services take some milliseconds each, and whose links take nothing."""
    device = {"memory": "64 GB", "peak": {"bf16": "2 TFLOP/s"}, "memory_bandwidth": "10 TB/s"}
    link = {"bandwidth": "5 TB/s", "latency": "1 us"}
    host = {"name": "here", "device": "core", "devices": STAGES, "link": link}
    cluster = {"corro_cluster": 1, "name": "here", "devices": {"core": device}, "hosts": [host]}
    pins = {"pipeline": STAGES, "data": 1, "tensor": 1, "micro_batch": 1, "schedule": schedule}
    if schedule == "interleaved":
        pins["chunks"] = 2
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        path.write_text(json.dumps(MODEL))
        pins |= {"recompute": "none", "zero": 0, "offload": "off"}
        return corro.plan(str(path), cluster, global_batch=MICRO_BATCHES, pins=pins)


def theory(decided: Planned) -> float:
    """Returns the step in seconds: of zero bubble that of ZB-H1 (Qi et al., "Zero Bubble Pipeline
    Parallelism", 2023, section 2.3), else the planner's formula, which is that of 1F1B and of
    interleaving (Narayanan et al., SC'21, section 2.2)."""
    if decided.decisions.shape.schedule != "zero_bubble":
        return decided.step
    took = {each.name: each.duration_ns / 1e9 for each in decided.graph.services}
    stages = [tuple(took[f"{kind}{stage}"] for kind in "FBW") for stage in range(STAGES)]
    bubbles = sorted(forward + backward - weights for forward, backward, weights in stages)
    return MICRO_BATCHES * max(map(sum, stages)) + sum(bubbles[:-1])


def simulated(decided: Planned) -> float:
    """Returns the step in seconds, as the report says it, in three digits."""
    found = re.search(r"simulated ([\d.]+) ms", decided.text)
    assert found is not None, decided.text
    return float(found.group(1)) / 1e3


def main() -> None:
    schedule, times = sys.argv[1], int(sys.argv[2])
    corro.init()
    decided = planned(schedule)
    graph = replace(
        decided.graph,
        channels=tuple(replace(each, slot_bytes=0) for each in decided.graph.channels),
    )
    seconds = {each.name: each.duration_ns / 1e9 for each in graph.services}

    def wait(firing: corro.Firing) -> None:
        end = time.monotonic() + seconds[firing.service]
        time.sleep(max(0.0, end - time.monotonic()))

    functions = {each.name: wait for each in graph.services if each.operation is None}
    taken = []
    with corro.load_plan(graph) as loaded:
        for number in range(times + 1):
            corro.barrier()
            begin = time.monotonic()
            loaded.run((number + 1) * MICRO_BATCHES, functions)
            taken.append(max(corro.allgather_object(time.monotonic() - begin)))
    if corro.rank() == 0:
        figures = {
            "us": statistics.median(taken[1:]),
            "theory_us": theory(decided),
            "simulated_us": simulated(decided),
        }
        print(json.dumps({key: value * 1e6 for key, value in figures.items()}), flush=True)


if __name__ == "__main__":
    main()
