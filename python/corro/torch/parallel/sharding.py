"""The shards of a stage: when gradients and parameters come together, and when they part.

    ZeRO 1    step        gradients are reduced to parts; the optimizer steps parts; all get them
    ZeRO 2    backward    a call's gradients are reduced as soon as backward has left it
    ZeRO 3    forward     a call's parameters are gathered before it, and dropped behind it
              backward    gathered before it, and dropped behind it, once more

All ranks of the group have to call collectives in one order. It is that of the recorded calls,
backward the reverse, whatever happens on one rank: a call that a forward leaves out is made up for
when the next one comes, and all are where a micro-batch has no samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from corro._context import Group
from corro.errors import FailedPreconditionError
from corro.planned import Shape
from corro.torch.parallel.borders import Layer, Place
from corro.torch.parallel.clock import WEIGHTS, Clock
from corro.torch.parallel.main_weights import is_low
from corro.torch.parallel.offload import GRADIENTS, LEVELS, PARAMETERS, Offloaded, Storage
from corro.torch.parallel.shards import Shard


def level_of(shape: Shape) -> int:
    """Returns what of parameters is cut into the parts of ranks, as a level of ZeRO.

    What is offloaded, too: by one rank alone, its part is the whole.
    """
    offloaded = LEVELS.index(shape.offload)
    return max(shape.zero, offloaded) if shape.data > 1 or offloaded else 0


def dropped_under(
    level: int, layers: Sequence[Layer], parameters: Mapping[str, nn.Parameter]
) -> set[str]:
    """Returns those of a stage's cut parameters that are gathered for calls, and dropped behind."""
    if level != PARAMETERS:
        return set()
    groups = _by_readers(layers, parameters, level)
    return {name for readers, names in groups if readers for name in names}


