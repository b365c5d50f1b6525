"""Each sample comes once, whoever is killed and whoever joins: real processes.

With torch where its loaders and its optimizer's passes are the subject; else with numpy.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch.nn.functional as F
from elastic_jobs import Elastic, Ran, history
from histories import mistakes
from numpy_training import parameters_after_data_epochs
from training import SAMPLES, examples, network, sgd

from corro.elastic._permutation import Permutation

pytestmark = [pytest.mark.faults, pytest.mark.beside]


def check_each_comes_once(elastic: Elastic, place: str, **more: Any) -> None:
    kills = {1: (5, place), 3: (12, "backward")}
    options = json.dumps({"batch_size": 4, **more})
    ran = elastic("samples", 4, kills, "--min-np", "2", OPTIONS=options)
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert ran.end(0)["digest"] == ran.end(2)["digest"]


@pytest.mark.parametrize("place", ["forward", "backward", "step", "between"])
def test_each_sample_comes_once(elastic: Elastic, place: str) -> None:
    check_each_comes_once(elastic, place)


@pytest.mark.parametrize(("place", "processes"), [("backward", 0), ("step", 2)])
def test_each_sample_of_a_loader_comes_once(
    elastic_torch: Elastic, place: str, processes: int
) -> None:
    check_each_comes_once(elastic_torch, place, num_workers=processes)


def check_small_last_step(elastic: Elastic) -> Ran:
    options = json.dumps({"batch_size": 2, "global_batch": 7})  # 100 = 14 * 7 + 2.
    ran = elastic("samples", 4, {}, OPTIONS=options)
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert len({ran.end(rank)["digest"] for rank in range(4)}) == 1
    return ran


def test_the_last_step_may_have_fewer_samples_than_ranks(elastic: Elastic) -> None:
    ran = check_small_last_step(elastic)
    assert ran.end(0)["parameters"] == pytest.approx(with_numpy(7), abs=1e-5)


def test_torchs_last_step_may_have_fewer_samples_than_ranks(elastic_torch: Elastic) -> None:
    ran = check_small_last_step(elastic_torch)
    assert ran.end(0)["parameters"] == pytest.approx(with_torch(7), abs=1e-5)


def check_global_batch(elastic: Elastic, ranks: int) -> Ran:
    kills = {1: (3, "backward"), 2: (9, "step")}
    options = json.dumps({"batch_size": 4, "global_batch": 12})
    ran = elastic("samples", ranks, kills, "--min-np", "1", OPTIONS=options)
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert ran.end(0)["steps"] == 2 * 9
    return ran


@pytest.mark.parametrize("ranks", [3, 4])
def test_a_global_batch_stays_that_of_one_process(elastic: Elastic, ranks: int) -> None:
    ran = check_global_batch(elastic, ranks)
    assert ran.end(0)["parameters"] == pytest.approx(with_numpy(12), abs=1e-5)


def test_a_global_batch_of_torchs_stays_that_of_one_process(elastic_torch: Elastic) -> None:
    ran = check_global_batch(elastic_torch, 3)
    assert ran.end(0)["parameters"] == pytest.approx(with_torch(12), abs=1e-5)


def orders() -> list[list[int]]:
    """The samples of two data epochs in the order of an ElasticSampler."""
    return [Permutation(SAMPLES, 5, epoch).indices(range(SAMPLES)) for epoch in range(2)]


def with_numpy(batch_size: int) -> list[float]:
    """What one process has after two data epochs."""
    return parameters_after_data_epochs(orders(), batch_size)


def with_torch(batch_size: int) -> list[float]:
    """As with_numpy()."""
    x, y = examples()
    model = network()
    optimizer = sgd(model)
    for order in orders():
        for first in range(0, SAMPLES, batch_size):
            taken = order[first : first + batch_size]
            optimizer.zero_grad()
            F.mse_loss(model(x[taken]), y[taken]).backward()
            optimizer.step()
    return [value for param in model.parameters() for value in param.flatten().tolist()]


def test_each_sample_of_streams_comes_once(elastic_torch: Elastic) -> None:
    kills = {0: (4, "backward"), 3: (6, "between"), 4: (9, "backward")}
    ran = elastic_torch("streams", 5, kills, "--min-np", "2")
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert ran.end(1)["digest"] == ran.end(2)["digest"]


@pytest.mark.parametrize(
    ("fixture", "scenario"), [("elastic", "samples"), ("elastic_torch", "streams")]
)
def test_each_sample_comes_once_where_a_rank_joins(
    request: pytest.FixtureRequest, fixture: str, scenario: str
) -> None:
    elastic: Elastic = request.getfixturevalue(fixture)
    options = json.dumps({"batch_size": 4})
    ran = elastic(scenario, 2, {}, "--max-np", "3", GATE="5", OPTIONS=options)
    ran.job.check()
    events = history(ran)
    assert mistakes(events, SAMPLES, 2) == []
    assert next(event.step for event in events if event.member == 100) == 6
    assert ran.end(0)["digest"] == ran.end(1)["digest"]
