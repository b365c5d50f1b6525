"""What ranks report, as a cluster that the planner takes; and clusters that users give."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Launch

import corro
from corro.torch.parallel.capability import RankReport, host_memory, known_name
from corro.torch.parallel.links import Link, _partners, together
from corro.torch.parallel.resources import (
    _check_order,
    calibration_of,
    checked_resources,
    cluster_of,
)

pytestmark = pytest.mark.torch22

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/plan"
GB = 10**9
CORE = RankReport(
    host=0,
    device="cpu",
    threads=1,
    memory=(("machine", 16 * GB),),
    peak={"f32": 8.04e10},
    memory_bandwidth=1.26e10,
    link=Link(5.04e9, 2.51e-6),
)
GPU = RankReport(
    host=0,
    device="NVIDIA A100-SXM4-80GB",
    known="a100-80gb",
    memory=(("GPU-0", 84 * GB),),
    peak={"f32": 1.7e13, "bf16": 2.4e14},
    memory_bandwidth=1.7e12,
    link=Link(1.9e11, 5e-6),
)
ETHERNET = Link(1.18e8, 8e-5)


def on_hosts(*counts: int, of: RankReport = CORE) -> list[RankReport]:
    """Returns equal ranks' reports, by the number of ranks in each host."""
    return [
        replace(of, host=host, network=ETHERNET, link=of.link if count > 1 else None)
        for host, count in enumerate(counts)
        for _ in range(count)
    ]


def planned(reports: Sequence[RankReport]) -> Any:
    """Returns the cluster as the planner has read it."""
    cluster = cluster_of(reports)
    assert checked_resources(cluster, len(reports)) is cluster
    return corro.plan("gpt2-small", cluster, global_batch=16, sequence=128).document["cluster"]


def types_of(cluster: dict[str, Any]) -> list[str]:
    """Returns each device's type."""
    return [
        host["device"] for host in cluster["hosts"] for _ in range(host["count"] * host["devices"])
    ]


def test_one_host() -> None:
    cluster = cluster_of([replace(CORE, network=None)] * 4)
    assert cluster == {
        "corro_cluster": 1,
        "name": "job",
        "hosts": [
            {
                "name": "host0",
                "count": 1,
                "first": 0,
                "device": "cpu",
                "devices": 4,
                "link": {"bandwidth": 5e9, "latency": 2.5e-6},
            }
        ],
        "devices": {
            "cpu": {"memory": 4e9, "peak": {"f32": 8e10}, "memory_bandwidth": 1.3e10},
        },
    }
    assert planned([CORE] * 4)["types"][0]["memory_bytes"] == 4e9


def test_what_was_measured_calibrates() -> None:
    slower = replace(CORE, operator=8e-6)
    params = calibration_of([replace(each, operator=5e-6) for each in on_hosts(1, 1)] + [slower])
    assert params is not None
    assert params["collective_seconds"] == ETHERNET.latency
    assert params["operator_seconds"] == slower.operator
    assert params["matmul_efficiency"] == params["network_efficiency"] == 1.0
    plan = corro.plan("gpt2-small", cluster_of([slower] * 2), global_batch=4, params=params)
    assert plan.step < corro.plan("gpt2-small", cluster_of([slower] * 2), global_batch=4).step
    fast = replace(slower, operator=1e-9, link=Link(5e9, 0.0))  # Less than the planner takes.
    corro.plan("gpt2-small", cluster_of([fast] * 2), params=calibration_of([fast] * 2))
    assert calibration_of([CORE, slower]) is None
    assert calibration_of([replace(GPU, operator=5e-6)]) is None


def test_one_rank() -> None:
    cluster: Any = cluster_of([replace(CORE, link=None)])
    (host,) = cluster["hosts"]
    assert "link" not in host
    assert "network" not in host
    assert cluster["devices"]["cpu"]["memory"] == 16e9
    planned([replace(CORE, link=None)])


def test_equal_hosts_are_one_group() -> None:
    (host,) = cluster_of(on_hosts(2, 2, 2))["hosts"]  # type: ignore[misc]
    assert (host["name"], host["count"], host["devices"]) == ("host", 3, 2)
    assert host["network"] == {"bandwidth": 1.2e8, "latency": 8e-5}
    planned(on_hosts(2, 2, 2))


