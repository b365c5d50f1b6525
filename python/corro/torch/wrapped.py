"""How DistributedOptimizer changes an optimizer: the object stays, and gets a class of ours.

    class before    SGD
    class after     SGD(DistributedOptimizerBase, SGD): step(), zero_grad() and more are ours

So there is one object, with one set of options, state, hooks and step counts. What was made for the
optimizer before (a scheduler, a GradScaler, a checkpoint) and what is made later change the same.
An optimizer whose gradients are not reduced any more can be wrapped again: it gets its class back
first. A copy has the class before, too, since nothing reduces the gradients of a copy's parameters.

torch's schedulers want to know whether step() was called. They put a function that notes it among
the optimizer's attributes, unless the class's step() says that it does so itself. Ours does.
"""

from __future__ import annotations

import copy
import copyreg
import warnings
import weakref
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, ClassVar, TypeVar

import torch

from corro import _context
from corro._context import Context, Group
from corro.errors import InvalidArgumentError, UnimplementedError
from corro.torch.agreement import users_level

Step = TypeVar("Step", bound=Callable[..., Any])
Added = TypeVar("Added", bound="WrappedOptimizer")

_SCHEDULERS_MARKS = ("_wrapped_by_lr_sched", "_with_counter")  # Of torch 2.4 and later; before.


def like_torchs(step: Step) -> Step:
    """Marks a step(): it runs torch's step hooks once, and notes its calls for schedulers."""
    for mark in ("hooked", *_SCHEDULERS_MARKS):
        setattr(step, mark, True)
    return step


class WrappedOptimizer(torch.optim.Optimizer):
    """What every optimizer that corro wraps has besides its own."""

    _plain_class: ClassVar[type[torch.optim.Optimizer]]
    _added: frozenset[str]  # Attributes that are not the plain optimizer's.
    _made_in: Callable[[], Context | None]  # Or carried on in; None: in no epoch yet.
    _group: Group | None  # None: the same.
    _is_in_world: bool  # The group is the world itself.
    _steps: int  # That were begun.
    _users_step: Callable[..., Any] | None  # What the user has put in the place of step().
    _opt_called: bool
    _step_count: int

    def _is_in_use(self) -> bool:
        """Returns whether step() can still run: not after a shutdown()."""
        if _context.is_outside():
            return self._made_in is _nowhere
        return _context.is_initialized() and self._made_in() is _context.current()

    def _enter_epoch(self) -> None:
        """Goes on with all ranks of the epoch that has begun. The last step() may be undone."""
        for param_group in self.param_groups:
            for param in param_group["params"]:
                param.grad = None
        context, world = _context.current(), _context.world()
        self._group = world if self._is_in_world else _context.new_group(world.ranks)
        self._made_in = weakref.ref(context)
        context.carry(self)

    def _begin_step(self) -> None:
        """Notes a call of step(), as schedulers do, and tells the launcher."""
        context = _context.current()
        context.check_there()
        self._steps += 1
        context.engine.set_step(self._steps)
        self._opt_called = True
        if "_step_count" in vars(self):  # Schedulers of torch before 2.4 have begun to count.
            self._step_count += 1

    def _step_plain(self, *closure: Callable[[], Any]) -> Any:
        """The plain optimizer's step(), with its hooks."""
        if self._users_step is not None:
            return self._users_step(*closure)
        return super().step(*closure)

    # -- copies -----------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Describes the plain optimizer: what a copy, or a pickle, becomes."""
        described = super().__reduce_ex__(protocol)
        if not isinstance(described, tuple):
            return described
        make, arguments, *rest = described
        arguments = tuple(self._plain_class if one is type(self) else one for one in arguments)
        if make.__name__ == "__newobj__":  # Pickle insists on an object of that class.
            make, arguments = copyreg._reconstructor, (*arguments, object, None)  # type: ignore[attr-defined]
        if rest and isinstance(rest[0], dict):
            rest[0] = {key: value for key, value in rest[0].items() if key not in self._added}
        return (make, arguments, *rest)

    def __copy__(self) -> torch.optim.Optimizer:
        make, arguments, state = self._described()
        made: torch.optim.Optimizer = make(*arguments)
        made.__setstate__(state)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.optim.Optimizer:
        make, arguments, state = self._described()
        made: torch.optim.Optimizer = make(*arguments)
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(state, memo))
        return made

    def _described(self) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
        """Returns __reduce_ex__()'s description; warns where others have gradients, too."""
        if _context.is_initialized() and (_context.is_outside() or _context.size() > 1):
            warnings.warn(
                f"a copy of a DistributedOptimizer is a plain {self._plain_class.__name__}, whose "
                "gradients are not reduced: to train with it, give it to DistributedOptimizer, too",
                stacklevel=users_level(),
            )
        make, arguments, state, *_ = self.__reduce_ex__(4)
        return make, arguments, state


