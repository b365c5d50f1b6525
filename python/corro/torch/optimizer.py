"""DistributedOptimizer: averages gradients over all ranks while backward is still running.

optimizer = corro.DistributedOptimizer(optimizer, model.named_parameters())
for x, y in batches:
    optimizer.zero_grad()
    loss(model(x), y).backward()
    optimizer.step()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.nn import Parameter

from corro import _context
from corro._context import Group
from corro._reduce_op import Adasum, Average, ReduceOp
from corro.errors import InvalidArgumentError
from corro.torch import verbs
from corro.torch.buckets import BucketOptions
from corro.torch.compression import Compression, Compressor, EngineCodec
from corro.torch.delta_optimizer import DeltaOptimizerBase
from corro.torch.reducer import Reducer, Rules
from corro.torch.wrapped import WrappedOptimizer, group_for, like_torchs, unwrap, wrap

Closure = Callable[[], Any]
Groups = int | Sequence[Sequence[Parameter]] | None
NamedSets = list[list[tuple[str, Parameter]]]


def DistributedOptimizer(  # noqa: N802  # A class to its users, as in Horovod.
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Parameter]] | None = None,
    compression: EngineCodec | Compressor = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    groups: Groups = None,
    group: Group | None = None,
    *,
    bucket_bytes: int | None = None,
) -> DistributedOptimizerBase | DeltaOptimizerBase:
    """Makes the optimizer's step() use all ranks' gradients, and returns the optimizer.

    It is the same object, of a class derived from its own: schedulers and all else that was made
    for it before serve it still. copy.deepcopy() and pickles of it give a plain optimizer.

    Gradients are views of buckets, which the engine reduces while backward() runs; when the last
    one before step() returns they are reduced, and can be clipped, unscaled, replaced or, on all
    ranks, removed (None: step() leaves the parameter alone). A gradient that did not come on this
    rank counts as zeros; one that came on no rank is None. A closure given to step() returns its
    loss, which is reduced as gradients are.

    Sparse gradients are reduced as dense ones: what travels is as large as the parameter.
    SparseAdam finds them sparse again, without rows of zeros.

    All ranks call backward() equally often between two steps, and each of them brings gradients of
    the same optimizers. More often than backward_passes_per_step is fine for a plain average, which
    is then taken again; else FailedPreconditionError. Ranks that differ end with MismatchError, or
    at the deadline with TimeoutError.

    With op=Adasum step() uses this rank's own gradients, and what it changes in the parameters is
    reduced, each parameter by itself, after backward(): see corro.torch.delta_optimizer. Gradients
    can then be clipped or unscaled at any time before step(), a closure's loss is this rank's own,
    and groups and the number of backward passes make no difference.

    Args:
        optimizer: what to change. If this fails, it is as before.
        named_parameters: names of all its parameters, for messages; model.named_parameters().
        compression: a smaller form in which gradients travel.
        backward_passes_per_step: how often backward() runs before each step().
        op: the reduction.
        gradient_predivide_factor: a part of the average's division that comes before the sum.
        groups: parameters that are reduced together, or the number of groups to cut them into; by
            size if not given.
        bucket_bytes: how many bytes of gradients are reduced together, without `groups`; 0: each
            gradient alone.
        group: the ranks; the world if not given. Other optimizers and operations may use it, too.
            In an elastic job it has all ranks.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise InvalidArgumentError("gradient_predivide_factor needs op=Average")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(
            f"DistributedOptimizer: expected a torch optimizer, got {type(optimizer).__name__}"
        )
    unwrap(optimizer)
    options = BucketOptions(
        passes=backward_passes_per_step,
        op=op,
        prescale=1.0 / gradient_predivide_factor,
        postscale=gradient_predivide_factor,
        compression=compression,
    )
    if bucket_bytes is not None:
        options = options.limited(bucket_bytes)
    named = list(named_parameters or ())
    params = _trainable(optimizer)
    names = _names_of(named, params)
    own = group_for(group)
    # In an elastic job a rank that is alone may be joined by others.
    if op == Adasum and (_context.membership() is not None or _size_of(own) > 1):
        return wrap(
            optimizer, own, DeltaOptimizerBase, DeltaOptimizerBase.attributes(compression, names)
        )
    rules = Rules()
    reducer = _reducer(own, options, rules, _named_sets(names, params, groups))
    attributes = {
        "_reducer": reducer,
        "_names": names,
        "_options": options,
        "_groups": groups,
        "_rules": rules,
        "_synchronized": False,
    }
    return wrap(optimizer, own, DistributedOptimizerBase, attributes)


def _size_of(group: Group | None) -> int:
    return 1 if group is None else group.size()


def _reducer(
    group: Group | None, options: BucketOptions, rules: Rules, sets: NamedSets
) -> Reducer | None:
    """Returns what reduces the gradients of these parameters; None where a rank is alone."""
    if group is None or group.size() == 1:
        return None
    reducer = Reducer(group, options, rules)
    reducer.add(sets)
    return reducer


