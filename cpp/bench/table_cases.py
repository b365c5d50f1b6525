"""What is measured of tables, and its bars: the targets of corro.table beside other stores."""

from __future__ import annotations

from dataclasses import dataclass

from table_figures import CORRO, Case

LOCAL_PULLS = (
    Case("pull, uniform", "pull", "uniform", 8.0, {"torch": 0.6, "locked maps": 3.5}),
    Case("pull, Zipf 0.8", "pull", "zipf-0.8"),
    Case("pull, Zipf 1.05", "pull", "zipf-1.05", 15.0),
    Case("pull, Zipf 1.2", "pull", "zipf-1.2"),
    Case("pull, Criteo", "pull", "criteo"),
)
REMOTE = (
    Case("remote pull, uniform", "pull", "uniform", 4.0, {"redis": 6.0, "ps-lite": 1.5}),
    Case("remote push, uniform", "push", "uniform", 3.0, {"ps-lite": 1.0}),
)
SLOWEST = Case("remote pull of 1024 rows", "times", "small", 500.0, {"redis": 1.0})
COLD = Case("rows on disk, uniform", "pull", "", ratios={"disk": 0.75})
RESTORED = Case("restored from a file", "load", "", 5.0)
FROZEN = Case("push while servers come and leave", "push", "", 50.0)
BESIDE = Case("pushes beside a snapshot", "push", "", 0.85)
MEMORY = Case("memory beyond the row", "load", "", 18.0, {"flat_hash_map": 1.0, "redis": 1.0})


@dataclass(frozen=True)
class Setting:
    """Tables of one shape, in peers that are compared. `servers`: of corro's job; 0: it keeps the
    rows in its own process. Rows are the `share`-th part of those of dim 16, so that all settings
    need about as much memory."""

    dim: int
    optimizer: str
    peers: tuple[str, ...]
    cases: tuple[Case, ...]
    servers: int = 0
    share: int = 1


SETTINGS = (
    Setting(16, "sgd", (CORRO, "torch", "flat_hash_map", "locked maps"), LOCAL_PULLS),
    Setting(
        16,
        "adagrad",
        (CORRO, "torch"),
        (Case("pull and Adagrad, dim 16, uniform", "step", "uniform", 4.0, {"torch": 3.0}),),
    ),
    Setting(
        64,
        "adagrad",
        (CORRO, "torch"),
        (Case("pull and Adagrad, dim 64, uniform", "step", "uniform", 2.0, {"torch": 3.0}),),
        share=4,
    ),
    Setting(16, "sgd", (CORRO, "redis", "ps-lite"), REMOTE, servers=1),
    Setting(
        16,
        "sgd",
        (CORRO,),
        (Case("remote push to two replicas, uniform", "push", "uniform", 1.5),),
        servers=2,
    ),
)
