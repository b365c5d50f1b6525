"""The trainer: every rank runs its stage of the plan, step by step.

    step(batch)
      this rank's samples      its share of the batch, micro-batch by micro-batch
      the loaded plan          F and B of its stage, as tensors and credits come (docs/plan.md)
      gradients                summed over the ranks that use the same parameters (shares.py), or
                               to the rank that keeps a part of them (ZeRO, sharding.py)
      the user's optimizer     steps; parameters of other stages have no gradients
      the loss                 summed over the last stage's ranks, the same on all ranks

Parameters of other stages take no memory from the first step on; gather() brings them back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

import corro
import corro.torch as ct
from corro import _context
from corro._context import Group, new_group
from corro._membership import ends_epoch
from corro._objects import allgather_object, broadcast_object
from corro.errors import CorroError, FailedPreconditionError, InvalidArgumentError
from corro.loaded_plan import Firing, LoadedPlan
from corro.planned import Planned
from corro.planned import Stage as PlannedStage
from corro.torch.parallel import drift, offloaded_optimizer, samples, shown, slots
from corro.torch.parallel.alike import differing
from corro.torch.parallel.borders import Layer
from corro.torch.parallel.clock import COMPUTE, SYNC, UPDATE
from corro.torch.parallel.failures import Failures, Given
from corro.torch.parallel.main_weights import MainWeights, is_low
from corro.torch.parallel.offload import LEVELS, PARAMETERS
from corro.torch.parallel.optimizer_calls import OptimizerCalls
from corro.torch.parallel.planning import (
    Recording,
    lag_of,
    recomputed_of,
    runnable,
)
from corro.torch.parallel.randomness import Randomness
from corro.torch.parallel.replanning import Planning
from corro.torch.parallel.report import Measured, Report
from corro.torch.parallel.scaling import Scaling
from corro.torch.parallel.seats import Seats
from corro.torch.parallel.sharded_optimizer import step_parameters, step_parts
from corro.torch.parallel.sharding import Sharding, level_of
from corro.torch.parallel.shards import Form
from corro.torch.parallel.shares import groups_of, shares_of
from corro.torch.parallel.stage import Loss, Stage
from corro.torch.parallel.stand_ins import stand_in
from corro.torch.parallel.tensor import tokens
from corro.torch.parallel.tensor.choice import Choices, described
from corro.torch.parallel.tensor.division import Axis
from corro.torch.parallel.tensor.parts import Parts

if TYPE_CHECKING:
    from typing_extensions import Self


class Trainer:
    """Trains by a plan; made by corro.parallelize(). Externally synchronized."""

    plan: Planned
    """What the planner has decided, predicted and proven."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        recording: Recording,
        planning: Planning,
        scaling: Scaling,
    ) -> None:
        """It has no plan yet: _begin() makes one, or, on a rank that joins, TrainerState.sync()."""
        self.model = model
        self.optimizer = optimizer
        self.steps = 0
        """Steps that were made, also before a checkpoint that was loaded."""
        self.scaling = scaling
        """The norm of the last step's gradients, if they are clipped, and the scale of losses."""
        self._loss_function = loss
        self._recording = recording
        self._planning = planning
        self._has_mains = planning.wishes.main_weights
        self._device = device_of(model)
        self._lives = False  # Has a plan, and a part of the training.
        self._epoch = -1  # Of the plan.
        self._is_ready = False  # Gradients of a step are there, and whether all have theirs is not.
        self._reason = ""  # Why the plan is another one than at the beginning, or stays.
        self._total = (0.0, 0.0)  # Of the last step: its loss, and the gradients' squares.
        self._forms = {name: Form.of(each) for name, each in model.named_parameters()}
        stepped = {id(each) for one in optimizer.param_groups for each in one["params"]}
        self._stepped = {name for name, each in model.named_parameters() if id(each) in stepped}
        self._held: dict[int, tuple[Tensor | None, Tensor]] = {}
        self._batch: Any = None
        self._given = Given()
        self._count = 0  # Of those, what is computed: 0 if the batch is not as it has to be.
        self._loss = 0.0
        self._whole = True
        self._runs_now = False
        self._guards = [
            model.register_forward_pre_hook(self._refuse_parts),
            model.register_state_dict_pre_hook(self._refuse_parts),  # type: ignore[no-untyped-call]
        ]
        self._randomness = Randomness(torch.initial_seed())

    def _begin(self, group: Group) -> None:
        """Plans for the group's ranks, and is theirs from here on. All of them call it; blocks."""
        planned, choices = self._planning.first(self._recording, group)
        if group.size() > 1:
            state = self.model.state_dict()
            if planned.decisions.shape.offload == LEVELS[PARAMETERS]:
                state = differing(state, group)
            ct.broadcast_parameters(state, group=group)
            ct.broadcast_optimizer_state(self.optimizer, group=group)
        self._follow(planned, group, self._load(planned, group), choices)
        if self._sharding.misses_some:
            self._release()
        seed: int = broadcast_object(torch.initial_seed(), group.ranks[0], group=group)
        self._randomness = Randomness(seed)

    def _load(self, planned: Planned, group: Group) -> LoadedPlan:
        """Loads a plan; called by all ranks, and blocks."""
        seats = planned.decisions.placement or tuple(range(group.size()))
        ranks = [group.ranks[seat] for seat in seats]
        return corro.load_plan(runnable(planned, self._recording), new_group(ranks))

    def _follow(self, planned: Planned, group: Group, loaded: LoadedPlan, choices: Choices) -> None:
        """Makes steps by this plan from here on. Does not communicate.

        Parameters of this rank's stage are whole, and the optimizer steps parameters, no parts.
        """
        self.plan = planned
        self._rounds = 0  # Of the plan: steps, also those that have failed.
        self._lives, self._epoch, self._is_ready = True, _context.epoch(), False
        self._measured = Measured()
        self._gradient_bytes = 0  # The most that there were.
        self._group, self._loaded, self._choices = group, loaded, choices
        if group.rank() == 0 and group.size() == corro.size():
            shown.show(planned, drift.shape_text(planned), loaded.group.ranks)
        shape = planned.decisions.shape
        self._failures = Failures(group, at_once=shape.tensor > 1)
        self._seats = Seats(shape, loaded.group.ranks, loaded.group.rank())
        self._stage_number = self._seats.stage
        self._micro_batches = shape.micro_batches
        stages = planned.decisions.stages
        here = stages[self._stage_number]
        self._first, self._last = self._stage_number == 0, self._stage_number == len(stages) - 1
        self._users = self._users_of_parameters(planned)
        self._storage = self._planning.storage(planned, self._stage_number)
        tensor = new_group(self._seats.axis) if shape.tensor > 1 else None
        self._axis = Axis(self._seats.tensor, shape.tensor, tensor, cuts_tokens=choices.cuts_tokens)
        self._divide_parameters(lag_of(loaded.plan, f"B{self._seats.own}"))
        self._stage = Stage(
            self.model,
            self._loss_function,
            self._recording.layers,
            here.first_layer,
            here.end_layer,
            recomputed_of(planned, self._stage_number),
            self._sharding,
        )

    def _divide_parameters(self, lag: int) -> None:
        """Finds the parts and the shards of what this stage alone uses, and the shares of the rest.

        Shards are of parts, where there are. `lag`: of backward behind forward, in micro-batches.
        """
        shape, own = self.plan.decisions.shape, self._stage_number
        parameters = dict(self.model.named_parameters())
        users = {name: used for name, used in self._users.items() if parameters[name].requires_grad}
        groups = groups_of(users.values(), self._seats.columns)
        divided = self._choices.parameters
        here = {name: each for name, each in divided.items() if users.get(name) == (own,)}
        self._parts = Parts(self.model, here, self._axis)
        step_parts(self.optimizer, [self._parts])
        parts = dict(zip(self._parts.names, self._parts.parts, strict=True))
        parameters.update(parts)
        level = level_of(shape)
        forms = self._forms | {name: Form.of(each) for name, each in parts.items()}
        cut = {name: parameters[name] for name in self._cut_under(self.plan, own, forms)}
        rest = {name: used for name, used in users.items() if own in used and name not in cut}
        low = [name for name in rest if is_low(parameters[name]) and name in self._stepped]
        self._mains = MainWeights({name: parameters[name] for name in low if self._has_mains})
        self._shares = shares_of(rest, {**parameters, **self._mains.mains}, groups)
        layers = self._layers_of(self.plan.decisions.stages[own])
        clock = self._measured.clock
        group, follows = groups[own,], lag == 0
        self._sharding = Sharding(
            *(level, layers, cut, group, clock, self._has_mains),
            backward_follows=follows,
            storage=self._storage,
        )
        summed = {*rest, *cut}
        self._others = {
            name: each
            for name, each in parameters.items()
            if name not in summed and each.grad is None and not self._is_released(name)
        }
        self._step_parts()
        divided_steps = {name: self._mains.mains.get(name, part) for name, part in parts.items()}
        self._calls = OptimizerCalls(self.optimizer, self._sharding.shards, divided_steps)
        self._calls.attach()

    def _leave_plan(self, *, join: bool, casts: bool = False) -> None:
        """The optimizer steps parameters again, as _step_parameters(), and no hooks are left."""
        self._calls.detach()
        self._step_parameters(join=join, casts=casts)
        for hook in self._mains.hooks + [h for one in self._sharding.shards for h in one.hooks]:
            hook.remove()
        self._unload()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        elif self._lives:
            self._unload()

    # --- What users ask -----------------------------------------------------------------------

    @property
    def why(self) -> str:
        """What the plan is, and why this one: a few lines."""
        lines = [self.plan.text.rstrip()]
        for number, stage in enumerate(self.plan.decisions.stages):
            layers = self._layers_of(stage)
            again = sum(recomputed_of(self.plan, number))
            names = layers[0].name if len(layers) == 1 else f"{layers[0].name} to {layers[-1].name}"
            lines.append(
                f"stage {number}: {len(layers)} layers, {names}"
                + (f"; {again} of them computed again in backward" if again else "")
            )
        shape = self.plan.decisions.shape
        if shape.data * shape.micro_batches > 1:
            lines.append("the batch is cut: the loss is taken as a mean over samples")
        if self._axis.size > 1:
            lines += described(self._choices, self._axis.size, len(self._users))
        if self._storage:
            lines.append(f"offloaded to files in {self._storage.folder}")
        if self._reason:
            lines.append(self._reason)
        return "\n".join(lines)

    def step(self, batch: Any, *, sharded: bool = False) -> float:
        """Trains on one batch; returns the mean loss of its samples, the same on every rank.

        Called by all ranks with the same batch; blocks. It may have fewer samples than
        `sample_batch`, and the optimizer's learning rate may change between steps.

        Args:
            sharded: each rank gives samples of its own, and all together are the batch.

        Raises:
            InvalidArgumentError: the batch has no samples, or more than the plan has room for.
            MismatchError: ranks have batches of different sizes, or in a plan's first step of
                different values.
            UnknownError: another rank failed. As with errors of the user's own code here, nothing
                was changed in this step, and the next one may be made; not with tensor
                parallelism, where each rank raises what it hears first, and the training ends.
        """
        if not self._lives:
            raise FailedPreconditionError(
                "step: this rank joins a job that trains: make steps inside of the function that"
                " corro.elastic.run calls with a TrainerState"
            )
        batch = samples.plain(batch)
        if sharded:
            batch = _joined(allgather_object(batch, group=self._group))
        self._failures.begin()
        self._given, self._count = Given(), 0
        with self._axis.released(), self._failures.noted():
            count = samples.count_of(batch, "step: batch")
            digest = samples.digest_of(batch) if self._rounds == 0 else 0
            self._given = Given(count, digest)
            if not 0 < count <= self._recording.samples:
                raise InvalidArgumentError(
                    f"step: batch: has {count} samples; sample_batch had "
                    f"{self._recording.samples}, which is the most"
                )
            self._count = count
        self._release()
        try:
            with self._running():
                return self._step(batch)
        finally:
            self._batch = None

    def _step(self, batch: Any) -> float:
        self._measured.begin()
        self._is_ready = False
        self._batch, self._loss = batch, 0.0
        self._held.clear()
        self._rounds += 1
        name = str(self._seats.own)
        clock = self._measured.clock
        functions = {f"F{name}": self._forward, f"B{name}": self._backward}
        with self._parts.instead(), self._axis.released():
            self._loaded.run(
                self._rounds * self._micro_batches,
                {name: clock.timing(COMPUTE, each) for name, each in functions.items()},
            )
        self._gradient_bytes = max(self._gradient_bytes, self._bytes_of_gradients())
        with clock.of(SYNC):
            with self._failures.noted():
                self._check_the_others()
            for each in self._shares:
                each.reduce()
            self._sharding.reduce()
            squares = self.scaling.squares(self._shares, self._sharding, self._parts)
            own_loss = self._loss / self._axis.size  # All ranks of the axis have it.
            told = [own_loss, squares, *self._failures.numbers(self._given)]
            total = torch.tensor(told, dtype=torch.float64)
            self._is_ready = self._failures.own is None
            ct.allreduce_(total, ct.Sum, group=self._group)
        loss, squares, *failures = total.tolist()
        if self._failures.are_in(failures):
            self._is_ready = False
            self._forget_gradients()
            self._failures.raise_first(self._given)
        self._update(loss, squares)
        with clock.of(SYNC), self._survived():
            self._sharding.spread()
        self._measured.end()
        if self._measured.steps and self._measured.steps % drift.LOOK == 0:
            with self._survived():
                drift.look(self)
        return self._total[0]

    def _update(self, loss: float, squares: float) -> None:
        """Ends a step whose gradients are there on all ranks. Does not communicate."""
        self._is_ready = False
        with self._measured.clock.of(UPDATE):
            if not self.scaling.scale(self._shares, self._sharding, squares):
                self.optimizer.zero_grad(set_to_none=True)
            # Without gradients it changes nothing, but counts.
            offloaded_optimizer.step(self.optimizer, self._sharding.shards)
            self._forget_gradients()
            self._mains.write()
        self.steps += 1
        self._total = loss, squares

    @contextmanager
    def _survived(self) -> Iterator[None]:
        """A step that was made stays so if a rank is lost now: what comes next says that it was."""
        try:
            yield
        except CorroError as error:
            if not ends_epoch(error):
                raise

    def _check_the_others(self) -> None:
        """Raises if a parameter that no gradient was to come to has got one."""
        for name, each in self._others.items():
            if each.grad is not None:
                raise FailedPreconditionError(
                    f"step: {name}: has a gradient, and was frozen or not used when the model was "
                    "recorded: call close(), and parallelize() again with a sample_batch that uses "
                    "it"
                )

    def _forget_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.model.zero_grad(set_to_none=True)
        for shard in self._sharding.shards:
            for each in shard.accumulators:
                each.grad = None

    def report(self) -> Report:
        """Returns what the plan has predicted beside what was measured. All ranks call it; blocks.

        Times are those of the host: on a GPU, work is counted where the host waits for it.
        """
        return self._measured.report(self.plan, self._stage_number, self._kept(), self._group)

    def _kept(self) -> dict[str, float]:
        """Returns the bytes that this rank keeps from step to step, and of gradients in one."""
        parameters: dict[str, Tensor] = dict(self.model.named_parameters())
        parameters.update(zip(self._parts.names, self._parts.parts, strict=True))
        whole = [parameters[name] for share in self._shares for name in share.names]
        stepped = [each for share in self._shares for each in share.parameters]
        in_memory = [each for each in self._sharding.shards if each.offloaded is None]
        stepped += [part for shard in in_memory for part in shard.parts]
        states = [self.optimizer.state.get(each, {}).values() for each in stepped]
        mains = self._mains.bytes + self._sharding.bytes_of_mains
        kept: dict[str, float] = {
            "weights": sum(each.nbytes for each in whole) + self._sharding.bytes_kept,
            "gradients": self._gradient_bytes,
            "optimizer": mains
            + sum(each.nbytes for state in states for each in state if isinstance(each, Tensor)),
        }
        if self._storage:
            kept |= {"buffers": self._storage.memory.most, "offloaded": self._storage.bytes}
        return kept

    def _bytes_of_gradients(self) -> int:
        whole = [each for share in self._shares for each in share.parameters]
        shards = self._sharding.shards
        cut = [each for one in shards for each in one.accumulators]
        cut += [each for one in shards if not one.has_gradients_away for each in one.parts]
        gradients = [each.grad for each in whole + cut if each.grad is not None]
        # Sparse ones, too.
        kept = sum(each.numel() * each.element_size() for each in gradients)
        return kept + self._sharding.bytes_of_gradients_in_passing

    def gather(self) -> nn.Module:
        """Brings the trained parameters and buffers of all stages to every rank; returns the model.

        Called by all ranks; blocks. For evaluation and for saving `model.state_dict()`. The next
        step lets go of them again.
        """
        if self._whole:
            return self.model
        self._sharding.gather()
        self._parts.gather()
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if self._is_released(name):
                    parameter.data = torch.empty(
                        parameter.shape, dtype=parameter.dtype, device=self._device
                    )
                ct.broadcast_(parameter.data, self._owner_of(name), group=self._group)
            for name, buffer in self.model.named_buffers():
                ct.broadcast_(
                    buffer, self._seats.first_of(self._stage_of_buffer(name)), group=self._group
                )
        self._whole = True
        return self.model

    def close(self) -> None:
        """Gathers the model and ends the plan. Called by all ranks; blocks.

        The optimizer steps the parameters again, and has the state of this rank's stage.
        """
        self.gather()
        self._leave_plan(join=True, casts=True)
        for each in self._guards:
            each.remove()

    def _unload(self) -> None:
        with suppress(CorroError):  # Ranks have come or gone, and the engine with them.
            self._loaded.unload()

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Inside, the model runs for the trainer, which knows that parameters are missing."""
        self._runs_now = True
        try:
            yield
        finally:
            self._runs_now = False

    def _refuse_parts(self, *_: Any) -> None:
        """Is called before the model runs or is saved, with parameters missing perhaps."""
        if not self._whole and not self._runs_now and self._misses_some:
            raise FailedPreconditionError(
                "this rank has its own part of the parameters alone: call trainer.gather(), on all"
                " ranks, before the model is used or saved"
            )

    # --- What the plan calls ------------------------------------------------------------------

    def _forward(self, firing: Firing) -> None:
        result, count = None, 0
        with self._failures.noted():
            result, count = self._result(firing)
        self._sharding.end_forward()
        self._axis.forget()
        if self._last:
            return
        self._hand_on(firing, None)  # As without samples, if this one fails.
        if result is not None:
            with self._failures.noted():
                self._hand_on(firing, result.detach(), count)

    def _result(self, firing: Firing) -> tuple[Tensor | None, int]:
        """Returns what the stage makes of its samples, as tokens.handed_on() does.

        None: there are none, or a rank failed.
        """
        micro = firing.micro % self._micro_batches
        received, entry, own = None, None, self._samples(micro)
        if not self._first:
            tensor = slots.read(firing.inputs[-1])
            if tensor is not None:
                received = tensor.to(self._device, copy=True).requires_grad_()
                count = slots.tokens_of(firing.inputs[-1])
                entry = tokens.received(received, count, self._axis)
        missing = not self._first and received is None
        if not len(own) or missing or self._failures.own is not None:
            return None, 0
        rows = samples.rows(self._batch, own, self._count)
        with self._randomness.of(self.steps, own) as places:
            result, count = tokens.handed_on(self._stage.forward(rows, entry, places))
        self._held[micro] = received, self._weighted(result, own)
        return result, count

    def _weighted(self, result: Tensor, own: range) -> Tensor:
        if not self._last:
            return result
        weight = len(own) / self._count
        self._loss += float(result.detach()) * weight
        # Of a loss in float16 the scaled one may be more than that can hold.
        wide = result.to(torch.promote_types(result.dtype, torch.float32))
        return wide * weight * self.scaling.loss_scale

    def _backward(self, firing: Firing) -> None:
        micro = firing.micro % self._micro_batches
        received, result = self._held.pop(micro, (None, None))
        self._sharding.begin_backward()
        if result is not None and result.requires_grad and self._failures.own is None:
            gradient = None
            if not self._last:
                sent = slots.read(firing.inputs[-1])
                gradient = None if sent is None else sent.to(self._device)
            if self._last or gradient is not None:
                with self._failures.noted(), self._randomness.of(self.steps, self._samples(micro)):
                    torch.autograd.backward(result, gradient)
        self._sharding.end_backward()
        self._axis.forget()
        if not self._first:
            gradient = None if received is None else received.grad
            if received is not None and gradient is None:
                gradient = torch.zeros_like(received)
            self._hand_on(firing, gradient)

    def _hand_on(self, firing: Firing, tensor: Tensor | None, count: int = 0) -> None:
        *_, slot = outputs = firing.outputs
        size = slots.write(slot, tensor, f"stage {self._stage_number}", count)
        firing.fill(len(outputs) - 1, size)

    def _samples(self, micro: int) -> range:
        """Returns this rank's samples of a micro-batch."""
        parts = self._seats.shape.data * self._micro_batches
        own = self._seats.data * self._micro_batches + micro
        return samples.share(self._count, parts, own)

    # --- Whose parameters are whose -------------------------------------------------------------

    def _cut_under(self, planned: Planned, stage: int, forms: Mapping[str, Form]) -> list[str]:
        """Returns the parameters of which each rank of a stage keeps a part under a plan."""
        shape = planned.decisions.shape
        if not level_of(shape):
            return []
        return [
            name
            for name, used in self._users_of_parameters(planned).items()
            if used == (stage,) and name in self._stepped and forms[name].requires_grad
            if forms[name].can_be_cut(shape.data)
        ]

    def _users_of_parameters(self, planned: Planned) -> dict[str, tuple[int, ...]]:
        """Returns the stages that use each parameter; one that nobody uses is not in it."""
        users: dict[str, set[int]] = {}
        for number, stage in enumerate(planned.decisions.stages):
            for layer in self._layers_of(stage):
                for name in layer.parameters:
                    users.setdefault(name, set()).add(number)
        names = [name for name, _ in self.model.named_parameters() if name in users]
        return {name: tuple(sorted(users[name])) for name in names}

    @property
    def _misses_some(self) -> bool:
        return (
            any(map(self._is_released, self._users))
            or self._sharding.misses_some
            or bool(self._parts.names)
        )

    def _is_released(self, name: str) -> bool:
        return name in self._users and self._stage_number not in self._users[name]

    def _take(self) -> None:
        """Takes what whole parameters are, which the user may have changed, into parts and main
        weights."""
        if self._whole:
            self._parts.take()
            self._mains.take()
            self._sharding.take()

    def _release(self) -> None:
        if not self._whole:
            return
        self._take()
        self._whole = False
        for name, parameter in self.model.named_parameters():
            if self._is_released(name):
                parameter.data = stand_in(parameter.shape, parameter.dtype, self._device)
        self._sharding.drop()
        self._parts.drop()

    def _go_on_from(self, step: int, seed: int) -> None:
        """The next step is number `step`, from 0, of a training whose draws have this seed."""
        self.steps, self._randomness = step, Randomness(seed)

    @contextmanager
    def _whole_optimizer(self, *, join: bool = False, cut: bool = False) -> Iterator[None]:
        """Inside, the optimizer has parameters instead of their parts.

        Args:
            join: it has their whole state, too. All ranks call it then; blocks.
            cut: it gets whole states inside, of which the parts keep their part.
        """
        with self._calls.detached():
            self._step_parameters(join=join)
            try:
                yield
            finally:
                step_parts(self.optimizer, [self._parts], cut=cut)
                self._step_parts(cut=cut)

    def _step_parts(self, *, cut: bool = True) -> None:
        """From now on the optimizer steps shards' parts, and main weights."""
        step_parts(self.optimizer, self._sharding.shards, cut=cut)
        self._mains.step_mains(self.optimizer)

    def _step_parameters(self, *, join: bool, casts: bool = False) -> None:
        """From now on it steps the parameters again; `casts`: their state gets their dtype."""
        step_parameters(self.optimizer, self._sharding.shards, join=join, casts=casts)
        self._mains.step_parameters(self.optimizer, casts=casts)
        step_parameters(self.optimizer, [self._parts], join=join)

    def _main_weights(self) -> dict[str, Tensor]:
        """Returns those of this stage, whole, by names of parameters. All ranks call it; blocks."""
        mains: dict[str, Tensor] = {name: each.data for name, each in self._mains.mains.items()}
        return self._parts.joined(mains | self._sharding.main_weights())

    def _adopt_main_weights(self, mains: Mapping[str, Tensor]) -> None:
        """Goes on with main weights of a checkpoint, of which parameters are there already."""
        own = self._parts.own(mains)
        self._mains.adopt(own)
        self._sharding.adopt_main_weights(own)

    def _speaks_for(self, parameter: str, number: int) -> bool:
        """Returns whether it is this one of the ranks that have a parameter; by its number."""
        stages = self._users.get(parameter, range(len(self.plan.decisions.stages)))
        data = self._seats.shape.data
        at = number % (len(stages) * data)
        return (stages[at // data], at % data) == (self._stage_number, self._seats.data)

    def _owner_of(self, parameter: str) -> int:
        """Returns the rank of the world from which others get a parameter and its state."""
        return self._seats.first_of(self._users.get(parameter, (0,))[0])

    def _layers_of(self, stage: PlannedStage) -> tuple[Layer, ...]:
        return self._recording.layers[stage.first_layer : stage.end_layer]

    def _stage_of_buffer(self, name: str) -> int:
        """Returns the stage that runs the module which has this buffer."""
        for number, stage in enumerate(self.plan.decisions.stages):
            for layer in self._layers_of(stage):
                if any(name.startswith(f"{call.path}.") for call in layer.calls):
                    return number
        return 0


def device_of(model: nn.Module) -> torch.device:
    return next((each.device for each in model.parameters()), torch.device("cpu"))


def _joined(parts: list[Any]) -> Any:
    """Returns the batch that all ranks' parts are together."""
    leaves = [tree_flatten(part) for part in parts]
    columns = zip(*(each for each, _ in leaves), strict=True)
    joined = [
        torch.cat(column) if isinstance(column[0], Tensor) else column[0] for column in columns
    ]
    return tree_unflatten(joined, leaves[0][1])
