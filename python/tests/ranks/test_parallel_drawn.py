"""corro.parallelize() of drawn models, batches, optimizers, clusters and plans (drawn.py).

The number in a test's name is its seed: `-k "[17]"` draws the same again. CORRO_TEST_DRAWS=100:200
draws others.
"""

from __future__ import annotations

import os

import pytest
from drawn import case_of, loss
from parallel_training import alone

import corro

pytestmark = pytest.mark.usefixtures("job", "one_thread")

SEEDS = range(*map(int, os.environ.get("CORRO_TEST_DRAWS", "0:10").split(":")))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_plan_gives_the_losses_of_one_process(seed: int) -> None:
    case = case_of(seed, corro.size())
    expected, _ = alone(
        case.model(), loss, case.batches, lambda batch: len(batch[0]), case.stepped_by
    )
    for pins in case.plans:
        model = case.model()
        optimizer = case.stepped_by(model)
        try:
            trainer = corro.parallelize(
                model, optimizer, loss, case.batches[0], case.cluster, pins=pins
            )
        except (corro.InvalidArgumentError, corro.ResourceExhaustedError):  # No such plan.
            continue
        with trainer:
            losses = [trainer.step(each) for each in case.batches]
        told = (seed, case.optimizer, pins, trainer.plan.decisions.shape)
        assert losses == pytest.approx(expected, rel=1e-5, abs=1e-5), told
        return
