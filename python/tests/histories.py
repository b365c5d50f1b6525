"""What ranks of an elastic job have done with samples, and a checker that proves it right.

A member is a process. Before its gradients can reach anybody it notes which samples it takes in a
step (Taken), and behind optimizer.step() that the step was applied (Applied). Both are noted with
the membership epoch that the member was in.

A step may be begun in several epochs: a rank was lost, and the others did it again. The attempt in
the last of them counts. An earlier one must have left no trace: nobody who had applied it may be
there when the step is begun again. The checker looks for that. Then it counts the samples of the
attempts that count: each sample has to come once in each data epoch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """A member takes samples in a step."""

    member: int
    epoch: int
    rank: int
    ranks: int
    step: int
    data_epoch: int
    samples: tuple[int, ...]
    weight: float  # The sum over its batches.


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """A member has applied the step."""

    member: int
    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What a history amounts to."""

    begun: int  # Attempts at steps.
    committed: int  # Steps that were applied.
    lost: int  # Those that one who had applied them has done again.
    samples_lost: int
    samples_twice: int


Event = Taken | Applied
Attempts = dict[int, dict[int, list[Taken]]]  # By step and epoch.


def mistakes(history: Iterable[Event], samples: int, data_epochs: int) -> list[str]:
    """Returns what is wrong with a whole history; nothing if each sample was applied once.

    `samples`: how many each of the data epochs 0 to data_epochs - 1 has: numbers from 0 on.
    """
    attempts, appliers = _sorted_out(history)
    found = []
    if sorted(attempts) != list(range(len(attempts))):
        found.append("steps are missing")
    for (step, epoch), members in appliers.items():
        found += _not_applied_rightly(step, epoch, members, attempts[step])
    counted = _counted(attempts)
    for parts in counted:
        found += _divided_wrongly(parts)
        if (parts[0].step, parts[0].epoch) not in appliers:
            found.append(f"step {parts[0].step} was not applied")
    return found + _wrong_counts(counted, samples, data_epochs)


def count(history: Iterable[Event], samples: int, data_epochs: int) -> Counts:
    """Returns what a whole history amounts to; arguments as of mistakes()."""
    attempts, appliers = _sorted_out(history)
    times = _times(_counted(attempts))
    lost = {
        step
        for (step, epoch), members in appliers.items()
        if _done_again(epoch, members, attempts[step])
    }
    return Counts(
        begun=sum(map(len, attempts.values())),
        committed=len({step for step, _ in appliers}),
        lost=len(lost),
        samples_lost=sum(times[key] == 0 for key in _due(samples, data_epochs)),
        samples_twice=sum(each > 1 for each in times.values()),
    )


def _sorted_out(
    history: Iterable[Event],
) -> tuple[Attempts, dict[tuple[int, int], list[int]]]:
    """Returns the attempts, and by step and epoch who has applied it."""
    attempts: Attempts = defaultdict(lambda: defaultdict(list))
    appliers: dict[tuple[int, int], list[int]] = defaultdict(list)
    for event in history:
        if isinstance(event, Taken):
            attempts[event.step][event.epoch].append(event)
        else:
            appliers[event.step, event.epoch].append(event.member)
    return attempts, appliers


def _counted(attempts: Attempts) -> list[list[Taken]]:
    """Returns the attempts that count, by step."""
    return [attempts[step][max(attempts[step])] for step in sorted(attempts) if attempts[step]]


def _not_applied_rightly(
    step: int, epoch: int, members: list[int], attempts: dict[int, list[Taken]]
) -> list[str]:
    found = []
    if not {part.member for part in attempts.get(epoch, ())} >= set(members):
        found.append(f"step {step} was applied by a member that took no part in it")
    if len(set(members)) < len(members):
        found.append(f"step {step} was applied twice in epoch {epoch}")
    return found + [
        f"step {step} was applied in epoch {epoch}, and done again in {later}"
        for later in _done_again(epoch, members, attempts)
    ]


def _done_again(epoch: int, members: list[int], attempts: dict[int, list[Taken]]) -> list[int]:
    """Returns the later epochs in which one of those who had applied a step began it again."""
    return [
        later
        for later, parts in attempts.items()
        if later > epoch and not {part.member for part in parts}.isdisjoint(members)
    ]


def _divided_wrongly(parts: list[Taken]) -> list[str]:
    """What is wrong with one step that was applied."""
    step, ranks = parts[0].step, parts[0].ranks
    found = []
    if sorted(part.rank for part in parts) != list(range(ranks)):
        found.append(f"step {step}: not all {ranks} ranks took part")
    if len({(part.data_epoch, part.ranks) for part in parts}) > 1:
        found.append(f"step {step}: ranks differ in data epoch or world")
    total = sum(len(part.samples) for part in parts)
    if total == 0:
        return [*found, f"step {step} has no samples"]
    return found + [
        f"step {step}: rank {part.rank} weighs {part.weight}"
        for part in parts
        if abs(part.weight - len(part.samples) * ranks / total) > 1e-9
    ]


def _wrong_counts(counted: list[list[Taken]], samples: int, data_epochs: int) -> list[str]:
    times = _times(counted)
    due = _due(samples, data_epochs)
    found = [f"sample {key[1]} of data epoch {key[0]} came {times[key]} times" for key in due
             if times[key] != 1]  # fmt: skip
    found += [f"there is no sample {key}" for key in times.keys() - set(due)]
    order = [parts[0].data_epoch for parts in counted]
    if order != sorted(order):
        found.append("a data epoch began before another one was over")
    return found


def _due(samples: int, data_epochs: int) -> list[tuple[int, int]]:
    """Returns each sample of each data epoch."""
    return [(data_epoch, sample) for data_epoch in range(data_epochs) for sample in range(samples)]


def _times(counted: list[list[Taken]]) -> Counter[tuple[int, int]]:
    """Returns how often each sample of a data epoch was applied."""
    times: Counter[tuple[int, int]] = Counter()
    for parts in counted:
        times.update((part.data_epoch, sample) for part in parts for sample in part.samples)
    return times
