"""Members of a group agree on the plan that they are about to load.

A loaded plan's messages carry keys that follow from the plan itself, so ranks with different plans
would never hear of each other, and wait until their deadlines. So the members compare digests
first. Only if these differ do they exchange the plans, to say what the difference is.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from corro._context import Group, exchange
from corro._objects import gathered
from corro.errors import MismatchError
from corro.graph import Plan

# By name: members need not have done the same before, and who is missing is named.
_NAME = "load_plan"


def agree(plan: Plan, group: Group, name: str, *, goes_on: bool) -> None:
    """Blocks until all members load a plan; raises MismatchError on each if one is another.

    Args:
        plan: the own one.
        group: its members.
        name: of the plan, the same on all members.
        goes_on: whether the plan comes after another one; the same on all members.
    """
    if group.size() == 1:
        return
    text = json.dumps({"name": name, **plan.to_dict()}).encode()
    digest = blake2b(text, digest_size=8).digest()
    mine = [len(text), int.from_bytes(digest, "little", signed=True), int(goes_on)]
    rows = exchange(group, mine, name=_NAME)
    first = rows[0]
    other = next((index for index, row in enumerate(rows) if row != first), None)
    if other is None:
        return
    ranks = group.ranks[0], group.ranks[other]
    if rows[other][:2] == first[:2]:
        with_one, without = ranks if first[2] else reversed(ranks)
        what = f"rank {with_one} gave a plan as `after`, but rank {without} none"
    else:
        texts = gathered(text, [row[0] for row in rows], group, f"{_NAME}.plans")
        plans = [json.loads(one) for one in texts]
        what = describe_difference(ranks, plans[0], plans[other])
    raise MismatchError(f"load_plan: {what}", rank=ranks[1], op="load_plan")


def describe_difference(ranks: tuple[int, int], one: dict[str, Any], other: dict[str, Any]) -> str:
    """Returns the first difference of two plans.

    They are as Plan.to_dict() returns them, with their names.
    """

    def differ(what: str, a: object, b: object) -> str:
        return f"plans differ: {what} is {a} on rank {ranks[0]} but {b} on rank {ranks[1]}"

    if one["name"] != other["name"]:
        return differ("the name", repr(one["name"]), repr(other["name"]))
    if one["ranks"] != other["ranks"]:
        return differ("the number of ranks", one["ranks"], other["ranks"])
    for kind in ("lanes", "channels", "services"):
        names = [[item["name"] for item in plan[kind]] for plan in (one, other)]
        if len(names[0]) != len(names[1]):
            return differ(f"the number of {kind}", len(names[0]), len(names[1]))
        for a, b in zip(one[kind], other[kind], strict=True):
            if a["name"] != b["name"]:
                return differ(f"the name of one of the {kind}", repr(a["name"]), repr(b["name"]))
            for field in [*a, *b]:
                if a.get(field) != b.get(field):
                    what = f'{field} of {kind[:-1]} "{a["name"]}"'
                    return differ(what, _value(a.get(field)), _value(b.get(field)))
    return "plans differ"


def _value(value: object) -> str:
    return "the default" if value is None else json.dumps(value)
