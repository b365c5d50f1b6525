"""Arguments that no C type holds: the error names the argument, its range and the value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import corro
import corro.numpy as cn
import corro.torch as ct

pytestmark = pytest.mark.usefixtures("job")


def refused(call: Callable[[], object], what: str, value: object) -> None:
    with pytest.raises(corro.InvalidArgumentError) as raised:
        call()
    assert re.match(f"{what}.*{re.escape(repr(value))}", str(raised.value)), raised.value
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("tag", [-1, 2**32, 1.5, "1", None, True])
def test_tags(tag: Any) -> None:
    for call in (
        lambda: cn.send(numpy.ones(1), 0, tag),
        lambda: cn.recv_async(numpy.ones(1), 0, tag),
        lambda: ct.send_async(torch.ones(1), 0, tag),
        lambda: ct.recv(torch.ones(1), 0, tag),
    ):
        refused(call, "tag has to be a whole number from 0 to 4294967295, not ", tag)


@pytest.mark.parametrize("factor", ["2", None, [1.0]])
@pytest.mark.parametrize("which", ["prescale_factor", "postscale_factor"])
@pytest.mark.parametrize("verb", [cn.allreduce, cn.allreduce_async, cn.reducescatter])
def test_factors(verb: Callable[..., object], which: str, factor: Any) -> None:
    what = f"{which} has to be a number, not "
    refused(lambda: verb(numpy.ones(2), **{which: factor}), what, factor)
    refused(lambda: verb(numpy.ones(2), name="f", **{which: factor}), what, factor)


@pytest.mark.parametrize("timeout", ["1", -1, [2], float("nan")])
def test_times(timeout: Any) -> None:
    handle = cn.allreduce_async(numpy.ones(1))
    for call in (
        lambda: corro.barrier(timeout=timeout),
        lambda: corro.join(timeout=timeout),
        lambda: handle.wait(timeout),
        lambda: corro.load_plan(corro.Plan(ranks=1), corro.world(), timeout=timeout),
    ):
        refused(call, "timeout has to be a number", timeout)
    handle.wait()


@pytest.mark.parametrize("shape", [-1, (2, -3), 2.5, "4", None, (1, None)])
def test_shapes(shape: Any) -> None:
    for empty in (cn.empty, ct.empty):
        with pytest.raises(corro.InvalidArgumentError, match="a dim of shape has to be a whole"):
            empty(shape)


def test_others() -> None:
    x = numpy.ones(corro.size())
    refused(lambda: corro.set_step(-1), "step has to be a whole number from 0 to 184467", -1)
    refused(lambda: corro.watch_waits(0, print), "seconds has to be above 0, not ", 0)
    refused(lambda: corro.watch_waits("5", print), "seconds has to be a number", "5")
    refused(lambda: corro.new_group([0], name=3), "name has to be a string, not ", 3)
    refused(lambda: corro.barrier(name=3), "name has to be a string, not ", 3)
    refused(lambda: corro.new_group([2**40]), "new_group: there is no rank ", 2**40)
    refused(lambda: cn.broadcast(x, [0]), "rank ", [0])
    refused(lambda: cn.allreduce(x, compression=3), "compression has to be a codec", 3)
    splits = [1.5] * corro.size()
    refused(lambda: cn.alltoall(x, splits), "alltoall: splits have to be whole numbers", splits)
    refused(lambda: corro.load_plan("plan.json"), "plan has to be a corro.Plan", "plan.json")
    assert cn.allreduce(x, corro.Sum, prescale_factor=numpy.float32(2))[0] == 2 * corro.size()
    assert cn.alltoall(x, list(numpy.ones(corro.size(), int)))[0].size == corro.size()
