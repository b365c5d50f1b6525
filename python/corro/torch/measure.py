"""Runs a model by every plan of data and pipeline parallelism: `corro plan --measure`.

    corro plan --measure --model train.py:build --cluster cluster.yaml

`build(samples)` returns (model, inputs, loss) for so many samples: an nn.Sequential, whose items
are what stages are cut from, a tensor, and what makes a scalar of the model's output. Each layer is
measured first; from these times and the cluster's links the planner predicts every plan; then each
runs, with AdamW in f32. There is a rank for each device of the cluster, all of them processors;
where a host has fewer cores than ranks, computing is replaced by waiting as long as it would take.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import corro
from corro.errors import CorroError, InvalidArgumentError
from corro.torch.measuring import report
from corro.torch.measuring.candidates import (
    Question,
    candidates,
    micro_batches,
    predict,
)
from corro.torch.measuring.chain import Build, Built, chain_of
from corro.torch.measuring.profile import profile_of
from corro.torch.measuring.running import MakeStage, run
from corro.torch.measuring.stages import ComputedStage, WaitedStage

SAMPLES_OF_A_RANK = 8
ROUNDS, STEPS = 3, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command on one rank; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m corro.torch.measure")
    parser.add_argument("model", metavar="FILE.py:FUNCTION")
    parser.add_argument("--cluster", required=True, metavar="FILE")
    parser.add_argument("--device", required=True, help="its one type of device")
    parser.add_argument("--global-batch", type=int, help="default: 8 samples for each rank")
    parser.add_argument("--memory-limit", type=float, help="bytes of a rank")
    parser.add_argument("--json", metavar="FILE", help="write everything here")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    corro.init()
    try:
        if options.json:
            _check_writable(Path(options.json))
        build = _load(options.model)
        question = Question(
            options.cluster,
            corro.size(),
            options.global_batch or SAMPLES_OF_A_RANK * corro.size(),
            options.memory_limit,
        )
        measure(build, question, options.device, options.json)
    except (CorroError, OSError) as error:
        if corro.rank() == 0:
            print(f"corro plan: {error}", file=sys.stderr)
        return 2
    return 0


def measure(build: Build, question: Question, device: str, output: str | None) -> None:
    """Measures and shows; on all ranks of the job."""
    torch.manual_seed(1)
    chain = chain_of(build)
    found = candidates(question, len(chain.layers))
    _tell("measuring each layer")
    profile = profile_of(build, chain, device, micro_batches(question))
    predict(found, question, chain.description, profile)
    waits = corro.local_size() > (os.cpu_count() or 1)
    make: MakeStage = (
        (lambda each, begin, end: WaitedStage(each, begin, end, chain, profile))
        if waits
        else (lambda each, begin, end: ComputedStage(each, begin, end, chain, build))
    )
    if waits:
        _tell(f"{corro.local_size()} ranks on fewer cores: they wait instead of computing")
    # Each run collects garbage. What is here now, torch above all, is none: gone through once.
    gc.collect()
    gc.freeze()
    ready = [each for each in found if each.planned]
    for round_ in range(ROUNDS):
        for number, each in enumerate(ready):
            _tell(f"round {round_ + 1} of {ROUNDS}: plan {number + 1} of {len(ready)}: {each.name}")
            run(each, chain, make, STEPS)
    if waits:
        for each in ready:
            each.memory = []
    if corro.rank() == 0:
        print(report.table(found), flush=True)
        if output:
            text = json.dumps(report.document(found, question, profile), indent=2)
            Path(output).write_text(text + "\n", encoding="utf-8")


def _tell(what: str) -> None:
    if corro.rank() == 0:
        print(f"corro plan: {what}", file=sys.stderr, flush=True)


def _check_writable(path: Path) -> None:
    """Refuses, before minutes of measuring, a file that rank 0 could not write after them."""
    if corro.rank() != 0:
        return
    where = path if path.exists() else path.parent
    if path.is_dir() or not where.exists() or not os.access(where, os.W_OK):
        raise InvalidArgumentError(f"--json: {path}: cannot be written: is its folder there?")


def _load(spec: str) -> Build:
    """Returns a function from a file or a module."""
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name:
        raise InvalidArgumentError(f"--model: {spec}: must be FILE.py:FUNCTION")
    try:
        if where.endswith(".py"):
            found = importlib.util.spec_from_file_location("corro_measured_model", where)
            if found is None or found.loader is None:
                raise FileNotFoundError(where)
            module = importlib.util.module_from_spec(found)
            found.loader.exec_module(module)
        else:
            sys.path.insert(0, os.getcwd())
            module = importlib.import_module(where)
    except Exception as error:
        raise InvalidArgumentError(
            f"--model: {where}: {type(error).__name__}: {error}".partition("\n")[0]
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidArgumentError(f"--model: {where} has no function {name}")

    def build(samples: int) -> Built:
        try:
            built = function(samples)
        except Exception as error:
            line = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise InvalidArgumentError(f"--model: {spec}: {line}") from error
        if not isinstance(built, tuple) or len(built) != 3:
            raise InvalidArgumentError(f"--model: {spec}: must return (model, inputs, loss)")
        return built

    return build


if __name__ == "__main__":
    sys.exit(main())
