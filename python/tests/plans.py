"""Plans that more than one test runs."""

from __future__ import annotations

from corro.graph import Channel, Lane, Operation, Plan, Service


def stepping(slot_bytes: int, state_bytes: int) -> Plan:
    """Rank 0 works on four micro-batches; rank 1 steps with what all have given.

    The state of its `step` is in slots of both ranks: `own` of rank 1, `state` of rank 0.
    """
    loops = ("own", "state")
    return Plan(
        ranks=2,
        lanes=(Lane(name="rank0", ranks=(0,)), Lane(name="rank1", ranks=(1,))),
        channels=(
            Channel(name="gradient", slots=4, slot_bytes=slot_bytes),
            *(Channel(name=loop, slots=2, initial=1, slot_bytes=state_bytes) for loop in loops),
        ),
        services=(
            Service(name="work", lane="rank0", inputs=("state",), outputs=("gradient",)),
            Service(name="step", lane="rank1", every=4, inputs=("gradient", "own"), outputs=loops),
        ),
    )


def summing(ranks: int, taking: str = "rank") -> Plan:
    """Each rank r fills 100 numbers on lane `rank`r, all are summed, each rank takes the sums.

    `taking`r is the lane that it takes them on.
    """
    own = [
        Lane(name=f"{name}{r}", ranks=(r,))
        for name in dict.fromkeys(("rank", taking))
        for r in range(ranks)
    ]
    return Plan(
        ranks=ranks,
        lanes=(*own, Lane(name="all", order="agreed", ranks=tuple(range(ranks)))),
        channels=(
            *(Channel(name=f"own{r}", slots=2, slot_bytes=800) for r in range(ranks)),
            Channel(name="sum", slots=2, slot_bytes=800),
        ),
        services=(
            *(
                Service(name=f"fill{r}", lane=f"rank{r}", outputs=(f"own{r}",))
                for r in range(ranks)
            ),
            Service(
                name="reduce",
                lane="all",
                inputs=tuple(f"own{r}" for r in range(ranks)),
                outputs=("sum",),
                operation=Operation(kind="allreduce", dtype="i64", count=100, reduce_op="sum"),
            ),
            *(Service(name=f"take{r}", lane=f"{taking}{r}", inputs=("sum",)) for r in range(ranks)),
        ),
    )
