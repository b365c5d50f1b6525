"""A process of a group whose members change: reconfigure_worker.py PORT NAME DIES MEMBERS...

torch's store is at PORT. MEMBERS are the names of one round each, in the order of their ranks:
`a,b,c`. In each of its rounds the process averages gradients below DDP; with DIES it kills itself
in the middle of its first round. The others see that, and go to their next one.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import without_compiler
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import corro.torch  # noqa: F401  # The back end.
from corro import RankLostError

without_compiler.install()

port, name, dies, *rounds = sys.argv[1:]
store = dist.TCPStore("127.0.0.1", int(port), None, False)
dist.init_process_group("corro", store=store, rank=0, world_size=1, enable_reconfigure=True)
assert dist._supports_reconfigure()
store.set(f"handle/{name}", dist._get_reconfigure_handle())


def step(ddp: nn.Module, value: float) -> None:
    ddp.zero_grad()
    ddp(torch.tensor([value])).sum().backward()


for number, members in enumerate(rounds):
    names = members.split(",")
    if name not in names:
        continue
    handles = [store.get(f"handle/{one}").decode() for one in names]
    work = dist._reconfigure(number, handles, timeout=timedelta(seconds=30))
    assert work.wait()
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (names.index(name), len(names))
    torch.manual_seed(number + rank)
    ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False))  # Rank 0's weights are everybody's.
    weight = ddp.module.weight
    for value in range(5):
        step(ddp, float(value + rank))
        assert weight.grad.item() == value + (size - 1) / 2
    gathered = [torch.zeros(1) for _ in names]
    dist.all_gather(gathered, weight.detach().flatten())
    assert len({one.item() for one in gathered}) == 1
    print(f"{name}: round {number}, rank {rank} of {size}", flush=True)
    if dies == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    following = rounds[number + 1].split(",") if number + 1 < len(rounds) else names
    if set(names) <= set(following):
        continue
    try:
        while True:  # Until the loss is seen.
            dist.all_reduce(torch.ones(1))
    except RankLostError as error:
        print(f"{name}: {error}", flush=True)
dist.destroy_process_group()
