"""Ranks of test_aggregators.py: allreduces whose bits are printed, with and without servers."""

from __future__ import annotations

import hashlib
import os
import signal
import sys

import numpy as np

import corro
import corro.numpy as verbs
from corro import _context

MIB = 1 << 20
STEPS = 12


def gradients(step: int, count: int) -> np.ndarray:
    random = np.random.default_rng(100 * step + corro.rank())
    return random.standard_normal(count, dtype=np.float32)


def servers() -> list[int]:
    """Returns the pids of the job's servers: processes that the agent has started, as this one."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{name}/environ", "rb") as file:
                job = f"CORRO_JOB_ID={os.environ['CORRO_JOB_ID']}".encode() in file.read()
        except OSError:
            continue
        if job and any(word.endswith(b"corro-server") for word in words[:1]):
            pids.append(int(name))
    return pids


def show(what: str, digest: hashlib._Hash) -> None:
    engine = _context.current().engine
    served, in_vain = engine.counter("served"), engine.counter("served_in_vain")
    print(f"{what}: {digest.hexdigest()} served={served} in_vain={in_vain}", flush=True)


def exact() -> None:
    """Sizes around the one from which servers take part; averages; in place and not."""
    digest = hashlib.sha256()
    for step, count in enumerate((1, 1000, MIB // 4, MIB, MIB + 7)):
        mine = gradients(step, count)
        for op in (corro.Sum, corro.Average, corro.Max):
            digest.update(verbs.allreduce(mine, op=op).tobytes())
        verbs.allreduce(mine, corro.Sum, out=mine)
        digest.update(mine.tobytes())
    if corro.rank() == 0:
        print(corro.world().selection_table(), flush=True)
    show("exact", digest)


def killed() -> None:
    """A server ends in the middle of the steps."""
    digest = hashlib.sha256()
    for step in range(STEPS):
        works = [verbs.allreduce_async(gradients(step + i, MIB), corro.Sum) for i in range(3)]
        if step == STEPS // 2 and corro.rank() == 0:
            for pid in servers()[:1]:
                os.kill(pid, signal.SIGKILL)
        for work in works:
            digest.update(work.wait().tobytes())
    show("killed", digest)


def stopped() -> None:
    """A server stops, as one does whose machine hangs."""
    pids = servers()
    digest = hashlib.sha256()
    verbs.barrier()
    for step in range(3):
        if step == 1 and corro.rank() == 0:
            for pid in pids[:1]:
                os.kill(pid, signal.SIGSTOP)
        digest.update(verbs.allreduce(gradients(step, MIB), corro.Sum).tobytes())
    for pid in pids[:1]:
        os.kill(pid, signal.SIGCONT)
    show("stopped", digest)


def torch() -> None:
    """DistributedOptimizer: its buckets are allreduces as well."""
    import torch

    import corro.torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.Linear(1024, 512))
    optimizer = corro.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    random = torch.Generator().manual_seed(corro.rank())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 512, generator=random)).square().mean().backward()
        optimizer.step()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    show("torch", digest)


if __name__ == "__main__":
    corro.init()
    globals()[sys.argv[1]]()
