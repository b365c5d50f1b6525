"""Models cut into stages without ranks: each stage in turn gives what the whole model does."""

from __future__ import annotations

from collections.abc import Callable
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

from corro.errors import InvalidArgumentError
from corro.torch.parallel.borders import Layer, layers_of
from corro.torch.parallel.stage import Stage
from corro.torch.parallel.stand_ins import stand_in
from corro.torch.recorder.run import trace_step

pytestmark = pytest.mark.torch22

Loss = Callable[[nn.Module, Any], Tensor]
TOKENS = torch.randint(0, 50, (4, 16), generator=torch.Generator().manual_seed(0))


def next_token(model: nn.Module, tokens: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(1, 1).flatten())


def squares(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mean()


def own_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    loss: Tensor = model(tokens, torch.ones_like(tokens), tokens)["loss"]
    return loss


def cut_of(model: nn.Module, loss: Loss, batch: Any) -> list[Layer]:
    return layers_of(trace_step(model, batch, loss))[1]


def gradients_of(model: nn.Module) -> dict[str, Tensor | None]:
    return {
        name: None if each.grad is None else each.grad.clone()
        for name, each in model.named_parameters()
    }


def run_in_stages(
    model: nn.Module, loss: Loss, batch: Any, layers: list[Layer], bounds: list[int], again: bool
) -> Tensor:
    """Runs forward and backward of one stage after the other; returns the loss."""
    spans = list(zip([0, *bounds], [*bounds, len(layers)], strict=True))
    stages = [
        Stage(model, loss, layers, begin, end, [again] * (end - begin)) for begin, end in spans
    ]
    held: list[tuple[Tensor | None, Tensor]] = []
    received = None
    for stage in stages:
        result = stage.forward(batch, received)
        held.append((received, result))
        received = result.detach().requires_grad_()
    gradient = None
    for received, result in reversed(held):
        torch.autograd.backward(result, gradient)
        gradient = None if received is None else received.grad
    return held[-1][1].detach()


def check(model: nn.Module, loss: Loss, batch: Any) -> list[Layer]:
    """Every single cut, and all at once, with and without recomputing."""
    layers = cut_of(model, loss, batch)
    expected = loss(model, batch)
    model.zero_grad()
    expected.backward()
    gradients = gradients_of(model)
    cuts = [[place] for place in range(1, len(layers))]
    for bounds in [[], *cuts, list(range(1, len(layers)))]:
        for recomputes in (False, True):
            model.zero_grad()
            found = run_in_stages(model, loss, batch, layers, bounds, recomputes)
            torch.testing.assert_close(found, expected.detach())
            for name, gradient in gradients_of(model).items():
                torch.testing.assert_close(gradient, gradients[name], msg=f"{name} at {bounds}")
    assert not any("_call_impl" in each.__dict__ for each in model.modules())
    return layers


@pytest.mark.parametrize("tied", [False, True])
def test_gpt(tied: bool) -> None:
    layers = check(GPT(tied=tied), next_token, TOKENS)
    assert [each.name for each in layers] == ["embed", "blocks.0", "blocks.1", "blocks.2", "norm"]
    assert ("embed.weight" in layers[-1].parameters) == tied
    assert layers[0].border is None
    assert all(each.border and each.border.bytes == 4 * 16 * 32 * 4 for each in layers[1:])


def test_decoder_layers_that_take_keywords_and_return_tuples() -> None:
    layers = check(LlamaForCausalLM(), own_loss, TOKENS)
    assert len(layers) > 3


def test_convolutions() -> None:
    model = ResNet()
    model.eval()  # A batch's statistics depend on how it is cut.
    layers = check(model, squares, torch.randn(2, 3, 16, 16))
    assert len(layers) > 3


def test_values_that_cross_leave_no_border() -> None:
    layers = check(UNet(), squares, torch.randn(2, 3, 16, 16))
    assert len(layers) < 4


@pytest.mark.parametrize("reentrant", [False, True])
def test_users_own_checkpoints(reentrant: bool) -> None:
    check(Checkpointed(reentrant), squares, torch.randn(2, 4, 32))


def test_recurrent() -> None:
    check(Recurrent(), next_token, TOKENS)


class Twice(nn.Module):
    """One block is called again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(3):
            x = x + self.block(x)
        return self.last(x)


def test_one_module_called_in_several_layers() -> None:
    layers = check(Twice(), squares, torch.randn(4, 8))
    users = [each for each in layers if "block.0.weight" in each.parameters]
    assert users


class Loops(nn.Module):
    """Blocks in the user's own loop, with code between them."""

    def __init__(self, depth: int = 4, hidden_bias: bool = False) -> None:
        super().__init__()
        self.hidden_bias = hidden_bias
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(depth))
        self.scale = nn.Parameter(torch.ones(16))
        self.last = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        mask = (torch.arange(x.shape[1], device=x.device) % 2).to(x.dtype)
        x = self.first(x * 2) * self.scale
        for number, block in enumerate(self.blocks):
            x, extra = block(x, number=number)
            x = x * self.scale
            assert extra is None
        return self.last(x) * mask.sum()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, *, number: int) -> tuple[Tensor, None]:
        return x + self.down(torch.relu(self.up(x))) * (number + 1), None


