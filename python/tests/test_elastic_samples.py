"""Each sample comes once, whoever is killed and whoever joins: real processes."""

from __future__ import annotations

import json

import pytest
import torch.nn.functional as F
from elastic_jobs import Elastic, history
from histories import mistakes
from training import SAMPLES, examples, network, sgd

from corro.elastic._permutation import Permutation

pytestmark = [pytest.mark.faults, pytest.mark.beside]


@pytest.mark.parametrize("place", ["forward", "backward", "step", "between"])
def test_each_sample_comes_once(elastic: Elastic, place: str) -> None:
    kills = {1: (5, place), 3: (12, "backward")}
    options = json.dumps({"batch_size": 4, "num_workers": 2 if place == "step" else 0})
    ran = elastic("samples", 4, kills, "--min-np", "2", OPTIONS=options)
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert ran.end(0)["digest"] == ran.end(2)["digest"]


def test_the_last_step_may_have_fewer_samples_than_ranks(elastic: Elastic) -> None:
    options = json.dumps({"batch_size": 2, "global_batch": 7})  # 100 = 14 * 7 + 2.
    ran = elastic("samples", 4, {}, OPTIONS=options)
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert len({ran.end(rank)["digest"] for rank in range(4)}) == 1
    assert ran.end(0)["parameters"] == pytest.approx(parameters_of_two_data_epochs(7), abs=1e-5)


@pytest.mark.parametrize("ranks", [3, 4])
def test_a_global_batch_stays_that_of_one_process(elastic: Elastic, ranks: int) -> None:
    kills = {1: (3, "backward"), 2: (9, "step")}
    options = json.dumps({"batch_size": 4, "global_batch": 12})
    ran = elastic("samples", ranks, kills, "--min-np", "1", OPTIONS=options)
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert ran.end(0)["steps"] == 2 * 9
    assert ran.end(0)["parameters"] == pytest.approx(parameters_of_two_data_epochs(12), abs=1e-5)


def parameters_of_two_data_epochs(batch_size: int) -> list[float]:
    """What one process has after two data epochs in the order of an ElasticSampler."""
    x, y = examples()
    model = network()
    optimizer = sgd(model)
    for data_epoch in range(2):
        order = Permutation(SAMPLES, 5, data_epoch)
        for first in range(0, SAMPLES, batch_size):
            taken = order.indices(range(SAMPLES)[first : first + batch_size])
            optimizer.zero_grad()
            F.mse_loss(model(x[taken]), y[taken]).backward()
            optimizer.step()
    return [value for param in model.parameters() for value in param.flatten().tolist()]


@pytest.mark.parametrize("place", ["backward", "between"])
def test_each_sample_of_streams_comes_once(elastic: Elastic, place: str) -> None:
    kills = {0: (4, place), 3: (9, "backward")}
    ran = elastic("streams", 4, kills, "--min-np", "2")
    ran.job.check()
    assert mistakes(history(ran), SAMPLES, 2) == []
    assert ran.end(1)["digest"] == ran.end(2)["digest"]


@pytest.mark.parametrize("scenario", ["samples", "streams"])
def test_each_sample_comes_once_where_a_rank_joins(elastic: Elastic, scenario: str) -> None:
    options = json.dumps({"batch_size": 4})
    ran = elastic(scenario, 2, {}, "--max-np", "3", GATE="5", OPTIONS=options)
    ran.job.check()
    events = history(ran)
    assert mistakes(events, SAMPLES, 2) == []
    assert next(event.step for event in events if event.member == 100) == 6
    assert ran.end(0)["digest"] == ran.end(1)["digest"]
