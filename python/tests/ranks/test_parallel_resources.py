"""Ranks describe themselves as a cluster that the planner takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import corro
import corro.torch as ct
from corro.torch.parallel.resources import checked_resources, resources_of

pytestmark = [pytest.mark.torch22, pytest.mark.usefixtures("job")]
CPU = torch.device("cpu")


def test_the_job_is_a_cluster_and_the_same_on_all_ranks() -> None:
    cluster: Any = resources_of(corro.world(), CPU)
    assert ct.allgather_object(cluster) == [cluster] * corro.size()
    checked_resources(cluster, corro.size())
    (host,) = cluster["hosts"]
    (kind,) = cluster["devices"].values()
    assert host["devices"] == corro.size()
    assert kind["memory"] * corro.size() < 1e15
    assert kind["peak"]["f32"] > 1e7
    assert kind["memory_bandwidth"] > 1e7
    if corro.size() > 1:
        assert host["link"]["bandwidth"] > 1e6
        assert 0 < host["link"]["latency"] < 1
    planned = corro.plan("gpt2-small", cluster, global_batch=8, sequence=128)
    assert planned.decisions.shape.ranks <= corro.size()


def test_a_group_is_a_cluster_of_its_ranks() -> None:
    ranks = list(range(corro.size()))[-2:]
    group = corro.new_group(ranks)
    if group.included():
        checked_resources(resources_of(group, CPU), len(ranks))


def test_a_rank_whose_device_cannot_be_measured_is_named_on_all_ranks() -> None:
    last = corro.size() - 1
    device = torch.device("meta" if corro.rank() == last else "cpu")
    with pytest.raises(corro.InvalidArgumentError) as refused:
        resources_of(corro.world(), device)
    assert str(refused.value) == (
        f"parallelize: resources: rank {last}: corro cannot measure a device of type meta: "
        "give resources=, a cluster file"
    )
    resources_of(corro.world(), CPU)  # Nothing is left of it.