class Sharding:
    """Shards of the parameters that a stage alone uses. Used by one thread at a time.

    A *use* is a call with the shards that it reads. Of those the gradients are reduced in backward;
    other shards' when all micro-batches are through.
    """

    def __init__(
        self,
        level: int,
        layers: Sequence[Layer],
        parameters: Mapping[str, nn.Parameter],
        group: Group,
        clock: Clock,
        main_weights: bool = False,
        *,
        backward_follows: bool = True,
        storage: Storage | None = None,
    ) -> None:
        """Cuts nothing if `level`, of ZeRO, is 0.

        Args:
            layers: the stage's.
            parameters: those of them that are cut, by name.
            group: the ranks of the stage.
            clock: counts the time of collectives inside of forward and backward.
            main_weights: parts of parameters of low precision are of main weights.
            backward_follows: each forward, before the next one.
            storage: for what is offloaded.
        """
        self._level = level
        self._backward_follows = backward_follows
        self._clock = clock
        self._main_weights = main_weights
        self._storage = storage
        self._uses: list[list[Shard]] = []
        self._first_read: list[list[Shard]] = []  # In each use: backward is through with them.
        self._numbers: dict[Place, int] = {}
        self._others: list[Shard] = []
        self._forward = 0  # The use that comes next.
        self._backward: int | None = None  # The use that backward is in; None: it has not begun.
        self._reducing: Sequence[Shard] = ()
        # Uses whose parameters stay until backward is through, of each forward before backward.
        self._kept: deque[set[int]] = deque()
        self._kept_now: set[int] = set()  # Of the forward that runs.
        if level:
            self._make(layers, parameters, group)

    def _make(
        self, layers: Sequence[Layer], parameters: Mapping[str, nn.Parameter], group: Group
    ) -> None:
        of_calls: dict[Place, list[Shard]] = {}
        for readers, names in _by_readers(layers, parameters, self._level):
            drops = bool(readers) and self._level == PARAMETERS
            own = [parameters[name] for name in names]
            offloaded = Offloaded(self._storage) if self._storage else None
            has_main = self._main_weights and is_low(own[0])
            shard = Shard(names, own, group, drops, has_main, offloaded)
            if shard.has_rows_away:  # At once: all may be more than memory has.
                shard.drop()
            for call in readers:
                of_calls.setdefault(call, []).append(shard)
            if not readers:
                self._others.append(shard)
        calls = [call for layer in layers for call in layer.calls if call in of_calls]
        self._uses = [of_calls[call] for call in calls]
        seen: set[Shard] = set()
        for use in self._uses:
            self._first_read.append([shard for shard in use if shard not in seen])
            seen.update(use)
        self._numbers = {call: number for number, call in enumerate(calls)}

    @property
    def shards(self) -> list[Shard]:
        """All of them, each once, in the same order on all ranks."""
        return [shard for first in self._first_read for shard in first] + self._others

    @property
    def misses_some(self) -> bool:
        """Whether parameters are not whole."""
        return not all(shard.is_whole for shard in self.shards)

    @property
    def bytes_kept(self) -> int:
        """Of parameters: whole ones, or parts and the most of what is gathered for two calls."""
        dropped = [sum(shard.bytes for shard in use if shard.drops) for use in self._in_passing]
        rows = (one for one in self.shards if one.drops and not (one.has_main or one.has_rows_away))
        parts = sum(each.nbytes for shard in rows for each in shard.parts)
        return (
            max(dropped, default=0)
            + parts
            + sum(shard.bytes for shard in self.shards if not shard.drops)
        )

    @property
    def bytes_of_gradients_in_passing(self) -> int:
        """The most that two calls' gradients take that are offloaded behind them."""
        away = [[each for each in use if each.has_gradients_away] for use in self._in_passing]
        return max((sum(each.bytes_of_gradients for each in use) for use in away), default=0)

    @property
    def _in_passing(self) -> list[set[Shard]]:
        """What two calls, one after the other, need."""
        return [{*one, *two} for one, two in pairwise([*self._uses, []])]

    @property
    def bytes_of_mains(self) -> int:
        """In memory."""
        mains = (one for one in self.shards if one.has_main and not one.has_rows_away)
        return sum(each.nbytes for shard in mains for each in shard.parts)

    # --- Forward --------------------------------------------------------------------------------

    def enter(self, call: Place) -> None:
        """A call of the stage begins; its parameters are whole now."""
        number = self._numbers.get(call)
        if number is None:
            return
        if number < self._forward:
            raise FailedPreconditionError(
                f"step: {call.path} is called in another order than when the model was recorded, "
                "which cut gradients or weights do not allow: pin zero to 1 or less"
            )
        self._pass_to(number)
        self._gather(number, number + 1)
        self._forward = number + 1  # Also if the call fails.

    def leave(self, call: Place, result: Any) -> None:
        """A call of the stage ends. `result`: what it returned."""
        number = self._numbers.get(call)
        if number is None:
            return

        def reached(_: Tensor) -> None:
            self._reach(number)

        leaves = tree_flatten(result)[0]
        active = [each for each in leaves if isinstance(each, Tensor) and each.requires_grad]
        for each in active:
            each.register_hook(reached)  # type: ignore[no-untyped-call]
        if not active:  # Inside of a reentrant checkpoint: backward will not say when it comes.
            self._kept_now.add(number)
        self._drop(number)

    def end_forward(self) -> None:
        self._pass_to(len(self._uses))
        self._forward = 0
        self._kept.append(self._kept_now)
        self._kept_now = set()

    def _pass_to(self, number: int) -> None:
        for missing in range(self._forward, number):
            self._gather(missing, missing + 1)
            self._drop(missing)

    # --- Backward -------------------------------------------------------------------------------

    def begin_backward(self) -> None:
        """Of the oldest forward that has none yet."""
        self._backward = len(self._uses)
        self._kept.popleft()

    def end_backward(self) -> None:
        assert self._backward is not None
        while self._backward >= 0:
            self._step_back()
        self._backward = None
        self._end_reduce()

    def _reach(self, number: int) -> None:
        """Backward comes to a call: it is through with all that came later in forward."""
        if self._backward is None or number > self._backward:
            raise FailedPreconditionError(
                "step: gradients are asked for inside of forward, or layers go backward in another "
                "order, which cut gradients or weights do not allow: pin zero to 1 or less"
            )
        while self._backward > number:
            self._step_back()

    def _step_back(self) -> None:
        assert self._backward is not None
        number = self._backward
        if number < len(self._uses):
            self._end_reduce()
            self._reducing = self._first_read[number]
            for shard in self._reducing:
                shard.begin_reduce()
            self._drop(number, behind=True)
        self._backward = number - 1
        if self._backward >= 0 and not self._stays(self._backward):
            self._gather(self._backward, number - 2)

    def _end_reduce(self) -> None:
        with self._clock.of(WEIGHTS):
            for shard in self._reducing:
                shard.end_reduce()
        self._reducing = ()

    # --- A step ---------------------------------------------------------------------------------

    def reduce(self) -> None:
        """Reduces what backward did not. Blocks."""
        for shard in self._others:
            shard.begin_reduce()
        for shard in self._others:
            shard.end_reduce()
        for shard in self.shards:
            if shard.offloaded:
                shard.offloaded.settle()

    def spread(self) -> None:
        """Gives all ranks what the optimizer has made of the parts. Blocks."""
        _gather(shard for shard in self.shards if not shard.drops)

    def gather(self) -> None:
        """Makes all parameters whole. Blocks."""
        dropped = [shard for shard in self.shards if shard.drops]
        _gather(shard for shard in dropped if not shard.has_rows_away)
        for shard in dropped:
            if shard.has_rows_away:  # One by one: each is read into memory first.
                _gather([shard])

    def take(self) -> None:
        """Takes parameters that are whole, whoever changed them, into the parts."""
        for shard in self.shards:
            if shard.is_whole:
                shard.take()

    def drop(self) -> None:
        """Drops what may be."""
        for shard in self.shards:
            shard.drop()

    def main_weights(self) -> dict[str, Tensor]:
        """Returns them whole, by names of parameters. Blocks."""
        return {
            name: shard.join(number, part.detach())
            for shard in self.shards
            if shard.has_main
            for number, (name, part) in enumerate(shard.named_parts)
        }

    def adopt_parts(self, parts: Mapping[str, Tensor]) -> None:
        """Takes parts as they are, by names of parameters, of those that there are."""
        for shard in self.shards:
            for name, part in shard.named_parts:
                if name in parts:
                    part.data.copy_(parts[name])

    def adopt_main_weights(self, mains: Mapping[str, Tensor]) -> None:
        """Takes parts of whole ones, of those that there are."""
        for shard in self.shards:
            for number, (name, part) in enumerate(shard.named_parts):
                if shard.has_main and name in mains:
                    part.data.copy_(shard.cut(number, mains[name].to(part.device)))

    def _gather(self, number: int, following: int) -> None:
        """Makes a use's parameters whole, and begins with those of the one that follows."""
        if self._level != PARAMETERS:
            return
        for shard in self._use(2 * following - number):
            shard.fetch()
        for use in (number, following):
            for shard in self._use(use):
                shard.begin_gather()
        with self._clock.of(WEIGHTS):
            for shard in self._uses[number]:
                shard.end_gather()

    def _use(self, number: int) -> Sequence[Shard]:
        return self._uses[number] if 0 <= number < len(self._uses) else ()

    def _drop(self, number: int, *, behind: bool = False) -> None:
        """Drops parameters behind backward or forward; not those that backward takes unasked."""
        kept = any(number in each for each in (*self._kept, self._kept_now))
        if not kept and (behind or not self._stays(number)):
            for shard in self._uses[number]:
                shard.drop()

    def _stays(self, number: int) -> bool:
        """Returns whether backward comes to a use at once, behind forward."""
        return self._backward_follows and number == len(self._uses) - 1


def _gather(shards: Iterable[Shard]) -> None:
    begun = list(shards)
    for shard in begun:
        shard.begin_gather()
    for shard in begun:
        shard.end_gather()


def _by_readers(
    layers: Sequence[Layer], parameters: Mapping[str, nn.Parameter], level: int
) -> list[tuple[tuple[Place, ...], list[str]]]:
    """Returns names of one dtype that the same calls read, layer by layer; and which calls.

    There are none where other code reads them, too, or where that does not matter.
    """
    readers: dict[str, tuple[Place, ...]] = {}
    first: dict[str, int] = {}
    for number, layer in enumerate(layers):
        for name in filter(parameters.__contains__, layer.parameters):
            calls = layer.parameters[name] if level >= GRADIENTS else ()
            both = readers.get(name, calls) and calls
            readers[name] = tuple(dict.fromkeys((*readers.get(name, ()), *calls))) if both else ()
            first.setdefault(name, number)
    groups: dict[tuple[int, tuple[Place, ...], torch.dtype], list[str]] = {}
    for name, calls in readers.items():
        groups.setdefault((first[name], calls, parameters[name].dtype), []).append(name)
    return [(calls, names) for (_, calls, _), names in groups.items()]
