"""corro.parallelize() of drawn models, batches, optimizers, clusters and plans (drawn.py).

The number in a test's name is its seed: `-k "[17]"` draws the same again. CORRO_TEST_DRAWS=100:200
draws others.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from drawn import case_of, loss
from parallel_training import alone

import corro

pytestmark = pytest.mark.usefixtures("job", "one_thread")

SEEDS = range(*map(int, os.environ.get("CORRO_TEST_DRAWS", "0:9").split(":")))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_plan_gives_the_losses_of_one_process(seed: int, tmp_path: Path) -> None:
    case = case_of(seed, corro.size())
    norms: list[float] = []
    one_process = partial(case.clipped_by, norms=norms)
    expected, _ = alone(case.model(), loss, case.batches, lambda batch: len(batch[0]), one_process)
    refusal: corro.CorroError | None = None
    for pins in case.plans:
        model = case.model()
        try:
            trainer = corro.parallelize(
                *(model, case.stepped_by(model), loss, case.batches[0], case.cluster),
                pins=pins,
                max_norm=case.max_norm,
                offload=tmp_path if case.kind == "offload" else None,
            )
        except (corro.InvalidArgumentError, corro.ResourceExhaustedError) as error:
            refusal = error
            continue
        losses, found = [], []
        with trainer:
            for batch in case.batches:
                losses.append(trainer.step(batch))
                found.append(trainer.scaling.norm)
                if len(losses) == case.gathers_behind:
                    trainer.gather()
        shape = trainer.plan.decisions.shape
        told = (seed, case.optimizer, pins, shape)
        assert (shape.tensor > 1) == (case.kind == "tensor" and corro.size() > 1), told
        assert (shape.offload != "off") == (case.kind == "offload"), told
        assert losses == pytest.approx(expected, rel=1e-5, abs=1e-5), told
        assert case.max_norm is None or found == pytest.approx(norms, rel=1e-4), told
        return
    pytest.fail(f"{seed}: no plan of {case.plans}: {refusal}")
