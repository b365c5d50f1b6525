"""Writes the tables of docs/planner-validation.md: what the planner predicts of measured runs.

    tools/planner_validation.py [--program CORRO] [--check]

Fits the cost model to the runs that vTrain's authors measured (cpp/src/plan/cost/measured),
predicts them and others, and puts the tables between the page's markers. --check writes nothing and
fails if the page is not what it would write. The same program gives the same page.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/planner-validation.md"
MEASURED = ROOT / "cpp/src/plan/cost/measured"
MANY_HOSTS = MEASURED / "megatron_a100_steps.csv"
ONE_HOST = MEASURED / "megatron_a100_one_node_steps.csv"
OTHER_CLUSTER = MEASURED / "megatron_sc21_steps.csv"
OTHER_CLUSTER_FILE = """\
corro_cluster: 1
name: selene
links:
  nvlink3: {bandwidth: 300 GB/s, latency: 2 us}
  hdr8: {bandwidth: 200 GB/s, latency: 5 us}
hosts:
  - {name: node, count: 384, device: a100-80gb, devices: 8, link: nvlink3, network: hdr8}
"""
# Mist's artifact (EuroSys'25), test-small-base.yaml, and the peak that its README says torch
# allocated: `[Stage Peak] Allocated memories: [19273.83] MB`.
MIST_MODEL = """\
name: gpt2-1.3b
layers: 24
hidden: 2048
heads: 16
vocabulary: 50304
sequence: 2048
tied: false
dropout: false
"""
MIST_CLUSTER = """\
corro_cluster: 1
name: l4
devices:
  l4: {memory: 48 GiB, memory_bandwidth: 300 GB/s, peak: {f16: 121 TFLOP/s}}
hosts:
  - {name: host, devices: 2, device: l4, link: {bandwidth: 4.5 GB/s}}
