"""Rows of the planner: how long answers take, as whole processes, and how right they are.

What others need is from their publications, or was measured with their programs on one core of two
that were busy with other work; they are not part of the run.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import OTHER, hosts_with_ssh, netns
from jobs import CORRO, OUT, PROGRAMS, ROOT, Effort, Family, run
from rows import Columns, Row, compared, timed

CLUSTERS = ROOT / "examples/plan"
INSTANCES = ROOT / "cpp/src/plan/partition/instances"
MEASURED = ROOT / "cpp/src/plan/cost/measured/megatron_a100_steps.csv"
SECOND_US = 1e6

# Model, hosts of 8 A100, samples of a step, bar in seconds; what others need.
PLANS = [
    ("gpt3-175b", 128, 1536, 1.0, "Piper 87 s, Aceso 200 s, Alpa 2393 s"),
    ("gpt3-175b", 127, 1536, 0.2, "after losing a host"),
    ("llama3-405b", 2048, 4096, 10.0, "16 384 devices, dense"),
    ("deepseek-v3", 256, 4096, 10.0, "2 048 devices, 256 experts"),
]
GAP_BAR = 0.10

# Instance, options, its optimum, seconds of the published program.
PARTITIONS = [
    ("pipeline_bert24_inference.json", [], 17.7899, 0.004),
    ("pipeline_gnmt_inference.json", [], 32.9107, 16.5),
    ("pipeline_resnet50_inference.json", [], 33.7747, 0.11),
    ("pipeline_bert_l-3_inference.json", [], 27.9186, 0.87),
    ("pipeline_bert_l-3_training.json", [], 65.3031, 5.3),
    *[
        (
            "piper_bert32_a100.json",
            f"--devices {devices} --micro-batches 1920 --bandwidth {25 << 30}"
            f" --memory {memory << 30}".split(),
            optimum,
            seconds,
        )
        for memory, devices, optimum, seconds in [
            (8, 8, 0.165856, 0.059),
            (8, 64, 0.0202006, 0.27),
            (8, 512, 0.00256113, 4.3),
            (8, 1024, 0.00130318, 19.9),
            (80, 8, 0.122007, 0.061),
            (80, 64, 0.0156502, 0.38),
            (80, 512, 0.00227252, 5.4),
            (80, 1024, 0.00115876, 21.6),
        ]
    ],
]


def _corro(*arguments: str) -> str:
    done = subprocess.run(
        [str(CORRO), *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        sys.exit(f"corro {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _hosts(count: int, folder: Path) -> Path:
    """The example's cluster with another number of hosts."""
    text = (CLUSTERS / "a100_1024.yaml").read_text()
    path = folder / f"hosts{count}.yaml"
    path.write_text(text.replace("count: 128", f"count: {count}"))
    return path


def measure_planner(effort: Effort) -> list[Row]:
    rows = []
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUT) as folder:
        for model, hosts, batch, bar, known in PLANS:
            cluster = str(_hosts(hosts, Path(folder)))
            out = str(Path(folder) / "plan.json")
            arguments = ["plan", "--model", model, "--cluster", cluster]
            arguments += ["--global-batch", str(batch)]
            took = []
            for _ in range(effort.of(5, 1)):
                start = time.monotonic()
                _corro(*arguments)
                took.append((time.monotonic() - start) * SECOND_US)
            case = f"{model}, {hosts} hosts"
            rows.append(
                timed(
                    "planner",
                    {"case": case, "known": known},
                    statistics.median(took),
                    bar * SECOND_US,
                )
            )
            _corro(*arguments, "--json", out)
            gap = json.loads(Path(out).read_text())["certificates"]["gap"]
            columns = {"case": f"{case}: certified gap", "known": "no one else has one"}
            rows.append(_judged("planner", columns, gap, GAP_BAR))
        rows.append(_largest_gap(Path(folder)))
    line = run([str(PROGRAMS / "eliminate")])[-1]
    columns = {"case": "96-block graph, exactly", "known": "CBC 49 s"}
    rows.append(timed("planner", columns, float(line["median_us"]), 20_000))
    return rows


MODELS_OF_GAPS = [
    "gpt3-13b",
    "gpt3-175b",
    "llama3-70b",
    "llama3-405b",
    "mixtral-8x7b",
    "mixtral-8x22b",
]


