"""Tells the engine which gradients have come, and when no more do.

The way through one step:

    a gradient's hook          ready(part): the engine counts, and reduces buckets that are complete
    the end of backward()      after its last pass: close(), and waits; gradients are averages now
    step() or synchronize()    the same for what did not come; next() begins the next generation

An interrupt (KeyboardInterrupt) ends a wait, not what is being reduced. Then step() waits for it
after all, or the next backward() gives the step up: it waits, and begins the next generation as
the other ranks do by step().

A hook runs after autograd has added to the gradient. Where hooks were put on later, ours moves
behind them; in the pass where that is noticed the gradient counts at the end of the pass.

Under reentrant checkpointing backward() runs inside of backward(). The end of an inner one ends no
pass; it waits for what is being reduced, since the next one may add to the same gradients.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from corro import _context
from corro._agreement import check_same_lines, digest
from corro._context import Group
from corro.errors import CorroError, FailedPreconditionError, MismatchError
from corro.torch.agreement import ValueCheck, agreed_orders
from corro.torch.buckets import BucketOptions, Buckets, cut
from corro.torch.slot import Slot

if TYPE_CHECKING:
    from torch.nn import Parameter
    from torch.utils.hooks import RemovableHandle

_graph_task: Callable[[], int] = torch._C._current_graph_task_id
_autograd_node: Callable[[], Any] = torch._C._current_autograd_node
_WORD = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Where another library's optimizer differs from corro's."""

    # Makes what to raise for a gradient of this name that comes once more before step(); None:
    # it is reduced once more.
    refuses_more: Callable[[str], Exception] | None = None
    # Raises what a reduction failed with as another library's error; None: as it is.
    raise_as: Callable[[CorroError], NoReturn] | None = None
    # A gradient that came on no rank is zeros, which momentum goes on with; else it is None.
    absent_are_zeros: bool = False


