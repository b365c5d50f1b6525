"""A rank with a sharded model: checkpoint_sharded_worker.py FOLDER FROM UNTIL LAYOUT.

Goes on from the newest checkpoint, which has to be of step FROM, and trains until step UNTIL with a
checkpoint every fourth step and at the end. All ranks train with the same batch. Prints the step
and a digest of the whole tensors, of the model and of the optimizer, that it has loaded, and those
that it has in the end.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import without_compiler
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_module, distribute_tensor
from torch_version import NEW

import corro.torch as corro
from corro.checkpoint import Checkpointer

without_compiler.install()

BACKEND = "corro" if NEW else "gloo"  # Older torch shards over its own.


def network() -> nn.Sequential:
    """Four ranks share 8 rows, 6 rows and 2 columns unequally, and 2 rows not at all."""
    torch.manual_seed(1 + corro.rank())
    layers = [nn.Linear(6, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 6), nn.Linear(6, 2)]
    model = nn.Sequential(*layers)
    for param in model.parameters():  # The same on all ranks, as fully_shard() needs.
        corro.broadcast_(param.detach(), 0)
    return model


def sharded(layout: str) -> nn.Module:
    """Returns the network as a world has it."""
    model, size = network(), corro.size()
    if layout == "whole":
        return model
    if layout == "rows":
        return shard(model, init_device_mesh("cpu", (size,)))
    if layout == "columns":
        longest = {"shard_placement_fn": lambda p: Shard(int(p.ndim > 1 and p.size(1) % size == 0))}
        return shard(model, init_device_mesh("cpu", (size,)), **longest)
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("one", "two"))
    if layout == "replicas":  # Two groups, each of which has the model once.
        return shard(model, mesh)

    def cut(_: str, layer: nn.Module, within: Any) -> None:
        for name, param in list(layer.named_parameters(recurse=False)):
            placed = nn.Parameter(distribute_tensor(param.detach(), within, [Shard(0)]))
            layer.register_parameter(name, placed)

    # The first layer is cut twice: by tensor parallelism, and then by fully_shard().
    model[0] = distribute_module(
        model[0],
        mesh["two"],
        cut,
        lambda _, inputs, within: DTensor.from_local(inputs[0], within, run_check=False),
        lambda _, output, __: output.full_tensor(),
    )
    return shard(model, mesh["one"])


def shard(model: nn.Sequential, mesh: Any, **options: Any) -> nn.Module:
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def digest(state: Any) -> str:
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, DTensor):
            value = value.full_tensor()
        if isinstance(value, torch.Tensor):
            found.update(value.detach().contiguous().numpy().tobytes())
        else:
            found.update(repr(value).encode())

    for value in state.model.state_dict().values():
        add(value)
    for values in state.optimizer.state_dict()["state"].values():
        for value in values.values():
            add(value)
    return found.hexdigest()[:16]


def tell(text: str) -> None:
    os.write(1, f"rank {corro.rank()} of {corro.size()}: {text}\n".encode())


def main() -> None:
    folder, expected, until = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    corro.init()
    dist.init_process_group(BACKEND)
    model = sharded(sys.argv[4])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = corro.elastic.TorchState(model, optimizer, step=0)
    checkpointer = Checkpointer(folder, every=2)
    loaded = checkpointer.load(state)
    assert expected == (loaded or 0), f"{loaded}, not {expected}"
    assert state.step == expected
    tell(f"loaded {loaded} {digest(state)}")
    while state.step < until:
        torch.manual_seed(state.step)
        optimizer.zero_grad()
        model(torch.randn(16, 6)).square().mean().backward()
        optimizer.step()
        state.step += 1
        if state.step % 4 == 0 or state.step == until:
            assert checkpointer.save(state)
            checkpointer.wait()
            assert checkpointer.failed == 0
    tell(f"ended {state.step} {digest(state)}")
    dist.destroy_process_group()


main()
