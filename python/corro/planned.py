"""What the planner answers, as data: `Planned` and its parts. Times are seconds, sizes bytes."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corro.graph import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How the job is cut: degrees of parallelism, micro-batches, sharding."""

    tensor: int = 1
    context: int = 1
    expert: int = 1
    data: int = 1
    pipeline: int = 1
    micro_batch: int = 1
    """Samples of one micro-batch on one data-parallel rank."""
    micro_batches: int = 1
    """Of one step, on each of them."""
    chunks: int = 1
    """Pieces of the model that one stage has, interleaved."""
    schedule: str = "1f1b"
    zero: int = 0
    sequence_parallel: bool = False
    overlap: bool = True
    offload: str = "off"
    """What lies in host memory: "off", "optimizer", "gradients" too, "weights" too."""
    bucket_bytes: float = 0
    """Of gradients, reduced at a time, if that is pinned; else each stage has its own."""
    dtype: str = "bf16"
    gradient_dtype: str = "f32"
    """In which gradients are summed up, reduced and kept."""

    @property
    def ranks(self) -> int:
        return self.tensor * self.context * self.data * self.pipeline


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes on one device, the most that are held at a time."""

    weights: float = 0
    gradients: float = 0
    optimizer: float = 0
    activations: float = 0
    transient: float = 0

    @property
    def total(self) -> float:
        return float(sum(dataclasses.astuple(self)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """Devices from `first_device` on run the layers from `first_layer` to before `end_layer`."""

    first_layer: int
    end_layer: int
    first_device: int
    devices: int
    device: str = ""
    memory: Memory = field(default_factory=Memory)
    """Of each of its devices."""
    memory_limit: float = 0
    """What one of them may hold."""
    bucket: float = 0
    """Bytes of gradients that are reduced at a time; 0: none are."""
    host: float = 0
    """Bytes in host memory of each of its devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """Seconds of a step, by what takes them."""

    compute: float = 0
    recompute: float = 0
    exchanges: float = 0
    weights: float = 0
    offload: float = 0
    hops: float = 0
    bubble: float = 0
    sync: float = 0
    update: float = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """One way to train the model, and the seconds that a step of it takes."""

    shape: Shape
    stages: tuple[Stage, ...]
    step: float
    terms: Terms
    price: float = 0
    """Of a step; 0: prices are not known."""
    placement: tuple[int, ...] = ()
    """A device for each rank, where links differ; empty: rank i is on device i of its stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The best plan, what it gains over the next, and how far it can be from the optimum."""

    decisions: Decisions
    runner_up: Decisions | None = None
    bound: float
    """Seconds that no plan of the search space beats."""
    gap: float
    """1 - bound / step."""
    limiting: str
    why: str
    global_batch: int
    memory_limit: float
    memory_proof: int
    """The graph's slots on the fullest device, summed."""
    hours: float = 0
    """To the end of all samples; 0: samples are not known."""
    cost: float = 0
    """The same in the cluster's currency; 0: prices are not known."""
    mfu: float = 0
    """Fraction of the devices' peak that computes the model."""
    storage: float = 0
    """Bytes a second that storage has to deliver."""
    graph: Plan
    """One micro-batch a generation: what corro.load_plan() runs."""
    text: str = field(repr=False)
    """What `corro plan` prints."""
    explanation: str = field(repr=False)
    """What `corro plan --explain` adds: each term of the step's time, the memory of each stage."""
    document: Mapping[str, Any] = field(repr=False, compare=False)
    """The plan's file, as `corro plan --json` writes it."""

    @property
    def step(self) -> float:
        """Seconds."""
        return self.decisions.step

    @property
    def memory(self) -> tuple[Memory, ...]:
        """Of a device of each stage."""
        return tuple(stage.memory for stage in self.decisions.stages)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan's file.

        Raises:
            OSError: it cannot be written.
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(self.document, ensure_ascii=False, indent=2) + "\n")

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: the decisions, memory as bars, the reason."""
        shape = self.decisions.shape
        chosen = [
            f"{each.name} {value}"
            for each in dataclasses.fields(shape)
            if (value := getattr(shape, each.name)) != each.default or each.name == "micro_batch"
        ]
        rows = [
            ("Plan", ", ".join(chosen)),
            ("Step", f"{self.step:.4g} s; {self._proof}"),
            ("Limited by", self.limiting),
            ("Why", self.why),
        ]
        if self.hours:
            rows.append(("To the end", f"{self.hours:.4g} h"))
        cells = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td>{html.escape(value)}</td></tr>"
            for name, value in rows
        )
        bars = "".join(map(self._bar, range(len(self.decisions.stages))))
        return f"<table>{cells}</table><table>{bars}</table>"

    @property
    def _proof(self) -> str:
        if self.document["decisions"].get("objective", "time") == "time":
            return f"at best {self.bound:.4g} s (gap {self.gap:.1%})"
        return f"its price is within {self.gap:.1%} of the least"

    def _bar(self, number: int) -> str:
        stage = self.decisions.stages[number]
        used, limit = stage.memory.total, stage.memory_limit
        layers = f"layers {stage.first_layer} to {stage.end_layer - 1}"
        width = 100 * used / limit if limit else 0
        bar = (
            "<div style='width:20em;background:#ddd'>"
            f"<div style='width:{width:.0f}%;background:#47a'>&nbsp;</div></div>"
        )
        return (
            f"<tr><th style='text-align:left'>Stage {number}</th><td>{layers}</td><td>{bar}</td>"
            f"<td>{used / 2**30:.1f} of {limit / 2**30:.1f} GiB</td></tr>"
        )


def planned_of(document: Mapping[str, Any], text: str, explanation: str) -> Planned:
    """Returns a plan's file, as the planner has written it, as data."""
    certificates, predictions = document["certificates"], document["predictions"]
    runner_up = document.get("runner_up")
    return Planned(
        decisions=_decisions_of(document["decisions"], predictions, document),
        runner_up=_decisions_of(runner_up, runner_up["predictions"], document)
        if runner_up
        else None,
        bound=certificates["bound_seconds"],
        gap=certificates["gap"],
        limiting=certificates["binding"],
        why=document.get("why", ""),
        global_batch=document["decisions"]["global_batch"],
        memory_limit=certificates["memory_limit_bytes"],
        memory_proof=certificates["memory_proof_bytes"],
        hours=predictions.get("hours", 0),
        cost=predictions.get("cost", 0),
        mfu=predictions.get("mfu", 0),
        storage=predictions.get("storage_bytes_per_second", 0),
        graph=Plan.from_dict(document["graph"], "plan: graph"),
        text=text,
        explanation=explanation,
        document=document,
    )


def _decisions_of(
    values: Mapping[str, Any], predictions: Mapping[str, Any], document: Mapping[str, Any]
) -> Decisions:
    return Decisions(
        shape=Shape(**values["shape"]),
        stages=tuple(_stage_of(stage, document) for stage in values["stages"]),
        step=predictions["step_seconds"],
        terms=Terms(**predictions["terms_seconds"]),
        price=predictions.get("price", 0),
        placement=tuple(values.get("placement", ())),
    )


def _stage_of(stage: Mapping[str, Any], document: Mapping[str, Any]) -> Stage:
    first, end = stage["layers"]
    kind = document["cluster"]["types"][stage.get("type", 0)]
    limit = min(document["certificates"]["memory_limit_bytes"], kind["memory_bytes"])
    return Stage(
        first_layer=first,
        end_layer=end,
        first_device=stage["first_device"],
        devices=stage["devices"],
        device=kind["name"],
        memory=Memory(**stage["memory_bytes"]),
        memory_limit=stage.get("memory_limit_bytes", limit),
        bucket=stage.get("bucket_bytes", 0),
        host=stage.get("host_bytes", 0),
    )
