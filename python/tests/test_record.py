"""`corro.torch.record`: what it counts, how it cuts, and that it leaves the module as it was."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recorded_models import (
    GPT,
    Checkpointed,
    LlamaForCausalLM,
    Recurrent,
    ResNet,
    SizesDecide,
    UNet,
)
from torch import Tensor, nn

import corro
import corro.torch
from corro.model import LAYER_INPUT, LayerType, ModelDescription

pytestmark = pytest.mark.torch22

TOKENS = torch.zeros(4, 16, dtype=torch.int64)


def cross_entropy(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), TOKENS.flatten())


def parameters_of(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def kinds_of(layer: LayerType) -> list[str]:
    return [operator.kind for operator in layer.operators]


def saved_by_a_real_run(model: nn.Module, run: Callable[[], Tensor]) -> int:
    """Returns the bytes that autograd keeps, each storage once, without parameters."""
    own = {each.untyped_storage().data_ptr() for each in model.parameters()}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(kept.values())


def check_form(model: ModelDescription) -> None:
    """What every reader relies on."""
    for layer in model.types:
        assert layer.operators
        assert len({operator.name for operator in layer.operators}) == len(layer.operators)
        for number, operator in enumerate(layer.operators):
            assert all(LAYER_INPUT <= each < number for each in operator.inputs)
            assert operator.most_ways >= 1
            assert min(operator.flops, operator.traffic, operator.output, operator.saved) >= 0
        assert any(LAYER_INPUT in operator.inputs for operator in layer.operators)
    assert all(run.count >= 1 and run.type < len(model.types) for run in model.layers)
    assert model.recorded is not None
    flops = model.forward_flops * model.recorded.samples
    assert flops == pytest.approx(model.recorded.forward_flops)


def test_counts_a_gpt_as_the_formulas_do() -> None:
    model = GPT(symbols=75, width=32, layers=3, context=16)
    recorded = corro.torch.record(model, TOKENS, loss=cross_entropy)
    check_form(recorded)
    assert [(run.name, run.count) for run in recorded.layers] == [
        ("embed", 1),
        ("blocks.{}", 3),
        ("norm", 1),
    ]
    t, d, v = 16, 32, 75
    assert recorded.parameters == parameters_of(model)
    assert recorded.forward_flops == 3 * (24 * t * d * d + 4 * t * t * d) + 2 * t * d * v
    block = recorded.types[1]
    assert sum(each.parameters for each in block.operators) == 12 * d * d + 13 * d
    assert kinds_of(block) == [
        *("norm", "matmul", "attention", "matmul", "elementwise"),
        *("norm", "matmul", "elementwise", "matmul", "elementwise"),
    ]
    assert [each.inputs for each in block.operators] == [
        *((-1,), (0,), (1,), (2,), (-1, 3)),
        *((4,), (5,), (6,), (7,), (4, 8)),
    ]
    assert block.operators[2].most_ways == 4
    assert block.keys_and_values == 2 * t * d
    assert (recorded.sequence, recorded.dtype, recorded.tied_parameters) == (16, "f32", 0)
    assert recorded.recorded is not None
    assert recorded.recorded.backward_flops == pytest.approx(
        2 * recorded.recorded.forward_flops, rel=0.15
    )


def test_a_sample_counts_the_same_in_every_batch() -> None:
    one = corro.torch.record(GPT(), torch.zeros(1, 16, dtype=torch.int64))
    eight = corro.torch.record(GPT(), torch.zeros(8, 16, dtype=torch.int64))
    assert one.forward_flops == eight.forward_flops
    assert [layer.operators[-1].output for layer in one.types] == [
        layer.operators[-1].output for layer in eight.types
    ]


def test_a_tied_table_counts_once() -> None:
    model = GPT(tied=True)
    recorded = corro.torch.record(model, TOKENS, loss=cross_entropy)
    assert recorded.tied_parameters == 75 * 32
    assert recorded.parameters == parameters_of(model)
    head = next(each for each in recorded.types[2].operators if each.kind == "matmul")
    assert head.parameters == 75 * 32


def test_layers_of_torch_are_one_type() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 128, 0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    recorded = corro.torch.record(model, torch.zeros(4, 16, 32))
    check_form(recorded)
    assert [(run.name, run.count) for run in recorded.layers] == [("layers.{}", 6)]
    assert recorded.parameters == parameters_of(model)
    assert recorded.forward_flops == 6 * (24 * 16 * 32**2 + 4 * 16**2 * 32)
    assert kinds_of(recorded.types[0]).count("attention") == 1
    assert len(recorded.types[0].operators) <= 20


@pytest.mark.parametrize(
    ("nested", "run"), [(True, ("{}.0", 4)), (False, ("{}", 4))], ids=["nested", "flat"]
)
def test_equal_layers_of_several_modules_are_one_type(nested: bool, run: tuple[str, int]) -> None:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)]
    parts = layers if nested else [each for layer in layers for each in layer]
    model = nn.Sequential(*parts, nn.Linear(8, 3))
    recorded = corro.torch.record(model, torch.zeros(4, 8))
    check_form(recorded)
    assert [layer.name for layer in recorded.types] == ["Linear+ReLU", "Linear"]
    assert [each.name for each in recorded.types[0].operators] == ["0", "1"]
    first, last = recorded.layers
    assert ((first.name, first.count), last.count) == (run, 1)
    assert recorded.parameters == parameters_of(model)


def test_layers_of_other_sizes_are_other_types() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 9))
    recorded = corro.torch.record(model, torch.zeros(4, 8))
    assert [(each.type, each.count) for each in recorded.layers] == [(0, 2), (1, 1)]


def test_runs_are_named_by_the_number_that_differs() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 128, 0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    model = nn.Sequential(nn.Linear(32, 32), encoder)
    recorded = corro.torch.record(model, torch.zeros(4, 16, 32))
    assert [(run.name, run.count) for run in recorded.layers] == [("0", 1), ("1.layers.{}", 6)]


def test_a_chain_goes_through_masks_and_tables_of_angles() -> None:
    model = LlamaForCausalLM()
    inputs = {"input_ids": TOKENS, "attention_mask": TOKENS, "labels": TOKENS}
    recorded = corro.torch.record(model, keywords=inputs)
    check_form(recorded)
    assert [(run.name, run.count) for run in recorded.layers] == [
        ("model.embed_tokens", 1),
        ("model.layers.{}", 3),
        ("model.norm", 1),
    ]
    layer = recorded.types[1]
    assert kinds_of(layer).count("attention") == 1  # Written out: products and a softmax.
    assert kinds_of(layer).count("norm") == 2
    assert kinds_of(layer).count("matmul") == 7
    assert len(layer.operators) <= 20
    assert layer.keys_and_values == 2 * 16 * 32
    assert recorded.types[2].operators[-1].kind == "loss"
    assert recorded.parameters == parameters_of(model)
    t, d = 16, 32
    assert recorded.forward_flops == 3 * (2 * t * d * d * 13 + 4 * t * t * d) + 2 * t * d * 50


def test_a_residual_network_is_a_chain_of_its_blocks() -> None:
    model = ResNet()
    recorded = corro.torch.record(model, torch.zeros(2, 3, 32, 32))
    check_form(recorded)
    assert [(run.name, run.count) for run in recorded.layers] == [
        ("conv1", 1),
        ("layer1.{}", 2),
        ("layer2.0", 1),
        ("layer2.1", 1),
        ("avgpool", 1),
    ]
    assert recorded.parameters == parameters_of(model)
    first = 2 * 8 * 16 * 16 * 3 * 49
    layer1 = 4 * (2 * 8 * 8 * 8 * 8 * 9)
    layer2 = 2 * 16 * 16 * 8 * 9 + 3 * 2 * 16 * 16 * 16 * 9 + 2 * 16 * 16 * 8
    assert recorded.forward_flops == first + layer1 + layer2 + 2 * 16 * 10
    assert recorded.sequence == 0
    assert model.bn1.num_batches_tracked == 0


def test_a_convolution_in_groups_is_opaque() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))
    recorded = corro.torch.record(model, torch.zeros(2, 8, 6, 6))
    assert [kinds_of(layer) for layer in recorded.types] == [["opaque"], ["matmul"]]
    assert recorded.forward_flops == 2 * 4 * 4 * 8 * 9 + 2 * 4 * 4 * 8 * 4


def test_weights_of_attention_that_nobody_reads_do_not_hide_it() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x, x, x)[0]  # It returns weights as well, unless it is told not to.

    recorded = corro.torch.record(Attention(), torch.zeros(2, 16, 32))
    check_form(recorded)
    assert kinds_of(recorded.types[0]).count("attention") == 1
    assert recorded.types[0].keys_and_values == 2 * 16 * 32


def test_a_part_that_is_no_chain_is_one_layer() -> None:
    recorded = corro.torch.record(UNet(), torch.zeros(2, 3, 16, 16))
    check_form(recorded)
    assert [run.name for run in recorded.layers] == ["down.0", "down.1", "up.1"]
    assert len(recorded.types[1].operators) > 2  # down.1, up.0 and what joins both branches.
    assert recorded.parameters == parameters_of(UNet())


def test_a_recurrent_part_is_opaque() -> None:
    model = Recurrent()
    recorded = corro.torch.record(model, TOKENS, loss=cross_entropy)
    check_form(recorded)
    opaque = [each for layer in recorded.types for each in layer.operators if each.kind == "opaque"]
    assert [each.name for each in opaque] == ["lstm"]
    assert opaque[0].flops == 2 * 16 * 4 * 24 * (16 + 24 + 24 + 24)
    assert recorded.parameters == parameters_of(model)


def test_sizes_decide_and_side_effects_are_undone() -> None:
    model = SizesDecide()
    before = dict(vars(model))
    for size, used in ((2, "short"), (6, "long")):
        batch = {"x": torch.zeros(size, 8), "weight": torch.ones(8)}
        recorded = corro.torch.record(model, batch)
        assert recorded.types[0].operators[0].name == used
    assert vars(model) == before
    assert (model.count, model.calls, model.last) == (0, [], None)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_part_keeps_its_input_alone(reentrant: bool) -> None:
    model = Checkpointed(reentrant)
    recorded = corro.torch.record(model, torch.zeros(4, 16, 32))
    check_form(recorded)
    assert recorded.recorded is not None
    assert recorded.recorded.notes == ()
    assert recorded.recorded.backward_flops > 2.5 * recorded.recorded.forward_flops
    assert recorded.recorded.saved_bytes <= 3 * 4 * 16 * 32 * 4 + 100


CASES: dict[str, Callable[[], tuple[nn.Module, Any, Any]]] = {
    "gpt": lambda: (GPT(), TOKENS, cross_entropy),
    "dropout": lambda: (GPT(dropout=0.1), TOKENS, cross_entropy),
    "tied": lambda: (GPT(tied=True), TOKENS, cross_entropy),
    "resnet": lambda: (ResNet(), torch.randn(2, 3, 32, 32), torch.sum),
    "unet": lambda: (UNet(), torch.randn(2, 3, 16, 16), torch.sum),
    "half": lambda: (
        nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)).bfloat16(),
        torch.randn(4, 8, dtype=torch.bfloat16),
        torch.sum,
    ),
    "encoder": lambda: (
        nn.TransformerEncoderLayer(32, 4, 128, 0.1, batch_first=True),
        torch.randn(4, 16, 32),
        torch.sum,
    ),
    "llama": lambda: (
        LlamaForCausalLM(),
        {"input_ids": TOKENS, "attention_mask": TOKENS + 1, "labels": TOKENS},
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_keeps_for_backward_what_a_real_run_keeps(case: str) -> None:
    model, inputs, loss = CASES[case]()
    args, keywords = ((), inputs) if isinstance(inputs, dict) else ((inputs,), {})
    recorded = corro.torch.record(model, *args, keywords=keywords, loss=loss)
    assert recorded.recorded is not None

    def run() -> Tensor:
        output = model(*args, **keywords)
        made: Tensor = output["loss"] if loss is None else loss(output)
        return made

    real = saved_by_a_real_run(model, run)
    assert recorded.recorded.saved_bytes == pytest.approx(real, rel=0.01)
    width = {"f32": 4, "bf16": 2}[recorded.dtype]
    layers = [(recorded.types[each.type], each.count) for each in recorded.layers]
    total = sum(operator.saved * count for layer, count in layers for operator in layer.operators)
    assert total * width * recorded.recorded.samples == pytest.approx(real, rel=0.01)


def test_mixed_precision_is_recorded_as_it_runs() -> None:
    model = GPT()

    def loss(logits: Tensor) -> Tensor:
        assert logits.dtype == torch.bfloat16
        return cross_entropy(logits.float())

    with torch.autocast("cpu", torch.bfloat16):
        recorded = corro.torch.record(model, TOKENS, loss=loss)
    check_form(recorded)
    assert recorded.parameters == parameters_of(model)
    assert kinds_of(recorded.types[1]).count("matmul") == 4


def test_a_module_is_left_as_it_was() -> None:
    model = GPT(dropout=0.1).train()
    model.head.requires_grad_(False)
    model.blocks[0].eval()
    model.embed.weight.grad = torch.ones_like(model.embed.weight)
    model.register_buffer("seen", torch.zeros(3))
    called: list[str] = []
    model.blocks[1].register_forward_hook(lambda *_: called.append("hook"))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    tensors = [id(each) for each in (*model.parameters(), *model.buffers())]
    attributes = [dict(vars(module)) for module in model.modules()]
    gradients = [each.grad for each in model.parameters()]
    random = torch.get_rng_state()
    corro.torch.record(model, TOKENS, loss=cross_entropy)
    assert called == ["hook"]  # It ran, as in training.
    assert [id(each) for each in (*model.parameters(), *model.buffers())] == tensors
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert [dict(vars(module)) for module in model.modules()] == attributes
    assert all(a is b.grad for a, b in zip(gradients, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), random)
    cross_entropy(model(TOKENS)).backward()


def test_a_module_that_fails_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(4, 4))
    weights = list(model.parameters())
    with pytest.raises(corro.InvalidArgumentError, match=r"^record: 1: RuntimeError: .*") as caught:
        corro.torch.record(model, torch.zeros(2, 8))
    assert "\n" not in str(caught.value)
    assert all(a is b for a, b in zip(weights, model.parameters(), strict=True))
    assert type(model[0].weight.data) is Tensor


def test_a_huge_model_on_meta_takes_no_memory() -> None:
    with torch.device("meta"):
        model = GPT(symbols=50_000, width=12_288, layers=4)
    recorded = corro.torch.record(model, TOKENS, loss=cross_entropy)
    assert recorded.parameters == parameters_of(model) > 8e9
    assert all(each.is_meta for each in model.parameters())


def custom_op(name: str, shapes_known: bool) -> Any:
    library = torch.library.Library("corro_test", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x * 2, "CPU")
    if shapes_known:
        library.impl(name, torch.empty_like, "Meta")
    return library


@pytest.mark.parametrize("shapes_known", [False, True])
def test_an_unknown_operation_makes_its_module_opaque(shapes_known: bool) -> None:
    name = f"twice{int(shapes_known)}"
    library = custom_op(name, shapes_known)

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: Tensor) -> Tensor:
            return getattr(torch.ops.corro_test, name)(x)

        @staticmethod
        def backward(_ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 2

    class Strange(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return Twice.apply(self.inner(x))

    model = nn.Sequential(nn.Linear(8, 8), Strange(), nn.Linear(8, 8))
    recorded = corro.torch.record(model, torch.zeros(4, 8))
    check_form(recorded)
    opaque = [each for each in recorded.types if kinds_of(each) == ["opaque"]]
    assert len(opaque) == 1
    assert opaque[0].operators[0].parameters == 72
    assert opaque[0].operators[0].flops == 2 * 8 * 8
    assert recorded.parameters == parameters_of(model)
    del library


def test_values_that_are_asked_for_are_assumed_and_said() -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) if x.sum().item() > 0 else x

    recorded = corro.torch.record(Asks(), torch.zeros(4, 8))
    assert recorded.recorded is not None
    assert any("assumed to be 1" in note for note in recorded.recorded.notes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corro.torch.record("gpt", TOKENS), "record: model: a str is no nn.Module"),
        (lambda: corro.torch.record(GPT()), "record: inputs: there is no tensor among them"),
        (
            lambda: corro.torch.record(GPT(), TOKENS, samples=0),
            "record: samples: must be an integer from 1, not 0",
        ),
        (
            lambda: corro.torch.record(GPT(), TOKENS, loss=lambda y: y),
            "record: loss: must return a tensor of one element",
        ),
        (
            lambda: corro.torch.record(nn.LazyLinear(3), torch.zeros(2, 2)),
            "record: a lazy parameter has no shape yet; run the model once before",
        ),
    ],
)
def test_wrong_arguments_are_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(corro.InvalidArgumentError) as caught:
        call()
    assert str(caught.value) == message


def test_the_file_has_the_fields_of_the_planner(tmp_path: Path) -> None:
    recorded = corro.torch.record(GPT(), TOKENS, loss=cross_entropy, name="small")
    recorded.save(tmp_path / "model.json")
    text = (tmp_path / "model.json").read_text()
    assert text.startswith('{\n  "corro_model": 1,\n  "name": "small",\n')
    document = json.loads(text)
    assert list(document) == [
        *("corro_model", "name", "dtype", "sequence", "tied_parameters", "types", "layers"),
    ]
    block = document["types"][1]["operators"]
    assert block[0]["inputs"] == ["input"]
    assert block[4]["inputs"] == ["input", "out"]
    assert document["layers"][1] == {"type": "Block", "count": 3, "name": "blocks.{}"}
    header = Path(__file__).resolve().parents[2] / "cpp/src/plan/model/model.h"
    declared = header.read_text()
    for field in {key for kind in document["types"] for key in kind}:
        assert f" {field} = " in declared
    for field in {key for kind in document["types"] for each in kind["operators"] for key in each}:
        assert f" {field} = " in declared


SCRIPT = """
import torch
from torch import nn

