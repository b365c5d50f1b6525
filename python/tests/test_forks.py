"""What a forked child of a rank has: an end, and memory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Launch

# Each child has a bound, should it not end by itself.
CHILDREN = """
import os, signal, sys
import numpy, corro, corro.numpy as cn

def in_child(run):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        run()
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 7, code
"""

ENDS = """
corro.init()
corro.watch_waits(5, print)
assert cn.alltoall_async(numpy.arange(4.0), name="a").wait()[0].size == 4
late = cn.allreduce_async(numpy.ones(4), name="b") if corro.rank() == 0 else None

def waits_for_the_parents_work():
    try:
        late.wait()
    except corro.FailedPreconditionError as error:
        assert "forked child" in str(error)
    else:
        sys.exit("no error")

in_child(lambda: None)
in_child(corro.shutdown)
if late is not None:
    in_child(waits_for_the_parents_work)
corro.barrier()
if late is None:
    late = cn.allreduce_async(numpy.ones(4), name="b")
assert late.wait()[0] == 1
print("last line")
"""

TORCH_ENDS = """
import multiprocessing, torch
import torch.distributed as dist
import corro.torch
dist.init_process_group("corro")
others = dist.new_group()
one = torch.ones(1)
work = dist.all_reduce(one, async_op=True)
future = work.get_future().then(lambda future: future.value())
work.wait()
future.wait()
works = [dist.all_reduce(torch.ones(1), async_op=True)] if dist.get_rank() == 0 else []

def asks_for_a_future():
    for work in works:
        try:
            work.get_future().wait()
        except RuntimeError as error:
            assert "forked child" in str(error)
        else:
            sys.exit("no error")

in_child(lambda: None)
in_child(asks_for_a_future)
process = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(7))
process.start()
process.join(60)
assert process.exitcode == 7
dist.barrier(others)  # Until then rank 1 leaves rank 0's work undone.
dist.barrier() if works else None
if not works:
    dist.all_reduce(torch.ones(1))
    dist.barrier()
print("last line")
"""


@pytest.mark.parametrize("program", [ENDS, pytest.param(TORCH_ENDS, marks=pytest.mark.torch22)])
def test_a_forked_child_ends_by_itself(launch: Launch, tmp_path: Path, program: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHILDREN + program)
    job = launch(str(script)).check()
    assert job.output.count("last line") == 2


# A child stores to gradients, to memory of corro.empty, and to what outlived its engine.
OWN_MEMORY = """
import torch
import corro.torch as ct

def check(tensors):
    before = [tensor.clone() for tensor in tensors]
    def overwrite():
        for tensor in tensors:
            tensor.data.fill_(777)
            assert (tensor == 777).all()
        in_grandchild = os.fork()
        if in_grandchild == 0:
            assert all((tensor == 777).all() for tensor in tensors)
            for tensor in tensors:
                tensor.data.fill_(888)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(in_grandchild, 0)[1]) == 0
        assert all((tensor == 777).all() for tensor in tensors)
    in_child(overwrite)
    assert all(torch.equal(*pair) for pair in zip(before, tensors))

ct.init()
model = torch.nn.Linear(3000, 4, bias=False)
optimizer = ct.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
mine, other = ct.empty(5), ct.empty(100_000)
mine.fill_(5)
for step in range(2):
    optimizer.zero_grad()
    model(torch.ones(1, 3000)).sum().backward()
    check([model.weight.grad, mine, other])
    optimizer.step()
    assert (model.weight.grad == 1).all()
assert (ct.allreduce_(mine, op=ct.Sum) == 10).all(), "the parent's memory is still shared"
ct.shutdown()
check([mine])
print("last line")
"""


@pytest.mark.torch22
def test_what_a_forked_child_stores_is_its_own(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHILDREN + OWN_MEMORY)
    job = launch(str(script)).check()
    assert job.output.count("last line") == 2