"""
MIST_PINS = {
    "tp": 1,
    "dp": 2,
    "pp": 1,
    "zero": 1,
    "micro-batch": 8,
    "recompute": "full",
    "dtype": "f16",
    "gradient-dtype": "f16",
}
MIST_GIB = 19273.83 / 1024
BEGIN, END = "<!-- {}: begin -->\n", "<!-- {}: end -->"


def corro(program: str, *arguments: str) -> str:
    return subprocess.run(
        [program, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


Row = dict[str, str]


def predicted(program: str, runs: Path, params: Path, *more: str) -> list[Row]:
    text = corro(program, "plan", "predict", str(runs), "--params", str(params), *more)
    return list(csv.DictReader(text.splitlines()))


def every_schedule(run: Row) -> list[Row]:
    """The run with each micro-batch and interleaving that divide it."""
    data, pipeline, layers = (int(run[name]) for name in ("dp", "pp", "layers"))
    rows = []
    for micro_batch, chunks in itertools.product((1, 2, 4, 8, 16), range(1, 7)):
        micro_batches, rest = divmod(int(run["global_batch"]), data * micro_batch)
        interleaves = pipeline > 1 and not layers % (pipeline * chunks)
        if rest or (chunks > 1 and not (interleaves and micro_batches % pipeline == 0)):
            continue
        rows.append({**run, "micro_batch": str(micro_batch), "interleave": str(chunks)})
    return rows


def fastest_schedules(program: str, params: Path, folder: Path) -> list[Row]:
    """Runs whose micro-batch and interleaving nobody knows: as the model thinks them fastest."""
    with OTHER_CLUSTER.open() as file:
        runs = [row for run in csv.DictReader(file) for row in every_schedule(run)]
    every, cluster = folder / "every.csv", folder / "cluster.yaml"
    cluster.write_text(OTHER_CLUSTER_FILE)
    with every.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(runs[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(runs)
    best: dict[str, Row] = {}
    for row in predicted(program, every, params, "--cluster", str(cluster)):
        known = best.setdefault(row["gpus"], row)
        if float(row["predicted_ms"]) < float(known["predicted_ms"]):
            best[row["gpus"]] = row
    return list(best.values())


def error(row: Row) -> float:
    return float(row["predicted_ms"]) / float(row["step_ms"]) - 1


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def summary(name: str, rows: list[Row]) -> list[str]:
    """Bias and its spread: with them, a prediction has error bars."""
    errors = [error(row) for row in rows]
    sizes = [abs(each) for each in errors]
    spread = statistics.stdev(errors) if len(errors) > 1 else 0.0
    return [
        name,
        str(len(rows)),
        f"{100 * statistics.mean(errors):+.1f} ± {100 * spread:.1f} %",
        percent(statistics.mean(sizes)),
        percent(statistics.median(sizes)),
        percent(max(sizes)),
    ]


HEAD = ["runs", "number", "predicted / measured - 1", "mean error", "median", "worst"]


def by_model(rows: list[Row]) -> list[list[str]]:
    models: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        models.setdefault((int(row["hidden"]), int(row["layers"])), []).append(row)
    return [
        summary(f"hidden {hidden}, {layers} layers", models[hidden, layers])
        for hidden, layers in sorted(models)
    ]


def every_run(rows: list[Row]) -> str:
    head = [
        "model",
        "GPUs",
        "tp",
        "dp",
        "pp",
        "micro-batch",
        "measured",
        "predicted",
        "error",
        "memory",
    ]
    return table(
        head,
        [
            [
                f"{row['hidden']} x {row['layers']}",
                *(row[name] for name in ("gpus", "tp", "dp", "pp", "micro_batch")),
                f"{float(row['step_ms']) / 1e3:.2f} s",
                f"{float(row['predicted_ms']) / 1e3:.2f} s",
                f"{100 * error(row):+.1f} %",
                f"{float(row['predicted_gib']):.1f} GiB",
            ]
            for row in rows
        ],
    )


def published_memory(program: str, folder: Path) -> str:
    model, cluster = folder / "mist.yaml", folder / "l4.yaml"
    model.write_text(MIST_MODEL)
    cluster.write_text(MIST_CLUSTER)
    question = ["--model", str(model), "--cluster", str(cluster), "--global-batch", "32"]
    pins = [word for name, value in MIST_PINS.items() for word in (f"--{name}", str(value))]
    plan = json.loads(corro(program, "plan", *question, *pins, "--json", "-"))
    parts = {
        name: size / 2**30 for name, size in plan["decisions"]["stages"][0]["memory_bytes"].items()
    }
    total = sum(parts.values())
    row = ["GPT-3 1.3B on 2 L4", f"{MIST_GIB:.1f} GiB", f"{total:.1f} GiB"]
    row += [f"{100 * (total / MIST_GIB - 1):+.1f} %"]
    names = ("weights", "gradients", "optimizer", "activations", "transient")
    head = ["model", "measured", "predicted", "error", *names]
    return table(head, [row + [f"{parts.get(name, 0):.1f} GiB" for name in names]])


def sections(program: str) -> dict[str, str]:
    """Name of a marker -> what stands there."""
    with tempfile.TemporaryDirectory() as folder:
        params = Path(folder) / "params.json"
        said = corro(program, "plan", "fit", str(MANY_HOSTS), "-o", str(params))
        calibration = json.loads(params.read_text())
        fitted = predicted(program, MANY_HOSTS, params)
        other = predicted(program, ONE_HOST, params)
        elsewhere = fastest_schedules(program, params, Path(folder))
        memory = published_memory(program, Path(folder))
    fields = [[f"`{name}`", f"{value:.4g}"] for name, value in list(calibration.items())[1:]]
    return {
        "fit": "```text\n" + said.strip() + "\n```\n",
        "calibration": table(["field", "value"], fields),
        "models": table(HEAD, [*by_model(fitted), summary("all", fitted)]),
        "one host": table(HEAD, [summary("1 to 8 GPUs of one host", other)]),
        "other cluster": every_run(elsewhere),
        "memory": memory,
        "runs": every_run(fitted),
    }


def filled(page: str, texts: dict[str, str]) -> str:
    """The page with each text between its markers. ValueError if one is not there."""
    for name, text in texts.items():
        begin, end = BEGIN.format(name), END.format(name)
        start = page.index(begin) + len(begin)
        page = page[:start] + text + page[page.index(end, start) :]
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--program", default=str(ROOT / ".venv/bin/corro"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    old = PAGE.read_text()
    new = filled(old, sections(options.program))
    if options.check:
        if new != old:
            print(f"{PAGE}: is not what tools/planner_validation.py writes", file=sys.stderr)
        return int(new != old)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
