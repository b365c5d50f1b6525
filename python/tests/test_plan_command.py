"""`corro plan` and `corro probe`: the program as a user starts it, on files of the tree."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netns
import pytest

pytestmark = pytest.mark.torch22

PROGRAM = os.environ.get("CORRO_PROGRAM") or str(Path(sys.executable).with_name("corro"))
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples/plan"
MEASURED = ROOT / "cpp/src/plan/cost/measured"
INSTANCES = ROOT / "cpp/src/plan/partition/instances"
CLUSTER = str(EXAMPLES / "a100_64.yaml")
LLAMA = ("--model", str(EXAMPLES / "llama3_70b.yaml"), "--cluster", CLUSTER)


def corro(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=240, cwd=cwd
    )


def answer(*arguments: str, cwd: Path | None = None) -> str:
    done = corro(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def refusal(*arguments: str, cwd: Path | None = None) -> str:
    """The one line that a command says when it refuses; it prints nothing else."""
    done = corro(*arguments, cwd=cwd)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"corro {arguments[0]}")
    return done.stderr


@pytest.fixture(scope="module")
def params(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The calibration of some measured runs, and what the fit said."""
    folder = tmp_path_factory.mktemp("fit")
    path, runs = folder / "params.json", folder / "runs.csv"
    lines = (MEASURED / "megatron_a100_steps.csv").read_text().splitlines()
    runs.write_text("\n".join(lines[:1] + lines[1::3]))  # a third of them: it is a slow thing
    said = answer("plan", "fit", str(runs), "-o", str(path))
    return path, said


def test_a_fit_reports_its_errors_and_writes_the_calibration(params: tuple[Path, str]) -> None:
    path, said = params
    calibration = json.loads(path.read_text())
    assert calibration["corro_calibration"] == 1
    assert len(calibration) == 7
    assert "fitted to 23 runs" in said
    for words in ("mean", "median", "worst", "from a fit to the others", "regret"):
        assert words in said


def test_tables_are_placed_with_reasons(tmp_path: Path) -> None:
    file, cluster = str(EXAMPLES / "criteo_tables.yaml"), str(EXAMPLES / "t4_home.yaml")
    text = answer("plan", "tables", file, "--cluster", cluster, "--json", str(tmp_path / "t.json"))
    plan = json.loads((tmp_path / "t.json").read_text())
    assert f"--servers {plan['servers']} " in text
    places = {table["name"]: table["placement"] for table in plan["tables"]}
    assert len(places) == 26
    assert places["C3"] == "served", "ten million rows"
    assert places["C20"] == "replicated", "four rows"
    assert all(table["why"] for table in plan["tables"])
    assert json.loads(answer("plan", "tables", file, "--cluster", cluster, "--json", "-")) == plan


def test_a_prediction_keeps_the_columns_and_adds_two(params: tuple[Path, str]) -> None:
    path = MEASURED / "megatron_a100_steps.csv"
    text = answer("plan", "predict", str(path), "--params", str(params[0]))
    rows = list(csv.DictReader(text.splitlines()))
    given = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == len(given) == 69
    errors = []
    for row, old in zip(rows, given, strict=True):
        assert {name: row[name] for name in old} == old
        errors.append(abs(float(row["predicted_ms"]) / float(row["step_ms"]) - 1))
        assert 1 < float(row["predicted_gib"]) < 200
    assert sum(errors) / len(errors) < 0.08


def test_a_prediction_can_be_of_another_cluster(tmp_path: Path) -> None:
    runs = str(MEASURED / "megatron_a100_steps.csv")
    out = tmp_path / "out.csv"
    cluster = str(EXAMPLES / "h100_64.yaml")
    assert answer("plan", "predict", runs, "--cluster", cluster, "-o", str(out)) == ""
    faster = list(csv.DictReader(out.read_text().splitlines()))
    usual = list(csv.DictReader(answer("plan", "predict", runs).splitlines()))
    for a, b in zip(faster, usual, strict=True):
        assert float(a["predicted_ms"]) < float(b["predicted_ms"])


