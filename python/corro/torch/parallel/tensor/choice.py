"""Which parameters are divided, and how: found by trying it on tensors without contents.

    1  loss(model, batch) runs on fake tensors. A weight that a product meets is divided: along its
       inputs if what it is multiplied with is divided already, else along its outputs.
    2  Where a function has no rule, the parameters that the split comes from are noted; with a
       number of blocks, if dividing them block by block would help.
    3  Without those, from the beginning, until nothing is noted.

So the very rules that the training will use decide, whatever the user's code does in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from corro.errors import InvalidArgumentError
from corro.planned import Shape
from corro.torch.parallel.tensor.division import Axis, Division
from corro.torch.parallel.tensor.experts import banks_of, tried
from corro.torch.parallel.tensor.split import QUESTIONS, Split, autograd_functions_get_wholes
from corro.torch.recorder.fakes import Fakes, faked, log_silenced, random_state_kept
from corro.torch.recorder.run import one_line
from corro.torch.recorder.trace import Tracer

_SUMS = 30
"""That seconds_of_call() measures."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A parameter is divided along `dim`, in each of `blocks`."""

    dim: int
    blocks: int = 1

    def of(self, shape: Sequence[int], axis: Axis) -> Division:
        """Returns how a parameter of this shape is divided over an axis."""
        return Division(axis, self.dim, shape[self.dim], self.blocks)


@dataclass(frozen=True, slots=True)
class Choices:
    """What tensor parallelism divides."""

    parameters: Mapping[str, Choice]
    cuts_tokens: bool = False
    """Whether activations between products are divided along tokens: sequence parallelism."""
    reason: str = ""
    """Why they are not, though they were to be."""
    calls: int = 0
    """Of functions that get splits, in one run of the loss: seconds_of_call() each."""


def choices_of(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Tensor],
    batch: Any,
    names: Iterable[str],
    shape: Shape,
) -> Choices:
    """Returns what is divided over the ranks of a plan's tensor parallelism.

    Tokens are, if the plan says so, and if more products read them so than other functions, without
    a rule, need them whole.

    Args:
        names: parameters that may be divided.

    Raises:
        InvalidArgumentError: the model does not run on parts of tensors.
    """
    names, reason = tuple(names) if shape.tensor > 1 else (), ""
    if shape.sequence_parallel and names:
        try:
            trial = _last_trial(model, loss, batch, names, shape.tensor, cuts_tokens=True)
        except InvalidArgumentError as error:
            reason = str(error.__cause__)
        else:
            if trial.gathers > trial.joins:
                return Choices(trial.choices, cuts_tokens=True, calls=trial.calls)
            reason = (
                f"{trial.gathers} products read them, and {trial.joins} functions without a rule"
            )
    trial = _last_trial(model, loss, batch, names, shape.tensor)
    return Choices(trial.choices, reason=reason, calls=trial.calls)


def _last_trial(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Tensor],
    batch: Any,
    names: Sequence[str],
    ranks: int,
    *,
    cuts_tokens: bool = False,
) -> _Trial:
    """Returns the trial in which nothing was given up."""
    blocks = dict.fromkeys(names, 1)
    while True:
        trial = _Trial(ranks, blocks, cuts_tokens=cuts_tokens)
        if blocks:
            trial.run(model, loss, batch)
        if not trial.given_up:
            return trial
        for name, pieces in trial.given_up.items():
            if pieces:
                blocks[name] = pieces
            else:
                del blocks[name]


def seconds_of_call() -> float:
    """Returns what Python takes for a call with a split, by measuring small sums on the CPU.

    Takes some milliseconds. Does not communicate.
    """
    split = Split(torch.zeros(2, 2, device="cpu"), Division(Axis(0, 2, None), 1, 4))

    def seconds() -> float:
        begin = perf_counter()
        torch.add(split, split)
        return perf_counter() - begin

    with torch.no_grad():
        return median(seconds() for _ in range(_SUMS))


def described(choices: Choices, ranks: int, parameters: int) -> list[str]:
    """Returns lines that say what is divided; layers of one list are told as one."""
    alike: dict[Choice, dict[str, None]] = {}
    for name, choice in choices.parameters.items():
        alike.setdefault(choice, {})[re.sub(r"(?<=[a-z])\.\d+\.", ".*.", name, count=1)] = None
    lines = [f"divided over {ranks} ranks: {len(choices.parameters)} of {parameters} parameters"]
    for choice, names in alike.items():
        blocks = f", in {choice.blocks} blocks" if choice.blocks > 1 else ""
        lines.append(f"  along dim {choice.dim}{blocks}: {', '.join(names)}")
    if choices.cuts_tokens:
        lines.append("  along tokens: activations between products")
    elif choices.reason:
        lines.append(f"  whole: activations between products, since {choices.reason}")
    return lines


