"""corro.log(): values of a training, for those who look at it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import SupportsFloat

from corro import _arguments, _context
from corro.errors import InvalidArgumentError

_MOST_BYTES = 31  # Of a name; the engine's limit.


def log(
    values: Mapping[str, SupportsFloat] | None = None,
    /,
    *,
    step: int | None = None,
    of: int | None = None,
    **metrics: SupportsFloat,
) -> None:
    """Shows values of this rank to those who look at the job: the dashboard, `corro top`, ...

    Of each name the newest value is shown, its mean over the ranks, and its course over time::

        for step, batch in enumerate(batches):
            loss = train(batch)
            corro.log(loss=loss, step=step, of=len(batches))

    Does not wait for anything, and takes a few microseconds; but of a value that a GPU computes it
    waits for the GPU, as `float()` does. Any thread may call it. Without init() nobody looks, and
    only writers for other tools get the values.

    Args:
        values: more of `metrics`, for names that are no words of Python.
        step: the step that they are of, from 0 on; else the last one that corro.set_step() or an
            optimizer has told. In a program in which neither tells steps, this does.
        of: how many steps the whole training has, above 0, in the same count as `step`: then
            progress is shown, and how long the rest takes.
        metrics: of each name a number, finite or not: what `float()` takes, as a tensor of one
            element. A name has at most 31 bytes of UTF-8, and a process 16 names.

    Raises:
        InvalidArgumentError: a value is no number, or a name, `step` or `of` is not as above.
        ResourceExhaustedError: it would be the 17th name; none of the values is taken.
    """
    from corro import _log_writers  # It loads threads: not with `import corro`.

    taken = _numbers(values, metrics)
    at = None if step is None else _arguments.whole("step", step, 0, _arguments.MOST_U64)
    most = 0 if of is None else _arguments.whole("of", of, 1, _arguments.MOST_U64)
    context = _context.current_or_none()
    if context is not None:
        at = context.engine.counter("step") if at is None else at
        context.engine.log(at, list(taken.items()), most)
    for writer in _log_writers.writers():
        writer.write(at or 0, taken)


def _numbers(
    values: Mapping[str, SupportsFloat] | None, metrics: dict[str, SupportsFloat]
) -> dict[str, float]:
    if values is not None:
        if not isinstance(values, Mapping):
            raise InvalidArgumentError(
                f"corro.log() takes numbers by their names, as loss=0.3 or {{'loss': 0.3}}, "
                f"not {values!r}"
            )
        metrics = {**values, **metrics}
    return {_checked(name): _arguments.number(name, value) for name, value in metrics.items()}


def _checked(name: object) -> str:
    fits = isinstance(name, str) and name.isprintable() and 0 < len(name.encode()) <= _MOST_BYTES
    if not fits:
        raise InvalidArgumentError(
            f"corro.log(): a name has 1 to {_MOST_BYTES} printable bytes of UTF-8, "
            f"{name!r} does not"
        )
    assert isinstance(name, str)
    return name