def _trainable(optimizer: torch.optim.Optimizer) -> list[Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


class DistributedOptimizerBase(WrappedOptimizer):
    """What DistributedOptimizer adds to an optimizer's class."""

    _reducer: Reducer | None
    _names: dict[torch.Tensor, str]
    _options: BucketOptions
    _groups: Groups  # As they were given.
    _rules: Rules
    _synchronized: bool

    def synchronize(self) -> None:
        """Waits until all gradients are reduced; step() after it does not do so again."""
        if self._reducer is not None:
            self._adopt_new()
            self._reducer.finish()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it step() does not reduce: gradients are used as they are."""
        self._synchronized = True
        try:
            yield
        finally:
            self._synchronized = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how often backward() runs before each step()."""
        options = replace(self._options, passes=passes)
        if self._reducer is not None:
            self._reducer.set_passes(passes)
        self._options = options

    @like_torchs
    def step(self, closure: Closure | None = None) -> Any:
        """Reduces the gradients, unless synchronize() has, and lets the optimizer use them."""
        self._begin_step()
        if closure is not None:
            return self._step_own(self._reducing(closure))
        if not self._synchronized or self._in_flight():
            self.synchronize()
        self._end_synchronized()
        return self._step_own()

    def _step_own(self, *closure: Closure) -> Any:
        """The wrapped optimizer's step(); SparseAdam finds its gradients sparse."""
        if self._reducer is None or not isinstance(self, torch.optim.SparseAdam):
            return self._step_plain(*closure)
        losses = [call() for call in closure]
        dense = {param: param.grad for param in _trainable(self) if param.grad is not None}
        for param, grad in dense.items():
            param.grad = grad.to_sparse(1)
        try:
            self._step_plain()
        finally:
            for param, grad in dense.items():
                param.grad = grad
        return losses[0] if losses else None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Zeroes the gradients; they stay views of the buckets also with set_to_none."""
        if self._reducer is None:
            super().zero_grad(set_to_none)
            return
        if self._in_flight():  # A step was skipped: the other ranks still need this one's part.
            self._reducer.discard()
        self._synchronized = False
        with torch.autograd.profiler.record_function(self._zero_grad_profile_name):
            self._reducer.zero()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, as the optimizer does; their gradients are reduced, too."""
        super().add_param_group(param_group)
        if self._reducer is not None:
            self._adopt_new()

    def _set_rules(self, rules: Rules) -> None:
        """Makes it differ from corro's, as another library's optimizer does."""
        self._rules = rules
        if self._reducer is not None:
            self._reducer.rules = rules

    def _is_in_use(self) -> bool:
        return super()._is_in_use() and not (self._reducer is not None and self._reducer.closed)

    def _enter_epoch(self) -> None:
        super()._enter_epoch()
        forget = getattr(self._options.compression, "reset", None)
        if forget is not None:
            forget()
        sets = _named_sets(self._names, _trainable(self), self._groups)
        self._reducer = _reducer(self._group, self._options, self._rules, sets)
        self._synchronized = False

    def _in_flight(self) -> bool:
        return self._reducer is not None and self._reducer.started

    def _end_synchronized(self) -> None:
        """The optimizer reads the gradients now."""
        self._synchronized = False
        if self._reducer is not None:
            self._reducer.note_removed()

    def _reducing(self, closure: Closure) -> Closure:
        def run() -> Any:
            loss = closure()
            self.synchronize()
            self._end_synchronized()
            if self._reducer is None:
                return loss
            return _shared(loss, self._options.op, self._group)

        return run

    def _adopt_new(self) -> None:
        """Makes buckets for parameters that were added or unfrozen."""
        assert self._reducer is not None
        new = self._reducer.without_place(_trainable(self))
        if new:
            self._reducer.add(_named_sets(self._names, new, None))


def _shared(loss: Any, op: ReduceOp, group: Group | None) -> Any:
    """Returns the loss of all ranks, reduced as gradients are; a tensor or a number."""
    if loss is None:
        return None
    if isinstance(loss, torch.Tensor):
        return verbs.allreduce(loss.detach(), op=op, group=group)
    value = torch.tensor(float(loss), dtype=torch.float64, device="cpu")
    return verbs.allreduce(value, op=op, group=group).item()


def _names_of(
    named: Sequence[tuple[str, Parameter]], params: Sequence[Parameter]
) -> dict[torch.Tensor, str]:
    if not named:
        return {param: f"parameter {i}" for i, param in enumerate(params)}
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in named):
        raise InvalidArgumentError("named_parameters has to be (name, parameter) tuples")
    counts: dict[str, int] = {}
    for name, _ in named:
        counts[name] = counts.get(name, 0) + 1
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise InvalidArgumentError(f"named_parameters has names twice: {', '.join(twice)}")
    names: dict[torch.Tensor, str] = {param: name for name, param in named}
    unnamed = sum(param not in names for param in params)
    if unnamed:
        raise InvalidArgumentError(
            f"named_parameters lacks {unnamed} of the optimizer's parameters"
        )
    return names


def _named_sets(
    names: Mapping[torch.Tensor, str], params: Sequence[Parameter], groups: Groups
) -> NamedSets:
    """Returns the parameters in the sets in which they are reduced; those added later: no name."""
    return [[(names.get(p, "?"), p) for p in members] for members in _sets(params, groups)]


def _sets(params: Sequence[Parameter], groups: Groups) -> list[list[Parameter]]:
    """Returns parameters in the order in which gradients are expected: the last layer's first."""
    backward = list(reversed(params))
    if groups is None:
        return [backward]
    if isinstance(groups, int):
        if groups < 1:
            raise InvalidArgumentError(f"groups has to be positive, not {groups}")
        size = -(-len(backward) // groups)
        return [backward[i : i + size] for i in range(0, len(backward), size)]
    members = [param for members in groups for param in members]
    if len(set(members)) != len(members):
        raise InvalidArgumentError("groups has a parameter twice")
    chosen = set(members)
    own = [list(reversed([p for p in part if p.requires_grad])) for part in groups]
    rest = [param for param in backward if param not in chosen]
    return [part for part in (*own, rest) if part]