def test_hosts_of_different_sizes_keep_the_order_of_ranks() -> None:
    memory = (("machine", 48 * GB),)  # Which is more for each, if two share it instead of three.
    reports = [replace(each, memory=memory) for each in on_hosts(3, 1, 1, 2)]
    cluster: Any = cluster_of(reports)
    shapes = [(each["name"], each["count"], each["devices"]) for each in cluster["hosts"]]
    assert shapes == [("host0", 1, 3), ("host", 2, 1), ("host3", 1, 2)]
    assert cluster["hosts"][1]["first"] == 1
    assert "link" not in cluster["hosts"][1]


def test_noise_makes_no_second_type() -> None:
    noisy = [
        replace(each, peak={"f32": 8e10 * factor}, memory_bandwidth=1e10 / factor**2)
        for each, factor in zip(on_hosts(1, 1, 1), (1.0, 0.85, 0.9), strict=True)
    ]
    cluster: Any = cluster_of(noisy)
    assert list(cluster["devices"]) == ["cpu"]
    assert cluster["devices"]["cpu"]["peak"] == {"f32": 6.8e10}  # The slowest's.
    assert cluster["devices"]["cpu"]["memory_bandwidth"] == 1e10
    assert len(cluster["hosts"]) == 1


def test_a_slower_host_is_another_type() -> None:
    reports = on_hosts(1, 1, 1)
    reports[2] = replace(reports[2], peak={"f32": 4e10})
    cluster: Any = cluster_of(reports)
    assert types_of(cluster) == ["cpu-0", "cpu-0", "cpu-1"]
    assert cluster["devices"]["cpu-1"]["peak"] == {"f32": 4e10}
    assert len(planned(reports)["types"]) == 2


def test_ranks_of_one_host_are_as_fast_as_its_slowest() -> None:
    cluster: Any = cluster_of([CORE, replace(CORE, peak={"f32": 2e10})])
    assert types_of(cluster) == ["cpu", "cpu"]
    assert cluster["devices"]["cpu"]["peak"] == {"f32": 2e10}


def test_a_dtype_that_one_rank_has_not_is_left_out() -> None:
    cluster: Any = cluster_of([replace(CORE, peak={"f32": 8e10, "bf16": 9e10}), CORE])
    assert cluster["devices"]["cpu"]["peak"] == {"f32": 8e10}


def test_hosts_have_the_least_share_of_a_disk() -> None:
    reports = [replace(each, disk=2e9, disk_left=4e12) for each in on_hosts(2, 2)]
    reports[2] = replace(reports[2], disk=1.29e9, disk_left=3.29e12)
    cluster: Any = cluster_of(reports)
    (host,) = cluster["hosts"]
    assert host["to_host_memory"] == {"bandwidth": 1.3e9, "latency": 0.0}
    assert host["host_memory"] == 3.2e12
    planned(reports)
    assert "host_memory" not in cluster_of([*reports[:3], CORE])["hosts"][0]  # type: ignore[index]


def test_more_kinds_of_hosts_than_the_planner_takes_become_fewer() -> None:
    reports = [
        replace(each, peak={"f32": flops})
        for each, flops in zip(on_hosts(1, 1, 1, 1), (8e10, 4e10, 2e10, 7e10), strict=True)
    ]
    assert types_of(cluster_of(reports)) == ["cpu-0", "cpu-0", "cpu-1", "cpu-0"]
    assert len(planned(reports)["types"]) == 2


def test_ranks_with_different_threads_are_different_devices_of_one_host() -> None:
    reports = [CORE, CORE, replace(CORE, threads=4, peak={"f32": 3e11})]
    cluster: Any = cluster_of(reports)
    assert types_of(cluster) == ["cpu-0", "cpu-0", "cpu-1"]
    assert cluster["matrix"][0][1] == cluster["matrix"][1][0] == 5e9  # By the host's own link.
    planned(reports)


