"""ShardedState: a model of which each rank has a part, and what goes on without a rank's part.

A rank that is lost takes its part along. So commit() keeps a copy of each part in the memory of
another rank, and all go back to the last commit that is whole:

    commit()    all ranks    keep copies of the state after this step
    a rank is lost; a new epoch begins
    _enter()    each rank    throws the model away: its mesh, its groups and its parts are over
    sync()      all ranks    call the user's function: model and optimizer of the new world
                             fill them from the copies, and keep copies of the new parts

If a rank and the one that kept its copy are lost at once, sync() reads the newest checkpoint.
"""

from __future__ import annotations

import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from corro import _context
from corro._autoload import is_corro
from corro.errors import DataLossError, InvalidArgumentError, UnimplementedError
from corro.torch.arithmetic import needs_newer
from corro.torch.checkpoint import Layouts, read_tree
from corro.torch.copies import Copies, Found
from corro.torch.elastic import TorchState, _check
from corro.torch.sharded import is_sharded

Make = Callable[[], tuple[nn.Module, torch.optim.Optimizer]]


class ShardedState(TorchState):
    """A sharded model, its optimizer and attributes, which ranks have together::

        def make():
            model = Transformer()
            for layer in model.layers:
                fully_shard(layer)
            return fully_shard(model), torch.optim.AdamW(model.parameters())

        state = corro.elastic.ShardedState(make, step=0)

        @corro.elastic.run
        def train(state):
            while state.step < 1000:
                loss(state.model, state.step).backward()
                state.optimizer.step()
                state.optimizer.zero_grad()
                state.step += 1
                state.commit()

    `make` is called on all ranks, once in each epoch: it returns the model and the optimizer of the
    world that there is, and what they hold then is put into them. So `state.model` and
    `state.optimizer` are other objects in each epoch.

    When ranks come or go, all go on from the last commit(). A commit copies this rank's part, and
    sends it to another rank, on another host if there is one.
    """

    def __init__(self, make: Make, **attributes: Any) -> None:
        """Does not communicate, and does not call `make` yet.

        torch's default process group is made over the back end "corro" before that, if there is
        none.
        """
        if not callable(make):
            raise InvalidArgumentError(f"ShardedState: make is a {type(make).__name__}")
        if taken := [name for name in ("model", "optimizer") if name in attributes]:
            raise InvalidArgumentError(f"ShardedState: no attribute can be named {taken[0]!r}")
        self._made: tuple[nn.Module, torch.optim.Optimizer] | None = None
        self._make = make
        self._copies = Copies()
        self._commits = 0  # In the job; does not go back where the steps do.
        super().__init__(**attributes)

    @property
    def model(self) -> nn.Module:
        """This epoch's model. All ranks ask for it together the first time, since that makes it."""
        return self._build()[0]

    @model.setter
    def model(self, _: nn.Module | None) -> None:
        """TorchState has none yet."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """This epoch's optimizer."""
        return self._build()[1]

    @optimizer.setter
    def optimizer(self, _: torch.optim.Optimizer | None) -> None:
        """TorchState has none yet."""

    def commit(self) -> None:
        """Keeps copies of the state after this step; a place to leave if a new epoch comes.

        To be called by all ranks, behind the step and what it changes in attributes. Blocks until
        all ranks have their copies. In a job that is not elastic nothing is copied.

        Raises:
            AbortedError: a new epoch comes; run() handles it.
        """
        if _context.membership() is not None:
            self._take()
        super().commit()

    def restore(self) -> None:
        """Does nothing: sync() goes back to the last commit."""

    def sync(self) -> None:
        """Puts the last commit into the model and the optimizer of this world.

        Before the first commit: makes alike on all ranks what is not sharded, and replicas.

        Raises:
            DataLossError: a rank was lost with the one that kept its copy, and there is no
                checkpoint.
        """
        self._build()
        has_begun = self._has_begun()
        found = Found(self._copies)
        if found.generation is None and has_begun:
            self._fall_back(found)
        if found.generation is None:
            self._take()
            found = Found(self._copies)
        self._fill(found)
        self._is_synced = True
        self._save()
        if _context.membership() is None:
            self._copies.clear()
        elif found.generation is not None and found.generation.epoch != _context.epoch():
            self._take()

    # -- the epoch's model ------------------------------------------------------------------------

    def _build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        if self._made is None:
            from corro.torch.backend import _backend_can_be_subclassed
            from corro.torch.default_group import default_group

            if not _backend_can_be_subclassed():
                raise needs_newer("ShardedState")
            default_group.ensure()
            _check_group()
            model, optimizer = self._make()
            _check(model, optimizer, {})
            _check_sharded(model)
            self._made = model, optimizer
            self._count_steps_of(optimizer)
        return self._made

    def _count_steps_of(self, optimizer: torch.optim.Optimizer) -> None:
        this = weakref.ref(self)  # Or the optimizer would keep it.

        def count(*_: Any) -> None:
            state = this()
            if state is not None:
                state._steps += 1

        optimizer.register_step_post_hook(count)

    def _enter(self, is_first: bool) -> None:
        self._made = None
        gc.collect()  # Its modules hold each other, and the groups that end.
        _forget_meshes()
        super()._enter(is_first)

    # -- copies -----------------------------------------------------------------------------------

    def _take(self) -> None:
        tree = self._tree()
        attributes = pickle.dumps(tree.pop("attributes"))
        contents, steps = self._stored(tree), self._steps
        is_kept = _context.membership() is not None
        self._commits += 1
        self._copies.take(contents, self._commits, steps, (attributes, steps), is_kept=is_kept)

    def _fill(self, found: Found) -> None:
        read = found.read()
        tree = read_tree(read, Layouts(self._tree(), self.optimizer, self.model))
        attributes, steps = read.alike
        whole = {"attributes": pickle.loads(attributes), **tree}
        if text := self._misfit(whole):
            raise InvalidArgumentError(f"ShardedState: make() has returned something else: {text}")
        self._adopt_tree(whole, steps)

    def _has_begun(self) -> bool:
        """Returns whether ranks of an earlier epoch have had a state. All ranks call it.

        They count commits alike from here on.
        """
        rows = _context.exchange(_context.world(), [self._commits, self._steps])
        self._commits = max(commits for commits, _ in rows)
        return _context.epoch() > 0 and any(commits or steps for commits, steps in rows)

    def _fall_back(self, found: Found) -> None:
        """Goes back to the newest checkpoint. All ranks call it."""
        why = "no copy of the state is left" if found.is_empty else found.lack
        counts = _context.exchange(_context.world(), [len(self._keepers)])
        keepers = self._keepers if all(row[0] for row in counts) else []
        step = next((step for one in keepers if (step := one.load(self)) is not None), None)
        if step is None:
            raise DataLossError(f"sync: {why}; and there is no checkpoint to go back to")
        if _context.rank() == 0:
            line = f"corro: {why}: going back to the checkpoint of step {step}"
            print(line, file=sys.stderr, flush=True)

    def _applied(self) -> int:
        return self._commits


def _check_group() -> None:
    name = torch.distributed.get_backend()
    if not is_corro(name) and _context.membership() is not None:
        raise UnimplementedError(
            f'ShardedState: torch\'s default process group is over "{name}", and does not go on'
            ' when ranks come or go: make it over "corro", or leave it to ShardedState'
        )


def _check_sharded(model: nn.Module) -> None:
    if not any(is_sharded(param) for param in model.parameters()):
        raise InvalidArgumentError(
            "ShardedState: make() has returned a model that is not sharded; TorchState goes on"
            " without copies of it"
        )


def _forget_meshes() -> None:
    """torch keeps what operations on sharded tensors do, by meshes that are equal to later ones."""
    try:
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache
    except ImportError:
        return
    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