class Reducer:
    """The gradients of an optimizer, on their way to their averages.

    Thread-safe between autograd's threads; otherwise externally synchronized.
    """

    def __init__(self, group: Group, options: BucketOptions, rules: Rules) -> None:
        self.rules = rules
        self._group = group
        self._options = options
        self._values = ValueCheck(group)
        self._sets: list[Buckets] = []
        self._slots: dict[int, Slot] = {}  # By the parameter's id, which lives if anybody asks.
        self._set_of: dict[Slot, Buckets] = {}
        self._lock = threading.Lock()
        self._giving_up = threading.Lock()  # Held over a wait, which _lock never is.
        self._hooks: list[RemovableHandle] = []
        self.closed = ""  # Why, once it is.
        self._tasks: set[int] = set()  # Backward passes that have brought something.
        self._passes = 0  # That have ended in this generation.
        self._started = False  # A gradient has come in this generation.
        self._landing: list[Buckets] = []  # Closed; their results have not been used yet.
        self._late: list[Slot] = []  # They count at the end of the pass.
        self._guarded = False  # Gradients wait before they are added to.
        self._joined = False  # This rank has, and not all have.
        self._removed: list[str] = []  # Whose gradients this rank removed before the last step.
        _context.current().dependents.add(self)

    # -- parameters -------------------------------------------------------------------------------

    def close(
        self,
        why: str = "corro was shut down after this DistributedOptimizer was made; make a new one",
    ) -> None:
        """Lets go of the parameters and takes its gradients away; finish() raises `why` then."""
        with self._lock:
            self.closed = why
            for hook in self._hooks:
                hook.remove()
            for slot in self._slots.values():
                if slot.grad is slot.view:
                    slot.detach()
            self._sets, self._slots, self._set_of, self._hooks = [], {}, {}, []

    def _take_over(self, params: Iterable[Parameter]) -> None:
        """Ends the reducers that had these parameters: two would reduce one gradient twice."""
        mine = list(params)
        for other in list(_context.current().dependents):
            if not isinstance(other, Reducer) or other is self:
                continue
            if len(other.without_place(mine)) < len(mine):
                with suppress(CorroError):
                    other._wait_for_sets()
                other.close("its parameters belong to another DistributedOptimizer now; use that")

    def add(self, groups: Iterable[Sequence[tuple[str, Parameter]]]) -> None:
        """Makes buckets for groups of parameters; a group shares no bucket with another.

        Blocks until every rank of the group has called it; MismatchError if theirs differ.
        """
        groups = [list(members) for members in groups]
        orders = agreed_orders(self._group, "DistributedOptimizer", groups)
        self._take_over(param for members in groups for _, param in members)
        members: list[list[tuple[str, Parameter]]] = []
        for group in groups:
            members += cut(group, self._options, first=not (self._sets or members))
        if not members:
            return
        buckets = Buckets(self._group, members, orders, self._options)
        self._sets.append(buckets)
        params = [param for bucket in members for _, param in bucket]
        for slot, param in zip(buckets.slots, params, strict=True):
            self._slots[id(param)] = slot
            self._set_of[slot] = buckets
            slot.copy_gradient()
            self._put_hook(param, slot, buckets)

    def without_place(self, params: Iterable[Parameter]) -> list[Parameter]:
        """Returns those that are in no bucket."""
        slots = self._slots
        return [p for p in params if id(p) not in slots or slots[id(p)].parameter() is not p]

    def _params(self) -> Iterator[Parameter]:
        """Yields the parameters that there still are."""
        for slot in self._slots.values():
            param = slot.parameter()
            if param is not None:
                yield param

    def set_passes(self, passes: int) -> None:
        """Sets the number of backward passes between two steps."""
        if self.started:
            raise FailedPreconditionError("backward_passes_per_step cannot change after backward()")
        self._options = replace(self._options, passes=passes)
        for buckets in self._sets:
            buckets.set_options(self._options)

    # -- backward ---------------------------------------------------------------------------------

    def _put_hook(self, param: Any, slot: Slot, buckets: Buckets) -> None:
        """The hook is one short function: a model has thousands of gradients.

        Nothing that it holds may hold the parameter, see slot.py.
        """
        tasks, part = buckets.tasks, slot.part

        def came(param: Any) -> None:
            refuses = self.rules.refuses_more
            if refuses is not None and slot.native.came(part) >= self._options.passes:
                raise refuses(slot.name)
            if _graph_task() not in tasks:
                self._begin_task_of(buckets)
            hooks = param._post_accumulate_grad_hooks
            if (
                param.grad is slot.view
                and slot.view.data_ptr() == slot.address
                and len(hooks) == 1
                and slot.host is None
            ):
                try:
                    slot.native.ready(part)
                except FailedPreconditionError as error:
                    raise slot.too_often_error(self._options.passes) from error
            else:
                self._came_otherwise(slot, hooks, handle.id)

        handle: RemovableHandle = param.register_post_accumulate_grad_hook(came)
        self._hooks.append(handle)

    def _came_otherwise(self, slot: Slot, hooks: Any, key: int) -> None:
        """A gradient that is not in its place yet, or has hooks besides ours."""
        if torch.is_grad_enabled():  # As within backward(create_graph=True) alone.
            if self._set_of[slot].native.came(slot.part) + 1 >= self._options.passes:
                raise slot.graph_error()
        else:  # Else it stays as it is: a later pass differentiates it.
            slot.copy_gradient()
        if next(reversed(hooks)) == key:
            self._set_of[slot].ready(slot)
        else:
            hooks[key] = hooks.pop(key)  # Not move_to_end(): torch asks the dict below.
            with self._lock:
                self._late.append(slot)

    def _begin_task_of(self, buckets: Buckets) -> None:
        """The first gradient of these buckets in a backward() has come."""
        self._begin_task()
        with self._lock:
            buckets.news = True
            buckets.tasks.add(_graph_task())

    def _begin_task(self) -> None:
        """The first gradient of a backward() has come."""
        task = _graph_task()
        if self._landing:
            self._give_up()
        with self._lock:
            if self.closed or task in self._tasks:
                return
            if not self._started:
                self._values.look(self._params())
            self._started = True
            self._tasks.add(task)
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(partial(self._end_task, task))

    def _give_up(self) -> None:
        """An interrupt ended the wait for this generation's gradients; nobody asks for them."""
        with self._giving_up:
            if not self._landing:  # Another thread of this backward() has done it.
                return
            self._wait()
            self._next()
            self._landing = []

    def _end_task(self, task: int) -> None:
        """The end of a backward(): whoever looks at gradients from here on finds the result."""
        with self._lock:
            if self.closed:
                return
            for tasks in (self._tasks, *(buckets.tasks for buckets in self._sets)):
                tasks.discard(task)
            late, self._late = self._late, []
        for slot in late:
            grad = slot.grad
            if grad is None or not grad.requires_grad:
                slot.copy_gradient()  # A later hook may have replaced it.
            self._set_of[slot].ready(slot)
        outer = _autograd_node()
        if outer is not None:
            self._guard()
            self._wait()
            # The outer backward() may bring nothing more: its end has to be heard of.
            outer.register_hook(lambda *_: self._begin_outer())
            return
        self._passes += 1
        if self._passes >= self._options.passes:
            self._close_generation()
        self._wait()
        self._use_results()

    def _begin_outer(self) -> None:
        if _graph_task() not in self._tasks:
            self._begin_task()

    def _guard(self) -> None:
        """An inner backward() may add to what another one has brought, and the engine reduces."""
        if self._guarded:
            return
        self._guarded = True
        params: list[Any] = list(self._params())
        self._hooks += [param.register_hook(lambda _: self._wait()) for param in params]

    # -- without this rank ------------------------------------------------------------------------

    def join(self, group: Group) -> None:
        """Gradients of this rank count as zeros from here on, until all ranks have joined."""
        if self.closed or self._joined or group.ranks != self._group.ranks:
            return
        self._values.start(self._params())  # The others do at their first step.
        with suppress(CorroError):  # Of a set that has failed, on all ranks: it has no more steps.
            for buckets in self._sets:
                buckets.native.join()
            self._joined = True

    def resume(self) -> None:
        """Blocks until all ranks have joined; the next generation begins on all of them."""
        if not self._joined:
            return
        for buckets in self._sets:
            buckets.native.wait()
            buckets.forget()
        self._joined = False
        self._landing = []
        self._forget()
        self._removed = []
        self._values.finish()

    # -- the end of a generation ------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether a gradient has come since the last finish()."""
        return self._started

    def finish(self) -> None:
        """Reduces what was not reduced yet and waits for all; missing gradients count as zeros.

        What was put in the place of a reduced gradient, or None, stays for the optimizer.
        """
        self._finish(used=True)

    def discard(self) -> None:
        """As finish(), for gradients that nobody uses on this rank: any change is fine."""
        self._finish(used=False)

    def _finish(self, used: bool) -> None:
        if self.closed:
            raise FailedPreconditionError(self.closed)
        self._close_generation(used)
        self._wait()
        self._use_results()
        self._next()
        for slot in self._slots.values():
            param = slot.parameter()
            if param is not None and not param.requires_grad:
                param.grad = None
        self._values.finish()

    def _next(self) -> None:
        """Begins the next generation.

        Until note_removed() says otherwise this rank has removed what nobody used: that is what
        the other ranks' step() finds where this one's does not run.
        """
        self._removed = [name for buckets in self._sets for name in buckets.next()]
        self._forget()

    def _forget(self) -> None:
        """A generation has begun."""
        self._passes = 0
        self._started = False
        self._tasks.clear()
        self._late = []

    def _close_generation(self, used: bool = True) -> None:
        """Has buckets reduced that were not, or of which something has come since."""
        closing = [buckets for buckets in self._sets if buckets.news or not buckets.closed]
        if not closing:
            return
        for buckets in closing:
            buckets.complete(used)
        self._values.start(self._params())
        self._landing += closing
        word = digest("\n".join(self._removed)) & _WORD
        for buckets in closing:
            buckets.close(word)

    def _wait(self) -> None:
        """Blocks until nothing is being reduced."""
        try:
            self._wait_for_sets()
        except CorroError as error:
            if self.rules.raise_as is not None:
                self.rules.raise_as(error)
            raise

    def _wait_for_sets(self) -> None:
        try:
            for buckets in self._sets:
                buckets.native.wait()
        except MismatchError:
            # Every rank is told, so every rank gets here.
            check_same_lines(
                self._group, "step(): ranks have removed different gradients", self._removed
            )
            raise

    def _use_results(self) -> None:
        """The closed generation's gradients are there."""
        landing, self._landing = self._landing, []
        for buckets in landing:
            buckets.use_results(self.rules.absent_are_zeros)

    def note_removed(self) -> None:
        """Notes which gradients the optimizer will not use.

        The next generation compares them with the other ranks', whose parameters would differ.
        """
        self._removed = []
        for slot in self._slots.values():
            param = slot.parameter()
            if param is None and self.rules.absent_are_zeros:
                continue  # Where somebody still has it, its gradient is zeros.
            if param is None or param.grad is None:
                self._removed.append(slot.name)

    def zero(self) -> None:
        """Zeroes all gradients; one that was removed or replaced becomes a view again."""
        self._wait()
        for slot in self._slots.values():
            param = slot.parameter()
            grad = None if param is None else param.grad
            if grad is not slot.view or slot.view.data_ptr() != slot.address:
                slot.attach()
        for buckets in self._sets:
            buckets.zero()