def test_parts_of_hosts_are_joined_by_their_links_and_hosts_by_the_network() -> None:
    wide = replace(CORE, threads=4, network=ETHERNET)
    narrow = replace(CORE, network=ETHERNET)
    reports = [wide, narrow, replace(narrow, host=1), replace(narrow, host=1)]
    cluster: Any = cluster_of(reports)
    network = 1.2e8
    assert [row[-1] for row in cluster["matrix"][:2]] == [network, network]
    assert cluster["matrix"][0][1] == 5e9
    planned(reports)


def test_memory_is_shared_by_those_who_have_the_same_limit() -> None:
    def memory_of(*limits: tuple[tuple[str, int], ...]) -> float:
        cluster: Any = cluster_of([replace(CORE, memory=each) for each in limits])
        return float(cluster["devices"]["cpu"]["memory"])

    machine = ("machine", 40 * GB)
    both = (machine, ("job", 10 * GB))
    assert memory_of(both, both) == 5e9
    assert memory_of((machine, ("one", 10 * GB)), (machine, ("other", 12 * GB))) == 10e9
    assert memory_of((machine, ("one", 30 * GB)), (machine, ("other", 30 * GB))) == 20e9
    assert memory_of((("machine", 19_990_000_000),)) == 19e9  # Never more than there is.
    assert memory_of((("machine", 0),)) == 1


def test_known_gpus_have_their_published_figures() -> None:
    reports = [replace(GPU, memory=((f"GPU-{index}", 84 * GB),)) for index in range(2)]
    reports[1] = replace(reports[1], peak={"f32": 1e12})  # Whatever was measured.
    cluster: Any = cluster_of(reports)
    assert types_of(cluster) == ["a100-80gb", "a100-80gb"]
    assert "devices" not in cluster
    (kind,) = planned(reports)["types"]
    assert (kind["memory_bytes"], kind["peak_flops_per_second"]["bf16"]) == (80e9, 312e12)


def test_unknown_and_shared_gpus_have_what_was_measured() -> None:
    other = replace(GPU, device="NVIDIA RTX A6000", known="", memory=(("GPU-1", 48 * GB),))
    assert types_of(cluster_of([GPU, other])) == ["a100-80gb", "NVIDIA RTX A6000"]
    shared: Any = cluster_of([GPU, GPU])
    assert types_of(shared) == ["NVIDIA A100-SXM4-80GB"] * 2
    fields = shared["devices"]["NVIDIA A100-SXM4-80GB"]
    assert fields["memory"] == 42e9
    assert fields["peak"] == {"bf16": 2.4e14, "f32": 1.7e13}
    planned([GPU, other])
    planned([GPU, GPU])


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA H100 PCIe", ""),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", ""),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", ""),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", ""),
    ],
)
def test_names_of_gpus(name: str, known: str) -> None:
    assert known_name(name) == known
    if known:  # The planner has it.
        host = {"device": known, "devices": 1}
        checked_resources({"corro_cluster": 1, "hosts": [host]}, 1)


