"""The planner's door: text in, text out; use corro.plan()."""

from collections.abc import Callable, Sequence
from typing import Any

def version() -> str: ...
def plan(
    model: str,
    model_name: str,
    cluster: str,
    cluster_name: str,
    options: str,
    policies: Sequence[tuple[str, str, Callable[[dict[str, Any]], object]]],
) -> tuple[str, str, str, list[str]]: ...
