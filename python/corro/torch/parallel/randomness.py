"""Randomness in a model that does not depend on how the batch and the model are cut.

    randomness = Randomness(seed)
    with randomness.of(step, samples=range(8, 12)) as places:  # this micro-batch's, of the batch
        places.enter(0)
        hidden = layer(hidden)
        places.leave(0)

What is drawn is a function of the seed, the step, the sample's number in the whole batch, the
place in the model, and the element. The place is the layer and how many draws came since it
began; it lies in torch's own generator of the CPU, which `enter` and `leave` seed. So whatever
keeps that generator's state (torch's checkpoint does, unless `preserve_rng_state=False`) draws
the same again in backward, on whichever thread, if a `with` of the same step and samples is
around backward, too.

Not covered: Python's and numpy's random; a generator of the model's own; functions that
torch.compile or torch.jit made; Python threads that the model starts itself.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from corro.errors import FailedPreconditionError
from corro.torch.parallel import draws, masks
from corro.torch.parallel.random_functions import RandomFunctions

_BEFORE, _INSIDE, _AFTER = range(3)


class Randomness:
    """Seeds one training's draws. Externally synchronized; one `of` at a time in a process."""

    _in_use = threading.Lock()
    """One of a process, as the generator is that it guards."""

    def __init__(self, seed: int) -> None:
        """`seed`: the same on all ranks."""
        self.seed = seed
        self._warned: set[tuple[int, str]] = set()

    @contextmanager
    def of(self, step: int, samples: range) -> Iterator[Places]:
        """Draws for a forward or a backward of these samples of the step's whole batch.

        torch's generators are afterwards as they were, also after an exception.

        Raises:
            FailedPreconditionError: another `of` has not ended: all share torch's generator.
        """
        if not Randomness._in_use.acquire(blocking=False):
            raise FailedPreconditionError(
                "Randomness.of: another one has not ended in this process: run one forward or"
                " backward at a time"
            )
        try:
            with generators_kept():
                places = Places(masks.mix(self.seed, step), samples)

                def warn(name: str, shape: tuple[int, ...]) -> None:
                    self._warn(places.layer, name, shape, len(samples))

                with RandomFunctions(samples, warn):
                    yield places
        finally:
            Randomness._in_use.release()

    def _warn(self, layer: int, name: str, shape: tuple[int, ...], samples: int) -> None:
        if (layer, name) in self._warned:
            return
        self._warned.add((layer, name))
        where = f"layer {layer}" if layer >= 0 else "before the first layer"
        warnings.warn(
            f"{where}: {name} of a tensor of shape {shape}, in which no dim counts the {samples}"
            " samples: every micro-batch draws the same",
            stacklevel=3,
        )


class Places:
    """Where the model's forward is. Externally synchronized; made by `Randomness.of`."""

    def __init__(self, number: int, samples: range) -> None:
        self._number = number
        self._first = samples[0] if samples else 0
        self.layer = -1
        self._begin(-1, _BEFORE)

    def enter(self, layer: int) -> None:
        """Begins a layer, also one that another stage runs; may be called again to recompute."""
        self._begin(layer, _INSIDE)

    def leave(self, layer: int) -> None:
        """Ends a layer: what is drawn until the next begins is drawn after this one."""
        self._begin(layer, _AFTER)

    def _begin(self, layer: int, phase: int) -> None:
        """Seeds what is drawn from here; devices, which draw what corro cannot cut, by sample."""
        self.layer = layer
        place = masks.mix(self._number, layer, phase)
        torch.default_generator.manual_seed(place)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            draws.generator_of("cuda").manual_seed(masks.mix(place, self._first))


@contextmanager
def generators_kept() -> Iterator[None]:
    """Gives torch's generators back their states."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        generators += torch.cuda.default_generators
    states = [each.get_state() for each in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