def test_an_instance_has_its_published_optimum() -> None:
    text = answer("plan", "partition", str(INSTANCES / "pipeline_bert_l-3_inference.json"))
    result = json.loads(text)
    assert list(result)[:1] == ["objective"]
    assert result["stages"]
    assert result["seconds"] >= 0
    limited = answer(
        *("plan", "partition", str(INSTANCES / "piper_bert32_a100.json")),
        *("--devices", "8", "--micro-batches", "32"),
    )
    assert json.loads(limited)["objective"] > 0


def plan(*arguments: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(answer("plan", *arguments, "--json", "-"))
    return result


def test_a_plan_is_a_short_table_and_explains_itself() -> None:
    short = answer("plan", *LLAMA)
    assert len(short.splitlines()) <= 25
    assert all(len(line) <= 100 for line in short.splitlines())
    long = answer("plan", *LLAMA, "--explain")
    assert long.startswith(short)
    assert len(long) > 2 * len(short)


def test_a_plan_file_keeps_pins_and_compares_with_itself(tmp_path: Path) -> None:
    pinned = tmp_path / "pinned.json"
    free = tmp_path / "free.json"
    answer("plan", *LLAMA, "--tp", "4", "--pp", "2", "--json", str(pinned))
    answer("plan", *LLAMA, "--json", str(free))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["free.json", "pinned.json"]
    text = answer("plan", "compare", str(free), str(pinned))
    assert "free.json" in text
    assert "pinned.json" in text


def test_the_same_question_has_the_same_answer() -> None:
    assert answer("plan", *LLAMA, "--json", "-") == answer("plan", *LLAMA, "--json", "-")


def test_pictures_are_written(tmp_path: Path) -> None:
    svg, html = tmp_path / "plan.svg", tmp_path / "plan.html"
    answer("plan", *LLAMA, "--svg", str(svg), "--html", str(html))
    assert "<svg" in svg.read_text()
    assert "<html" in html.read_text()


def test_what_is_guessed_of_a_config_is_said_beside_the_plan(tmp_path: Path) -> None:
    config = {
        **{"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
        **{"num_attention_heads": 32, "hidden_act": "silu", "vocab_size": 50304},
        **{"max_position_embeddings": 2048, "tie_word_embeddings": False},
    }
    path = tmp_path / "gated.json"
    path.write_text(json.dumps({"model_type": "newer", "vision_config": {"depth": 2}, **config}))
    done = corro("plan", "--model", str(path), "--cluster", CLUSTER)
    assert done.returncode == 0
    assert "6.89 G parameters" in done.stdout.splitlines()[0]
    guess, uncounted = done.stderr.splitlines()
    assert guess.startswith(f"corro plan: {path}: model_type newer is not known: taken as")
    assert uncounted == f"corro plan: {path}: not counted: vision_config"
    path.write_text(json.dumps({"model_type": "olmo", **config}))
    assert "6.89 G parameters" in answer("plan", "--model", str(path), "--cluster", CLUSTER)


def test_hosts_may_be_lost() -> None:
    text = answer("plan", "whatif", *LLAMA, "--remove", "node3", "--remove", "node5")
    assert "node3" in text


def test_a_plan_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    answer("plan", *LLAMA, "--json", str(path))
    flags = answer("plan", "export", str(path), "--to", "megatron")
    assert "--tensor-model-parallel-size" in flags
    graph = json.loads(answer("plan", "export", str(path)))
    assert graph["corro_plan"] == 1


def test_a_probe_writes_a_cluster_that_can_be_planned_for(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    assert answer("probe", "-o", str(path)) == ""
    assert "f32" in path.read_text()
    small = str(EXAMPLES / "gpt_small.yaml")
    assert answer("plan", "--model", small, "--cluster", str(path), "--dtype", "f32")


@pytest.fixture
def hosts() -> Iterator[netns.Hosts]:
    reason = netns.refusal()
    if reason:
        pytest.skip(reason)
    made = netns.Hosts(3)
    yield made
    made.end()


@pytest.mark.faults
def test_a_probe_of_hosts_measures_each_and_the_links_between(
    tmp_path: Path, hosts: netns.Hosts
) -> None:
    shell = tmp_path / "shell"
    cases = [f'10.77.0.{i + 1}) exec {" ".join(hosts.inside(i))} sh -c "$2";;\n' for i in range(3)]
    shell.write_text(f"#!/bin/sh\ncase $1 in\n{''.join(cases)}esac\nexit 9\n")
    shell.chmod(0o755)

    def probe(others: str) -> subprocess.CompletedProcess[str]:
        names = ["-H", f"localhost,{others}", "--rsh", str(shell)]
        return subprocess.run(
            [*hosts.inside(0), PROGRAM, "probe", *names],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    done = probe("10.77.0.2,10.77.0.3")
    assert done.returncode == 0, done.stderr
    for words in ("localhost", '"10.77.0.2"', '"10.77.0.3"', "network", "f32"):
        assert words in done.stdout
    path = tmp_path / "cluster.yaml"
    path.write_text(done.stdout)
    small = str(EXAMPLES / "gpt_small.yaml")
    assert "3 hosts" in answer("plan", "--model", small, "--cluster", str(path), "--dtype", "f32")
    done = probe("10.99.0.2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("corro probe: 10.99.0.2: ")


PROFILE = (
    '{"corro_profile": 1, "device": "DEVICE", "dtype": "bf16", "update": 1e-9,'
    ' "layers": {"none": [{"samples": 1, "forward": 1, "backward": 1}]}}'
)

BAD: list[tuple[list[str], dict[str, str], str]] = [
    (["plan", "--model", "gpt3-175", "--cluster", CLUSTER], {}, "did you mean gpt3-175b"),
    (["plan", "--model", "none.json", "--cluster", CLUSTER], {}, "none.json"),
    (["plan", "--model", ".", "--cluster", CLUSTER], {}, "."),
    (["plan", "--model", "gpt2-xl", "--cluster", "none.yaml"], {}, "none.yaml"),
    (["plan", "--model", "gpt2-xl", "--cluster", CLUSTER, "--tp", "0"], {}, "--tp: "),
    (["plan", "--model", "m.json", "--cluster", CLUSTER], {"m.json": '{"corro'}, "m.json:"),
    (
        ["plan", "--model", "m.json", "--cluster", CLUSTER],
        {"m.json": '{"corro_model": 2}'},
        "m.json:1: corro_model: ",
    ),
    (
        ["plan", "--model", "gpt2-xl", "--cluster", "c.yaml"],
        {
            "c.yaml": "corro_cluster: 1\nhosts:\n"
            "  - {device: a100-80gb, devices: 8, link: {bandwidth: -3}}\n"
        },
        "c.yaml:3: hosts[0].link.bandwidth: ",
    ),
    (
        ["plan", "--model", "gpt2-xl", "--cluster", "c.yaml"],
        {"c.yaml": "corro_cluster: 1\nhosts:\n  - {device: a100-80g}\n"},
        "c.yaml:3: hosts[0].device: ",
    ),
    (
        ["plan", "--model", "gpt2-xl", "--cluster", "c.yaml"],
        {"c.yaml": "corro_cluster: 1\nhosts:\n  - {device: a100-80gb, count: 10000000}\n"},
        "c.yaml:3: ",
    ),
    (
        ["plan", "--model", "gpt2-xl", "--cluster", "c.yaml"],
        {"c.yaml": "corro_cluster: 1\ninclude: [c.yaml]\nhosts:\n  - {device: a100-80gb}\n"},
        "c.yaml",
    ),
    (
        ["plan", "--model", "gpt2-xl", "--cluster", CLUSTER, "--params", "p.json"],
        {"p.json": '{"corro_calibration": 1, "matmul_efficiency": NaN}'},
        "p.json",
    ),
    (
        ["plan", "--model", "gpt2-xl", "--cluster", CLUSTER, "--params", "p.json"],
        {"p.json": '{"corro_calibration": 1,\n"matmul_efficiency": 7}'},
        "p.json:2: matmul_efficiency: ",
    ),
    (
        ["plan", "--model", "gpt2-xl", "--cluster", CLUSTER, "--profile", "p.json"],
        {"p.json": '{"corro_profile": 1, "update": NaN}'},
        "p.json",
    ),
    (
        ["plan", "--model", "gpt2-xl", "--cluster", CLUSTER, "--profile", "p.json"],
        {"p.json": PROFILE.replace("DEVICE", "h100-80gb")},
        'profile: device "h100-80gb" is not in the cluster',
    ),
    (
        ["plan", "--model", "gpt2-xl", "--cluster", CLUSTER, "--profile", "p.json"],
        {"p.json": PROFILE.replace("DEVICE", "a100-80gb")},
        "of the model was not measured",
    ),
    (["plan", "--model", "gpt2-xl", "--cluster", CLUSTER, "--measure"], {}, "FILE.py:FUNCTION"),
    (["plan", "--model", "x.py:f", "--cluster", "none.yaml", "--measure"], {}, "none.yaml"),
    (
        ["plan", "--model", "x.py:f", "--cluster", "c.yaml", "--measure"],
        {"c.yaml": "corro_cluster: 1\nhosts:\n  - {device: h100-80gb}\n"},
        'corro plan: c.yaml: device "h100-80gb" is no processor: --measure runs on processors',
    ),
    (
        ["plan", "--model", "x.py:f", "--cluster", "c.yaml", "--measure"],
        {
            "c.yaml": "corro_cluster: 1\ndevices:\n"
            "  core: {memory: 1 GB, peak: {f32: 1 GFLOP/s}, memory_bandwidth: 1 GB/s}\n"
            "links: {net: {bandwidth: 1 GB/s}}\nhosts:\n"
            "  - {name: a, device: core, network: net}\n"
            "  - {name: b, device: cpu-core, network: net}\n"
        },
        "corro plan: c.yaml: must have one type of device to be measured, not 2",
    ),
    (["plan", "--model", "gpt2-xl", "--cluster", CLUSTER, "--objective", "cost"], {}, "objective"),
    (["plan", "--model", "gpt2-xl", "--cluster", CLUSTER, "--pp", "64"], {}, "pp 64"),
    (["plan", *LLAMA, "--memory-limit", "1 MB"], {}, "does not fit: "),
    (["plan", "fit", "r.csv"], {"r.csv": ""}, "r.csv"),
    (["plan", "fit", "r.csv"], {"r.csv": "gpus,step_ms\n1,2\n"}, "r.csv:1: "),
    (["plan", "predict", "none.csv"], {}, "none.csv"),
    (["plan", "predict", CLUSTER], {}, "a100_64.yaml:1: "),
    (["plan", "partition", "x.json"], {"x.json": "{}"}, "x.json"),
    (["plan", "tables", "x.yaml"], {"x.yaml": "corro_tables: 1"}, "--cluster: is missing"),
    (
        ["plan", "tables", "x.yaml", "--cluster", CLUSTER],
        {"x.yaml": "corro_tables: 1"},
        "x.yaml: batch: ",
    ),
    (["plan", "partition", "x.json", "--devices", "two"], {"x.json": "{}"}, "--devices"),
    (["plan", "compare", "a.json", "a.json"], {"a.json": "[]"}, "a.json"),
    (["plan", "export", "a.json"], {"a.json": '{"corro_decision": 9}'}, "a.json:1: "),
    (["plan", "whatif", *LLAMA, "--remove", "nod3"], {}, "did you mean node3?"),
    (["probe", "-H", ""], {}, "no host"),
]


@pytest.mark.parametrize(("arguments", "files", "words"), BAD)
def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, arguments: list[str], files: dict[str, str], words: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    if arguments[:2] in (["plan", "--model"], ["plan", "whatif"]):
        arguments = [*arguments, "--json", "out.json"]
    assert words in refusal(*arguments, cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(files)


def test_a_model_file_of_two_gigabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    with path.open("wb") as file:
        file.truncate(2 << 30)
    line = refusal("plan", "--model", str(path), "--cluster", CLUSTER)
    assert "is longer than the 67108864 bytes that are read" in line


def test_a_file_that_cannot_be_written_leaves_the_others_alone(tmp_path: Path) -> None:
    plan_file = tmp_path / "plan.json"
    done = corro("plan", *LLAMA, "--json", str(plan_file), "--svg", str(tmp_path / "no/x.svg"))
    assert done.returncode == 1
    assert "no/x.svg" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_failure() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, "plan", "predict", str(MEASURED / "megatron_a100_steps.csv")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "standard output" in done.stderr