def test_code_between_layers() -> None:
    layers = check(Loops(), squares, torch.randn(4, 8))
    assert len(layers) >= 4
    assert sum("scale" in each.parameters for each in layers) == 5  # It is used between blocks.


class SharedBias(nn.Module):
    """The first block makes what all blocks use, as T5's position bias is made."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Biased(8, first=number == 0) for number in range(3))

    def forward(self, x: Tensor) -> Tensor:
        bias = None
        for block in self.blocks:
            x, bias = block(x, bias)
        return x


class Biased(nn.Module):
    def __init__(self, width: int, first: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.bias = nn.Embedding(4, width) if first else None

    def forward(self, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.bias is not None:
            bias = self.bias(torch.arange(4, device=x.device))
        assert bias is not None
        return x + torch.tanh(self.linear(x) + bias), bias


def test_what_a_layer_makes_for_later_ones_is_no_border() -> None:
    blocks, loss = check(SharedBias(), squares, torch.randn(2, 4, 8))
    assert len(blocks.calls) == 3
    assert not loss.calls


class WantsOrder(nn.Module):
    """Asks how its weight lies, as products of experts' weights do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.weight = nn.Linear(8, 8), nn.Parameter(torch.eye(8))

    def forward(self, x: Tensor) -> Tensor:
        if not self.weight.is_contiguous():
            raise RuntimeError("Invalid strides")
        return self.first(x) @ self.weight


def test_layers_whose_parameters_were_let_go_are_left_out() -> None:
    model = nn.Sequential(WantsOrder(), WantsOrder())
    x = torch.randn(4, 8)
    layers = cut_of(model, squares, x)
    for each in model[0].parameters():
        each.data = stand_in(each.shape, each.dtype, None)
    received = torch.randn(4, 8, requires_grad=True)
    loss = Stage(model, squares, layers, 1, len(layers)).forward(x, received)
    torch.testing.assert_close(loss, model[1](received).square().mean())


def test_hooks_of_own_layers_run_once_and_those_of_others_never() -> None:
    model, seen = GPT(), []
    for name, module in model.named_modules():
        if name.startswith("blocks.") and name.count(".") == 1:
            module.register_forward_hook(lambda *_, name=name: seen.append(name))
    layers = cut_of(model, next_token, TOKENS)
    seen.clear()
    stage = Stage(model, next_token, layers, 2, 3, [True])
    result = stage.forward(TOKENS, torch.zeros(4, 16, 32, requires_grad=True))
    result.sum().backward()
    assert seen == ["blocks.1"]


def test_an_error_in_forward_leaves_the_model_as_it_was() -> None:
    model = GPT()
    layers = cut_of(model, next_token, TOKENS)
    stage = Stage(model, next_token, layers, 1, 3)
    with pytest.raises(RuntimeError):
        stage.forward(TOKENS, torch.zeros(4, 16, 31))
    assert not any("_call_impl" in each.__dict__ for each in model.modules())
    assert not any("forward" in each.__dict__ for each in model.modules())


def test_a_forward_that_asks_for_values_is_refused() -> None:
    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return torch.zeros(()) if bool(model(x).sum() > 0) else model(x)

    with pytest.raises(InvalidArgumentError, match="loss: must return a tensor of one element"):
        trace_step(nn.Linear(2, 2), torch.ones(1, 2), loss)


def test_control_flow_on_sizes_and_a_dict() -> None:
    check(SizesDecide(), squares, {"x": torch.randn(3, 8), "weight": torch.ones(3, 1)})
