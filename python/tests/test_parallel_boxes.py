"""Boxes of a parameter that a rank has: pure."""

from __future__ import annotations

import random
from math import prod

import pytest
import torch
from torch import nn

from corro.torch.parallel.boxes import Run, covered
from corro.torch.parallel.shards import Form, part_of
from corro.torch.parallel.tensor.division import Axis, Division


@pytest.mark.parametrize("seed", range(40))
def test_all_ranks_boxes_together_are_the_parameter(seed: int) -> None:
    """Whatever is divided over an axis, in blocks, unequally, and cut over data-parallel ranks."""
    draw = random.Random(seed)
    tensor, data = draw.choice([1, 2, 3]), draw.choice([1, 2, 5])
    shape = [draw.randint(1, 4) for _ in range(draw.randint(1, 3))]
    dim, blocks = draw.randrange(len(shape)), draw.choice([1, 3])
    shape[dim] = blocks * tensor * draw.randint(1, 3)
    if blocks == 1:
        shape[dim] += draw.randrange(tensor)
    whole = torch.arange(prod(shape)).view(shape)
    found, times = torch.zeros_like(whole), torch.zeros_like(whole)
    for rank in range(tensor):
        division = Division(Axis(rank, tensor, None), dim, shape[dim], blocks)
        flat = division.own_part(whole).view(-1)
        for cut in (part_of(flat.numel(), data, each) for each in range(data)):
            run = Run(tuple(shape), cut, division if tensor > 1 else None)
            for offsets, box in run.boxes(flat[cut.start : cut.stop]):
                place = tuple(
                    slice(begin, begin + length)
                    for begin, length in zip(offsets, box.shape, strict=True)
                )
                found[place] = box
                times[place] += 1
    assert torch.equal(found, whole)
    assert bool((times == 1).all())


@pytest.mark.parametrize("seed", range(20))
def test_what_boxes_cover_is_counted_once(seed: int) -> None:
    draw = random.Random(seed)
    shape = [draw.randint(1, 6) for _ in range(draw.randint(1, 4))]
    seen, boxes = torch.zeros(shape), []
    for _ in range(draw.randint(0, 6)):
        begin = [draw.randrange(length) for length in shape]
        lengths = [draw.randint(1, n - at) for n, at in zip(shape, begin, strict=True)]
        boxes.append((tuple(begin), tuple(lengths)))
        seen[tuple(slice(at, at + n) for at, n in zip(begin, lengths, strict=True))] = 1
    assert covered(frozenset(boxes)) == int(seen.sum())


def test_a_box_is_a_view() -> None:
    flat = torch.zeros(12)
    for _, box in Run((4, 3), range(12)).boxes(flat):
        box.fill_(1)
    assert flat.tolist() == [1] * 12


@pytest.mark.parametrize(
    ("tensor", "dims"),
    [
        (torch.zeros(3, 4), (3, 4)),
        (torch.zeros(4, 3).t(), (12,)),
        (torch.zeros(()), (1,)),
        (torch.zeros(1, 5), (1, 5)),
        (torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last), (96,)),
    ],
)
def test_a_parameter_that_is_not_row_major_has_flat_boxes(
    tensor: torch.Tensor, dims: tuple[int, ...]
) -> None:
    assert Form.of(nn.Parameter(tensor)).dims == dims