class _Trial(Axis):
    """One run; nothing is sent."""

    def __init__(self, ranks: int, blocks: Mapping[str, int], *, cuts_tokens: bool) -> None:
        super().__init__(0, ranks, None, cuts_tokens=cuts_tokens)
        self.gathers = self.joins = 0
        """How often products, and functions without a rule, have read what was cut along tokens."""
        self.calls = 0
        self.choices: dict[str, Choice] = {}
        self.given_up: dict[str, int] = {}
        """Parameters that cannot be divided so; with how many blocks they could, perhaps."""
        self._blocks = blocks
        self._names: dict[int, str] = {}
        self._tries_again = False

    def run(self, model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], batch: Any) -> None:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        fakes = Fakes(mode)
        with random_state_kept(), faked(model, fakes), torch.enable_grad(), log_silenced():
            given = fakes.within(batch)
            self._names = {
                id(each): name for name, each in model.named_parameters() if name in self._blocks
            }
            try:
                watched = autograd_functions_get_wholes(self.give_up_on)
                banks = self._divide_banks(model)
                with mode, Tracer(model), _Calls(self), watched, tried(self, banks):
                    loss(model, given)
            except Exception as error:
                raise InvalidArgumentError(
                    f"parallelize: does not run on tensors that are split over ranks: "
                    f"{one_line(error)}; pin tensor to 1"
                ) from error

    def give_up(self, origins: frozenset[str], pieces: int = 0) -> None:
        """What comes behind a split that has to be tried again is not judged."""
        if not origins:
            self.joins += 1
        elif pieces > 1 and all(self._blocks[name] == 1 for name in origins):
            self.given_up.update((name, pieces) for name in origins - self.given_up.keys())
            self._tries_again = True
        elif not self._tries_again:
            self.given_up.update(dict.fromkeys(origins, 0))

    def entered(self, tensor: Tensor, division: Division | None = None) -> Tensor:
        before = self._entered
        entered = super().entered(tensor, division)
        self.gathers += division is not None and self._entered is not before
        return entered

    def give_up_on(self, values: Any) -> None:
        """Of splits and parameters among the values, none can be divided."""
        for each in tree_flatten(values)[0]:
            if isinstance(each, Split):
                self.give_up(each.origins)
            elif id(each) in self._names:
                self.give_up(frozenset([self._names[id(each)]]))

    def check(self, values: Any) -> None:
        """Gives up parameters that a function gets whole, and splits that lose their gradient."""
        leaves = tree_flatten(values)[0]
        self.calls += any(isinstance(each, Split) for each in leaves)
        for each in leaves:
            if id(each) in self._names:
                self.give_up(frozenset([self._names[id(each)]]))
            elif _is_computed(each) and each.local.requires_grad and not torch.is_grad_enabled():
                self.give_up(each.origins)

    # --- Parameters -----------------------------------------------------------------------------

    def divided(self, name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Returns the arguments of a product, its parameters divided if they are to be."""
        given = dict(zip(_ARGUMENTS[name], args, strict=False)) | dict(keywords)
        x, weight, bias = (given.get(each) for each in _ROLES[name])
        if id(weight) not in self._names or not isinstance(x, Tensor):
            return args, keywords
        columns = _COLUMNS[name]
        choice = self._choice(x, weight, columns)
        if name == "embedding" and any(map(given.get, _SPECIAL)):
            choice = None
        replaced = {id(weight): self._split(weight, choice)}
        if choice and choice.dim == columns and bias is not None and id(bias) in self._names:
            replaced[id(bias)] = self._split(bias, Choice(0, choice.blocks))
        return tree_map(lambda each: replaced.get(id(each), each), (tuple(args), dict(keywords)))

    def _divide_banks(self, model: nn.Module) -> list[nn.Module]:
        """Returns the banks of experts that are divided."""
        named = dict(model.named_parameters())
        banks = []
        for module, names in banks_of(model):
            along = Choice(0)
            if all(
                name in self._blocks and along.of(named[name].shape, self).is_possible
                for name in names
            ):
                self.choices.update(dict.fromkeys(names, along))
                banks.append(module)
        return banks

    def _choice(self, x: Tensor, weight: Any, columns: int) -> Choice | None:
        if weight.dim() != 2:
            return None
        if isinstance(x, Split) and not x.is_of_tokens and x.division.dim == x.dim() - 1:
            return Choice(1 - columns, x.division.blocks)
        return Choice(columns, self._blocks[self._names[id(weight)]])

    def _split(self, parameter: Any, choice: Choice | None) -> Tensor:
        """Returns the parameter, divided if that is possible."""
        name = self._names[id(parameter)]
        if choice is not None:
            division = choice.of(parameter.shape, self)
            if division.is_possible and self.choices.setdefault(name, choice) == choice:
                return Split.of_parameter(division.part(parameter), division, frozenset([name]))
        self.give_up(frozenset([name]))
        whole: Tensor = parameter
        return whole


_ARGUMENTS = {
    "linear": ("input", "weight", "bias"),
    "addmm": ("input", "mat1", "mat2"),
    "matmul": ("input", "other"),
    "embedding": (
        *("input", "weight", "padding_idx", "max_norm"),
        *("norm_type", "scale_grad_by_freq", "sparse"),
    ),
}
_ROLES = {
    "linear": ("input", "weight", "bias"),
    "addmm": ("mat1", "mat2", "input"),
    "matmul": ("input", "other", ""),
    "embedding": ("input", "weight", ""),
}
"""What is multiplied, the weight, the bias."""
_SPECIAL = ("max_norm", "scale_grad_by_freq", "sparse")
_COLUMNS = {"linear": 0, "addmm": 1, "matmul": 1, "embedding": 0}
"""The weight's dim of outputs, or of symbols."""


class _Calls(TorchFunctionMode):
    """Tells a trial of every call of a function of torch."""

    def __init__(self, trial: _Trial) -> None:
        super().__init__()
        self._trial = trial

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func not in QUESTIONS:
            name = getattr(func, "__name__", "").strip("_")
            if name in _ARGUMENTS:
                args, kwargs = self._trial.divided(name, args, kwargs)
            self._trial.check((args, kwargs))
        return func(*args, **kwargs)


def _is_computed(value: Any) -> bool:
    return isinstance(value, Split) and not isinstance(value, nn.Parameter)