def _nowhere() -> None:
    return None


def group_for(group: Group | None) -> Group | None:
    """Returns the group for an optimizer that its user has given this one, or none.

    None: this process comes in the middle of a job, and the group is made when it joins.
    """
    if group is None and _context.is_outside():
        return None
    world = _context.world()
    if group is None:
        # Of its own: what it compares keeps one order, whatever other threads run in the world.
        return _context.new_group(world.ranks)
    group = _context.world_or(group)
    if _context.membership() is not None and group.ranks != world.ranks:
        raise UnimplementedError(
            f"DistributedOptimizer: a group of some of the ranks, {list(group.ranks)}, cannot go on"
            " in the next epoch of an elastic job yet: leave it out, or start without --min-np"
        )
    return group


def wrap(
    optimizer: torch.optim.Optimizer,
    group: Group | None,
    adds: type[Added],
    attributes: Mapping[str, Any],
) -> Added:
    """Returns the optimizer itself, whose class has what `adds` has, and these attributes.

    `group`: the ranks that it steps with; None: there are none yet.
    """
    plain = type(optimizer)
    made: Any = type(plain.__name__, (adds, plain), {"__module__": plain.__module__})
    made._plain_class = plain
    users_step = _users_step(optimizer)
    wrapped: Any = optimizer
    wrapped.__class__ = made
    vars(wrapped).pop("step", None)
    more = {
        "_made_in": _nowhere if group is None else weakref.ref(_context.current()),
        "_group": group,
        "_is_in_world": group is not None and group is _context.world(),
        "_steps": 0,
        "_users_step": users_step,
    }
    vars(wrapped).update(attributes, **more, _added=frozenset((*attributes, *more, "_added")))
    _context.carry(wrapped)
    return wrapped  # type: ignore[no-any-return]


def unwrap(optimizer: torch.optim.Optimizer) -> None:
    """Makes an optimizer plain again whose gradients are not reduced any more.

    InvalidArgumentError if they are.
    """
    if not isinstance(optimizer, WrappedOptimizer):
        return
    if optimizer._is_in_use():
        raise InvalidArgumentError("this optimizer is a DistributedOptimizer already")
    users_step, plain, same = optimizer._users_step, optimizer._plain_class, vars(optimizer)
    for name in (*optimizer._added, "step"):
        same.pop(name, None)
    optimizer.__class__ = plain  # type: ignore[assignment]
    if users_step is not None:
        same["step"] = users_step


def _users_step(optimizer: torch.optim.Optimizer) -> Callable[..., Any] | None:
    """Returns what the user has put in the place of step(); not what a scheduler has."""
    step = vars(optimizer).get("step")
    if step is None or not any(hasattr(step, mark) for mark in _SCHEDULERS_MARKS):
        return step
    below = getattr(step, "__wrapped__", None)  # Which the scheduler has found.
    if below is None or any(vars(one).get("step") is below for one in type(optimizer).__mro__):
        return None
    return MethodType(below, optimizer)
