"""What a small operation costs on its way from Python to the engine: counted, not timed."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
import torch.distributed as dist
from costs import Calls, bytecodes
from torch_version import NEW

import corro
import corro.numpy as cn
import corro.torch as ct

pytestmark = pytest.mark.usefixtures("process_group")  # Whose engine the verbs use, too.


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    world = corro.world()
    seen = Calls(world.native)
    monkeypatch.setattr(world, "_native", seen)
    return seen


@pytest.mark.parametrize(
    "verb",
    [
        lambda: cn.allreduce(numpy.ones(3)),
        lambda: cn.allreduce(numpy.ones(3), corro.Sum, out=numpy.zeros(3)),
        lambda: ct.allreduce(torch.ones(3)),
        lambda: ct.allreduce_(torch.ones(3), prescale_factor=2.0),
    ],
)
def test_a_blocking_verb_is_one_native_call(verb: Callable[[], object], calls: Calls) -> None:
    verb()
    assert calls.names == ["run_array"]


def test_starting_a_verb_is_one_native_call(calls: Calls) -> None:
    cn.allreduce_async(numpy.ones(3)).wait()
    ct.allreduce_async_(torch.ones(3), name="a").wait()
    assert calls.names == ["submit_array"] * 2


def test_a_verb_runs_few_bytecodes() -> None:
    x, t = numpy.ones(1), torch.ones(1)
    assert bytecodes(lambda: cn.allreduce(x), corro) <= 64
    assert bytecodes(lambda: ct.allreduce_(t), corro) <= 64
    assert bytecodes(lambda: ct.allreduce_async_(t).wait(), corro) <= 110
    assert bytecodes(lambda: ct.allreduce_async_(t, name="t").wait(), corro) <= 120


@pytest.mark.skipif(not NEW, reason="counted with torch 2.15")
def test_the_back_end_runs_few_bytecodes() -> None:
    t = torch.ones(1)
    assert bytecodes(lambda: dist.all_reduce(t), corro) <= 130
    assert bytecodes(lambda: dist.broadcast(t, 0), corro) <= 120
    assert bytecodes(lambda: dist.all_reduce(t, async_op=True).wait(), corro) <= 290


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(),
    reason="this system has no huge pages on request",
)
def test_a_large_new_result_comes_in_huge_pages() -> None:
    x = torch.ones(1 << 23)
    ct.allreduce(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    ct.allreduce(x)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < x.numel() * 4 / resource.getpagesize() / 4


def test_what_cannot_be_used_as_it_lies_is_described(calls: Calls) -> None:
    ranks = corro.size()
    transposed = numpy.arange(6.0).reshape(2, 3).T
    numpy.testing.assert_array_equal(cn.allreduce(transposed, corro.Sum), transposed * ranks)
    assert calls.names == ["run_array", "run"]
    negated = torch._neg_view(torch.ones(3))
    assert ct.allreduce(negated, corro.Sum).tolist() == [-ranks] * 3
    every_second = torch.ones(6)[::2]
    assert ct.allreduce_(every_second, corro.Sum).tolist() == [ranks] * 3


def test_a_subclass_gives_an_array_of_numpys_own() -> None:
    masked = numpy.ma.masked_array([1.0, 2.0])
    assert type(cn.allreduce(masked, corro.Sum)) is numpy.ndarray


def test_what_is_read_only_is_no_out() -> None:
    target = numpy.zeros(2)
    target.flags.writeable = False
    with pytest.raises(corro.InvalidArgumentError, match="out has to be a writable numpy array"):
        cn.allreduce(numpy.ones(2), out=target)
    cn.allreduce(target)


def test_out_has_the_shape_of_the_argument() -> None:
    with pytest.raises(corro.InvalidArgumentError, match="another shape or dtype"):
        cn.allreduce(numpy.ones(6), out=numpy.zeros((2, 3)))
    with pytest.raises(corro.InvalidArgumentError, match="another shape or dtype"):
        ct.allreduce(torch.ones(2), out=torch.zeros(2, dtype=torch.float64))


def test_the_verbs_present_themselves_by_their_names() -> None:
    for verb, name in (
        (cn.allreduce, "allreduce"),
        (cn.allreduce_async, "allreduce_async"),
        (ct.allreduce_, "allreduce_"),
        (ct.allreduce_async_, "allreduce_async_"),
    ):
        assert verb.__name__ == name
        assert str(verb.__doc__).startswith("Reduces x over all ranks")
        with pytest.raises(TypeError, match=rf"^{name}\(\) missing 1 required positional"):
            verb()


def test_a_sequence_number_counts_what_was_started() -> None:
    group = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(2, 2).t())
    assert group._get_sequence_number_for_group() == before + 2