def test_limits_of_control_groups(tmp_path: Path) -> None:
    def write(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    meminfo = write("meminfo", "MemTotal: 900 kB\nMemAvailable:     500 kB\n")
    write("two/job/memory.max", "max\n")
    write("two/job/memory.current", "1000\n")
    write("two/memory.max", "9000\n")
    write("two/memory.current", "4000\n")
    write("two/memory.stat", "anon 1000\nactive_file 2000\ninactive_file 500\n")
    process = write("process", "0::/job\n")
    limits = host_memory(tmp_path / "two", process, meminfo)
    assert [left for _, left in limits] == [500 * 1024, 9000 - 1500]
    write("one/memory/job/memory.limit_in_bytes", "9000\n")
    write("one/memory/job/memory.usage_in_bytes", "4000\n")
    write("one/memory/job/memory.stat", "active_file 7\ntotal_active_file 1000\n")
    write("one/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write("one/memory/memory.usage_in_bytes", "4000\n")
    process = write("process", "5:cpu:/job\n4:memory:/job\n")
    limits = host_memory(tmp_path / "one", process, meminfo)
    assert [left for _, left in limits] == [500 * 1024, 9000 - 3000]
    assert host_memory(tmp_path / "none", tmp_path / "none", meminfo) == (("machine", 512000),)


def test_who_measures_with_whom() -> None:
    assert _partners([0, 1, 2, 3], [0, 0, 1, 1], 3) == ([2, 3], [1, 3])
    assert _partners([4, 5, 6], [0, 0, 1], 0) == ([4, 5], [4, 6])
    assert _partners([4, 5, 6], [0, 0, 1], 1) == ([4, 5], [])
    assert _partners([0, 1], [0, 0], 1) == ([0, 1], [])
    assert _partners([0, 1], [0, 1], 1) == ([], [0, 1])


def test_a_network_is_what_its_lanes_have_together() -> None:
    lanes = [Link(50.0, 1.0), Link(70.0, 2.0), None, Link(60.0, 1.0), Link(80.0, 3.0)]
    assert together([0, 0, 0, 1, 1], lanes) == Link(120.0, 3.0)
    assert together([0, 0], [None, None]) is None


def test_ranks_that_are_not_numbered_host_by_host_are_refused() -> None:
    _check_order([0, 1, 2], [1, 1, 0])
    with pytest.raises(corro.InvalidArgumentError) as refused:
        _check_order([4, 5, 6], [0, 1, 0])
    assert str(refused.value).splitlines() == [
        "parallelize: resources: ranks 4 and 6 are on one host, and rank 5 between them is not: "
        "number the ranks host by host, as `corro run -H a:2,b:2` does"
    ]


def test_resources_of_a_user_have_a_device_for_each_rank() -> None:
    path = EXAMPLES / "cpu_2.yaml"
    assert checked_resources(path, 2) is path
    assert checked_resources(str(EXAMPLES / "a100_1024.yaml"), 1024)
    with pytest.raises(corro.InvalidArgumentError) as refused:
        checked_resources(path, 4)
    assert str(refused.value) == (
        "parallelize: resources: cpu_2.yaml has 2 devices, and the job 4 ranks: each rank is "
        "one device"
    )
    given = {"corro_cluster": 1, "name": "mine", "hosts": [{"device": "t4"}]}
    with pytest.raises(corro.InvalidArgumentError, match="mine has 1 device, and the job 2 ranks"):
        checked_resources(given, 2)


def test_resources_that_are_no_cluster_are_refused(tmp_path: Path) -> None:
    with pytest.raises(corro.NotFoundError, match=r"none\.yaml"):
        checked_resources(tmp_path / "none.yaml", 2)
    with pytest.raises(corro.InvalidArgumentError, match="corro_cluster: is missing"):
        checked_resources(EXAMPLES / "gpt_small.yaml", 2)
    with pytest.raises(corro.InvalidArgumentError, match="must be a path or a mapping, not a int"):
        checked_resources(3, 2)


# Ranks that are told so use TCP between them. Rank 0 says the cluster, or why there is none.
ON_HOSTS = """
import json
import os
os.environ["CORRO_HOST_ID"] = {layout!r}[int(os.environ["CORRO_RANK"])]
import torch
import corro
import corro.torch as ct
from corro.torch.parallel.resources import checked_resources, resources_of

corro.init()
try:
    cluster = resources_of(corro.world(), torch.device("cpu"))
    checked_resources(cluster, corro.size())
except corro.InvalidArgumentError as error:
    cluster = str(error)
assert ct.allgather_object(cluster) == [cluster] * corro.size()
if corro.rank() == 0:
    print(json.dumps(cluster))
"""


def seen_on_hosts(launch: Launch, layout: str) -> Any:
    """Returns what ranks on these hosts make of themselves."""
    output = launch("-c", ON_HOSTS.format(layout=layout), ranks=len(layout)).check().output
    (line,) = [line for line in output.splitlines() if line.startswith("[rank 0] ")]
    return json.loads(line.removeprefix("[rank 0] "))


def test_several_hosts_measure_their_network(launch: Launch) -> None:
    hosts = seen_on_hosts(launch, "001")["hosts"]
    assert [host["count"] * host["devices"] for host in hosts] == [2, 1]
    assert all(host["network"]["bandwidth"] > 1e6 for host in hosts)
    assert ["link" in host for host in hosts] == [True, False]


def test_a_job_that_is_not_numbered_host_by_host_is_refused_on_all_ranks(launch: Launch) -> None:
    assert "ranks 0 and 2 are on one host, and rank 1 between" in seen_on_hosts(launch, "010")
