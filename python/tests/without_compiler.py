"""Keeps torch's compiler out of processes that compile nothing.

An optimizer of torch's imports torch._dynamo, which takes nearly as long as torch itself, only to
tell it to leave alone what the optimizer does; DDP and FSDP2 do so, too. A package stands in for it
that has nothing to leave alone. Once it is asked for anything else, the real one takes its place.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

PACKAGE = "torch._dynamo"
CONFIG = f"{PACKAGE}.config"  # The real one, which imports nothing of the others.


class StandIn(ModuleType):
    """A module that has what is asked of it where nothing is compiled."""

    def __init__(self, name: str, **has: Any) -> None:
        super().__init__(name)
        vars(self).update(has)

    def __getattr__(self, name: str) -> Any:
        # Each module is asked for some by whoever looks around; for its path by who imports more.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        uninstall()
        return getattr(import_module(self.__name__), name)


def install() -> None:
    if PACKAGE in sys.modules:
        return
    made = StandIn(
        PACKAGE,
        disable=lambda function, *_, **__: function,
        disable_nested_graph_breaks=nullcontext,
        # What torch.compile() returns, which no module is.
        eval_frame=StandIn(
            f"{PACKAGE}.eval_frame", OptimizedModule=type("OptimizedModule", (), {})
        ),
        graph_break=lambda *_, **__: None,
        trace_rules=StandIn(f"{PACKAGE}.trace_rules", clear_lru_cache=lambda: None),
        utils=StandIn(f"{PACKAGE}.utils", get_optimize_ddp_mode=lambda: "ddp_optimizer"),
    )
    sys.modules[PACKAGE] = torch._dynamo = made
    made.__path__ = [str(Path(torch.__file__).with_name("_dynamo"))]
    import_module(CONFIG)
    del made.__path__


def uninstall() -> None:
    if isinstance(sys.modules[PACKAGE], StandIn):
        del sys.modules[PACKAGE], sys.modules[CONFIG], torch._dynamo