def build():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.zeros(2, 8), lambda y: y.sum()

def wrong():
    return 3

def unfit():
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(9, 8)), torch.zeros(2, 8)

def fails():
    raise ValueError("no data\\nhere")
"""


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    words = [sys.executable, "-m", "corro.torch.record", *arguments]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def test_the_command_writes_the_file(tmp_path: Path) -> None:
    done = command(tmp_path, "train:build", "-o", "model.json", "--name", "two")
    assert done.stderr == (
        "corro: model.json: 2 layers of 2 types, 212 parameters, 384 FLOP a sample\n"
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((tmp_path / "model.json").read_text())["name"] == "two"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "train: must be MODULE:FUNCTION, as in train:build"),
        (["none:build"], "none: ModuleNotFoundError: No module named 'none'"),
        (["train:none"], "train: has no function none"),
        (["train:wrong"], "train:wrong: must return (model, inputs) or (model, inputs, loss)"),
        (["train:fails"], "train:fails: ValueError: no data"),
        (["train:build", "-o", "no/file"], "[Errno 2] No such file or directory: 'no/file'"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = command(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"corro: {message}\n"


def test_a_model_that_does_not_fit_its_inputs_is_one_line_without_torchs_log(
    tmp_path: Path,
) -> None:
    done = command(tmp_path, "train:unfit")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("corro: record: 1: RuntimeError: ")
    assert done.stderr.count("\n") == 1


def test_torchs_log_is_silent_while_recording_alone() -> None:
    log, other = (logging.getLogger(f"torch.{name}") for name in ("_subclasses.fake_tensor", "nn"))
    seen: list[bool] = []
    handle = nn.Linear(8, 8)
    handle.register_forward_hook(lambda *_: seen.extend([log.disabled, other.disabled]))
    corro.torch.record(handle, torch.zeros(4, 8))
    assert seen == [True, False]
    assert not log.disabled
    with pytest.raises(corro.InvalidArgumentError):
        corro.torch.record(handle, torch.zeros(4, 9))
    assert not log.disabled