def _largest_gap(folder: Path) -> Row:
    """Of what fits, for both trainers."""
    largest = 0.0
    out = folder / "gap.json"
    for cluster in sorted(CLUSTERS.glob("*.yaml")):
        if not cluster.read_text().count("corro_cluster"):
            continue
        for model in MODELS_OF_GAPS:
            for trainer in ("corro", "megatron"):
                command = [str(CORRO), "plan", "--model", model, "--cluster", str(cluster)]
                command += ["--trainer", trainer, "--json", str(out)]
                done = subprocess.run(command, capture_output=True, timeout=300, check=False)
                if done.returncode == 0:
                    largest = max(largest, json.loads(out.read_text())["certificates"]["gap"])
    columns = {"case": "largest gap on examples/plan", "known": "no one else has one"}
    return _judged("planner", columns, largest, GAP_BAR)


def _judged(op: str, columns: Columns, found: float, bar: float) -> Row:
    """A row of what is no time."""
    return Row(op, columns, None, found, bar, found <= bar)


def measure_partitions(effort: Effort) -> list[Row]:
    rows = []
    for name, options, optimum, published in PARTITIONS:
        took = []
        for _ in range(effort.of(5, 1)):
            answer = json.loads(_corro("plan", "partition", str(INSTANCES / name), *options))
            if abs(answer["objective"] / optimum - 1) > 1e-4:
                sys.exit(f"{name}: {answer['objective']} is not the optimum, {optimum}")
            took.append(answer["seconds"] * SECOND_US)
        case = name.removesuffix(".json")
        if options:
            case += f", {options[1]} devices, {int(options[7]) >> 30} GiB"
        median = statistics.median(took)
        columns = {"case": case, "published_us": published * SECOND_US}
        rows.append(compared("partition", columns, median, median / SECOND_US / published, 1.0))
    return rows


MODELS = ("gpt", "perceptron")
STEP_BAR, MEMORY_BAR, PICK_BAR = 0.10, 0.10, 0.05


def measure_measured(effort: Effort) -> list[Row]:
    """All plans of two models on two hosts, a core of each, 1 Gbit/s between them."""
    if reason := netns.refusal():
        print(f"planner measured: left out: {reason}", file=sys.stderr)
        return []
    rows = []
    for model in MODELS[: effort.of(len(MODELS), 1)]:
        result = _measured(model)
        for what, key, bar in [
            ("step time, mean error", "step_error", STEP_BAR),
            ("memory, mean error", "memory_error", MEMORY_BAR),
            ("the pick behind the fastest", "picked_behind", PICK_BAR),
        ]:
            columns = {"case": f"{model}: {what}", "known": ""}
            rows.append(_judged("planner measured", columns, result[key], bar))
    return rows


def _measured(model: str) -> dict[str, float]:
    with hosts_with_ssh() as hosts:
        hosts.hosts.limit("1gbit")
        path = OUT / f"measured_{model}.json"
        done = subprocess.run(
            hosts.command(
                *(str(CORRO), "plan", "--measure", "-H", f"localhost,{OTHER}"),
                *("--model", f"{CLUSTERS / 'gpt_small.py'}:{model}"),
                *("--cluster", str(CLUSTERS / "cpu_2_hosts.yaml"), "--json", str(path)),
            ),
            env=hosts.environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
    if done.returncode != 0:
        sys.exit(f"corro plan --measure of {model}: {done.stderr}")
    print(done.stdout, file=sys.stderr)
    summary: dict[str, float] = json.loads(path.read_text())["summary"]
    return summary


def measure_fit(effort: Effort) -> list[Row]:
    del effort  # The same every time.
    text = _corro("plan", "fit", str(MEASURED))
    bars = {"mean": 0.07, "median": 0.04}
    rows = []
    for what, bar in bars.items():
        found = re.search(rf"{what}\D*?([\d.]+) ?%", text)
        if not found:
            sys.exit(f"corro plan fit says no {what}:\n{text}")
        columns = {"case": f"69 measured runs: {what} error", "known": "vTrain 8 to 15 %"}
        rows.append(_judged("planner fit", columns, float(found[1]) / 100, bar))
    return rows


FAMILIES = {
    "planner": Family(measure_planner),
    "partition": Family(measure_partitions),
    "planner_fit": Family(measure_fit),
    "planner_measured": Family(measure_measured),
}
