"""The planner from Python: the door to the native code, and corro.plan()."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import corro
from corro import _planner
from corro.model import LayerRun, LayerType, ModelDescription, Operator
from corro.planner import CutQuestion, PlacementQuestion, ScheduleQuestion

pytestmark = pytest.mark.torch22

CLUSTERS = Path(__file__).resolve().parents[2] / "examples/plan"
SMALL = CLUSTERS / "a100_64.yaml"
LAYER = LayerType(
    name="block",
    operators=(
        Operator(
            name="matmul",
            kind="matmul",
            inputs=(-1,),
            flops=1e12,
            traffic=2e6,
            output=1e6,
            saved=1e6,
            parameters=10**8,
            most_ways=1024,
        ),
    ),
)
MODEL = ModelDescription(name="tower", types=(LAYER,), layers=(LayerRun(type=0, count=24),))


@pytest.fixture(scope="module")
def planned() -> corro.Planned:
    return corro.plan("gpt3-13b", SMALL, global_batch=512, samples=1e6, bytes_per_sample=4096)


def test_planning_needs_neither_torch_nor_numpy_nor_the_engine() -> None:
    code = "import sys, corro; corro.plan\nprint(*sys.modules, *open('/proc/self/maps'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "corro._planner" in done.stdout.split()
    assert not {"torch", "numpy", "corro._native"} & set(done.stdout.split())
    assert "libcorro.so" not in done.stdout


def test_the_door_has_the_version_of_the_package() -> None:
    assert _planner.version() == corro.__version__


def test_an_answer_is_data(planned: corro.Planned) -> None:
    shape = planned.decisions.shape
    assert shape.ranks <= 64
    assert shape.data * shape.micro_batch * shape.micro_batches == planned.global_batch == 512
    assert planned.step >= planned.bound > 0
    assert planned.gap == pytest.approx(1 - planned.bound / planned.step)
    assert sum(dataclasses.astuple(planned.decisions.terms)) == pytest.approx(planned.step)
    assert planned.decisions.stages[0].first_layer == 0
    assert all(0 < memory.total <= planned.memory_limit for memory in planned.memory)
    assert planned.runner_up is not None
    assert planned.runner_up.step >= planned.step
    assert planned.hours > 0
    assert planned.limiting
    planned.graph.check()
    assert planned.graph.ranks == shape.ranks


def test_the_same_request_has_the_same_answer(planned: corro.Planned) -> None:
    options = {"global_batch": 512, "samples": 1e6, "bytes_per_sample": 4096}
    answers: list[corro.Planned] = []
    threads = [
        threading.Thread(target=lambda: answers.append(corro.plan("gpt3-13b", SMALL, **options)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [planned] * 2


def test_a_notebook_shows_a_table_and_a_file_has_all(
    planned: corro.Planned, tmp_path: Path
) -> None:
    assert "gpt3-13b" in str(planned)
    assert str(planned) == planned.text != planned.explanation
    page = planned._repr_html_()
    assert page.startswith("<table>")
    assert f"Stage {len(planned.decisions.stages) - 1}" in page
    planned.save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text()) == planned.document


def test_a_model_is_a_description_a_file_or_a_name(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "tower.json")
    described = corro.plan(MODEL, SMALL, global_batch=256)
    assert corro.plan(tmp_path / "tower.json", SMALL, global_batch=256) == described
    assert corro.plan(str(tmp_path / "tower.json"), SMALL, global_batch=256) == described
    with pytest.raises(corro.NotFoundError, match="gpt3-13"):
        corro.plan("gpt3-13", SMALL)


def test_what_is_guessed_of_a_config_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"model_type": "newer", "hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 100,'
        ' "num_attention_heads": 4, "max_position_embeddings": 64, "hidden_act": "silu",'
        ' "adapter_rank": 8}'
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        corro.plan(path, SMALL)
    assert [str(each.message).partition(": taken")[0] for each in warned] == [
        f"plan: {path}: model_type newer is not known",
        f"plan: {path}: not counted: adapter_rank",
    ]


def test_a_module_is_recorded() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    planned = corro.plan((module, torch.zeros(8, 64)), CLUSTERS / "cpu_2.yaml", global_batch=64)
    assert planned.document["model"]["parameters"] == 4 * 65 * 64


def test_a_cluster_is_a_file_or_a_mapping() -> None:
    cluster = {
        "corro_cluster": 1,
        "name": "pair",
        "devices": {
            "card": {
                "memory": "80 GB",
                "peak": {"f32": "10 TFLOP/s", "bf16": "40 TFLOP/s"},
                "memory_bandwidth": "500 GB/s",
            }
        },
        "hosts": [
            {
                "name": "h",
                "device": "card",
                "devices": 2,
                "link": {"bandwidth": "10 GB/s", "latency": "5 us"},
            }
        ],
    }
    planned = corro.plan(MODEL, cluster, global_batch=16, pins={"zero": 3})
    assert planned.decisions.stages[0].device == "card"
    assert planned.decisions.shape.ranks <= 2


def test_pins_are_kept_and_strategies_pin() -> None:
    pinned = corro.plan(MODEL, SMALL, global_batch=256, pins={"tensor": 4, "recompute": "full"})
    assert pinned.decisions.shape.tensor == 4
    allowed = corro.plan(MODEL, SMALL, global_batch=256, strategies=["data", "sharding"])
    shape = allowed.decisions.shape
    assert (shape.tensor, shape.pipeline, shape.context, shape.chunks) == (1, 1, 1, 1)


class Policies:
    """Answers every question, and remembers it."""

    def __init__(self) -> None:
        self.questions: list[object] = []

    def cut(self, question: CutQuestion) -> list[int]:
        self.questions.append(question)
        count, stages = len(question.seconds), question.shape.pipeline
        return [count * stage // stages for stage in range(stages)]

    def schedule(self, question: ScheduleQuestion) -> tuple[int, ...]:
        self.questions.append(question)
        return question.most

    def placement(self, question: PlacementQuestion) -> range:
        assert question.bandwidth(0, 1) > 0
        self.questions.append(question)
        return range(question.shape.ranks)


def test_a_sequence_and_a_calibration_are_those_of_the_program(tmp_path: Path) -> None:
    usual = corro.plan("gpt3-13b", SMALL, global_batch=512)
    short = corro.plan("gpt3-13b", SMALL, global_batch=512, sequence=1024)
    assert short.step < usual.step
    assert short.document["model"]["sequence"] == 1024
    calibration = {
        "corro_calibration": 1,
        "matmul_efficiency": 0.2,
        "memory_efficiency": 0.5,
        "link_efficiency": 0.5,
        "network_efficiency": 0.5,
        "collective_seconds": 1e-3,
        "operator_seconds": 1e-3,
    }
    slow = corro.plan("gpt3-13b", SMALL, global_batch=512, params=calibration)
    assert slow.step > 2 * usual.step
    path = tmp_path / "params.json"
    path.write_text(json.dumps(calibration))
    assert corro.plan("gpt3-13b", SMALL, global_batch=512, params=path).step == slow.step


def test_what_storage_delivers_may_be_text() -> None:
    text = corro.plan(MODEL, SMALL, global_batch=256, samples=1e6, bytes_per_sample="4 KiB")
    number = corro.plan(MODEL, SMALL, global_batch=256, samples=1e6, bytes_per_sample=4096)
    assert text.document == number.document


def test_policies_are_asked_and_never_make_a_plan_worse() -> None:
    policies = Policies()
    pins = {"pipeline": 4, "tensor": 1, "chunks": 1}
    plain = corro.plan(MODEL, SMALL, global_batch=256, pins=pins)
    asked = corro.plan(MODEL, SMALL, global_batch=256, pins=pins, policies=[policies])
    assert asked.step <= plain.step
    cuts = [each for each in policies.questions if isinstance(each, CutQuestion)]
    assert cuts
    assert cuts[0].shape.pipeline == 4
    assert len(cuts[0].seconds) == len(cuts[0].memory) == 24


@pytest.mark.parametrize("kind", ["cut", "schedule"])
def test_what_a_policy_raises_ends_the_plan(kind: str) -> None:
    def fail(_self: object, _question: object) -> list[int]:
        raise ZeroDivisionError("mine")

    policy = type("Failing", (), {kind: fail})()
    pins = {"pipeline": 4, "tensor": 1, "chunks": 1}
    with pytest.raises(ZeroDivisionError, match="mine"):
        corro.plan(MODEL, SMALL, global_batch=256, pins=pins, policies=[policy])


@pytest.mark.parametrize("answer", [["a"], [-1], 3, [0.5]])
def test_an_answer_that_is_no_list_of_integers_is_a_type_error(answer: object) -> None:
    policy = type("Wrong", (), {"cut": lambda _self, _question: answer})()
    pins = {"pipeline": 4, "tensor": 1, "chunks": 1}
    with pytest.raises(TypeError):
        corro.plan(MODEL, SMALL, global_batch=256, pins=pins, policies=[policy])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 3}, "plan: model: must be the path or the name of a model, "),
        ({"cluster": 3}, "plan: cluster: must be a path or a mapping, not a int"),
        ({"global_batch": -1}, "plan: global_batch: must be an integer from 0 to "),
        ({"objective": "fun"}, "plan: objective: must be one of time, cost, samples_per_price"),
        ({"trainer": "me"}, "plan: trainer: must be one of corro, megatron"),
        ({"memory_limit": "much"}, "plan: memory_limit: "),
        ({"sequence": 0}, "plan: sequence: must be an integer from 1 to 16777216"),
        ({"sequence": 512}, "tower: sequence: a model file has its own"),
        ({"params": 3}, "plan: params: must be a path or a mapping, not a int"),
        ({"params": {"corro_calibration": 1}}, "plan: params: matmul_efficiency: is missing"),
        ({"samples": float("nan")}, "plan: Out of range float values"),
        ({"pins": {"tensr": 1}}, "plan: pins.tensr: is no field here; "),
        ({"pins": {"zero": 4}}, "plan: pins.zero: must be an integer from 0 to 3"),
        ({"pins": {"recompute": "some"}}, "plan: pins.recompute: must be one of none, "),
        ({"strategies": ["magic"]}, "plan: strategies: 'magic' is none; there are tensor, "),
        (
            {"strategies": ["data"], "pins": {"tensor": 2}},
            "plan: pins: tensor is 2, but strategies do not allow tensor",
        ),
        ({"policies": [3]}, "plan: policies: a int has none of the methods cut, schedule, "),
    ],
)
def test_wrong_arguments_are_one_line(arguments: dict[str, Any], message: str) -> None:
    given = {"model": MODEL, "cluster": SMALL, **arguments}
    with pytest.raises(corro.InvalidArgumentError) as caught:
        corro.plan(given.pop("model"), given.pop("cluster"), **given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_what_cannot_fit_says_so() -> None:
    deep = ModelDescription(name="deep", types=(LAYER,), layers=(LayerRun(type=0, count=1000),))
    given: dict[str, Any] = {"global_batch": 2, "pins": {"dtype": "f32"}}
    with pytest.raises(corro.ResourceExhaustedError, match="does not fit: "):
        corro.plan(deep, CLUSTERS / "cpu_2.yaml", memory_limit="1 MiB", **given)
    deep = dataclasses.replace(deep, layers=(LayerRun(type=0, count=20000),))
    with pytest.raises(corro.InvalidArgumentError, match="has 20000 layers, of which at most 1024"):
        corro.plan(deep, CLUSTERS / "cpu_2.yaml", **given)


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        corro.plan(tmp_path / "none.json", SMALL)
    with pytest.raises(corro.NotFoundError, match="none"):
        corro.plan(MODEL, tmp_path / "none.yaml")


def test_a_cut_strategy_of_ones_own_is_an_example() -> None:
    words = [sys.executable, str(CLUSTERS / "own_cut.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert re.search(r"example: stages=\[0, \d+, \d+, \d+\]$", done.stdout.strip())
