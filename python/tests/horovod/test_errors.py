"""What goes wrong, as Horovod's scripts expect it: the type, and how the text begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

Calls = dict[str, tuple[Callable[[bool], Any], str]]

# By what differs: the call, on the first rank (True) and on the others; how the error begins, with
# what one rank has (A or B) and another one has.
DIFFERENCES: Calls = {
    "dtype": (
        lambda first: hvd.allreduce(torch.ones(2).to(torch.int32 if first else torch.float64)),
        "Mismatched data types: One rank had type {}, but another rank had type {}. | int32 | "
        "float64",
    ),
    "shape": (
        lambda first: hvd.allreduce(torch.ones(2, 3 if first else 4)),
        "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape {}, but another rank "
        "sent a tensor of shape {}. | [2, 3] | [2, 4]",
    ),
    "number of dims": (
        lambda first: hvd.allreduce(torch.ones((4,) if first else (2, 2))),
        "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape {}, but another rank "
        "sent a tensor of shape {}. | [4] | [2, 2]",
    ),
    "reduction": (
        lambda first: hvd.allreduce(torch.ones(2), op=hvd.Sum if first else hvd.Max),
        "Mismatched reduction operation: One rank sent reduction op {}, but another rank sent "
        "reduction op {}. | sum | max",
    ),
    "prescale": (
        lambda first: hvd.allreduce(torch.ones(2), op=hvd.Sum, prescale_factor=1.5 + first),
        "Mismatched prescale and/or postscale factors: One rank sent factors ({}, 1), but another "
        "rank sent factors ({}, 1). | 2.5 | 1.5",
    ),
    "postscale": (
        lambda first: hvd.allreduce(torch.ones(2), op=hvd.Sum, postscale_factor=1.5 + first),
        "Mismatched prescale and/or postscale factors: One rank sent factors (1, {}), but another "
        "rank sent factors (1, {}). | 2.5 | 1.5",
    ),
    "shape in a group": (
        lambda first: hvd.grouped_allreduce([torch.ones(1), torch.ones(2 if first else 3)]),
        "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape {}, but another rank "
        "sent a tensor of shape {}. | [2] | [3]",
    ),
    "root": (
        lambda first: hvd.broadcast(torch.ones(2), 0 if first else 1),
        "Mismatched BROADCAST root ranks: One rank specified root rank {}, but another rank "
        "specified root rank {}. | 0 | 1",
    ),
    "broadcast shape": (
        lambda first: hvd.broadcast(torch.ones(2 if first else 3), 0),
        "Mismatched BROADCAST tensor shapes: One rank sent a tensor of shape {}, but another rank "
        "sent a tensor of shape {}. | [2] | [3]",
    ),
    "reducescatter shape": (
        lambda first: hvd.reducescatter(torch.ones(4 if first else 6)),
        "Mismatched REDUCESCATTER tensor shapes: One rank sent a tensor of shape {}, but another "
        "rank sent a tensor of shape {}. | [4] | [6]",
    ),
    "allgather dtype": (
        lambda first: hvd.allgather(torch.ones(2).to(torch.uint8 if first else torch.float16)),
        "Mismatched data types: One rank had type {}, but another rank had type {}. | uint8 | "
        "float16",
    ),
    "allgather dims": (
        lambda first: hvd.allgather(torch.ones(2, *((3, 4) if first else (4, 3)))),
        "Mismatched ALLGATHER tensor shapes: One rank sent a tensor with dimension 1 equal to {}, "
        "but another rank sent a tensor with dimension 1 equal to {}. | 3 | 4",
    ),
    "allgather number of dims": (
        lambda first: hvd.allgather(torch.ones((2, 3) if first else (2, 3, 1))),
        "Mismatched ALLGATHER tensor shapes: One rank sent a tensor of rank {}, but another rank "
        "sent a tensor of rank {}. | 2 | 3",
    ),
    "alltoall dims": (
        lambda first: hvd.alltoall(torch.ones(hvd.size(), 3 if first else 4)),
        "Mismatched ALLTOALL tensor shapes: One rank sent a tensor with dimension 1 equal to {}, "
        "but another rank sent a tensor with dimension 1 equal to {}. | 3 | 4",
    ),
}


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("what", list(DIFFERENCES))
def test_what_differs_begins_the_error_of_every_rank_and_the_job_goes_on(what: str) -> None:
    call, expected = DIFFERENCES[what]
    text, *sides = expected.split(" | ")
    with pytest.raises(hvd.HorovodInternalError) as error:
        call(hvd.rank() == 0)
    begins = [text.format(*order) for order in (sides, sides[::-1])]
    assert str(error.value).startswith(tuple(begins)), str(error.value)
    assert "rank 0" in str(error.value), "who called what follows"
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()


@pytest.mark.usefixtures("two")
def test_what_differs_after_many_equal_steps_is_said_alike() -> None:
    """By then operations run without being agreed on each time."""

    def step(count: int) -> list[str]:
        handles = [hvd.allreduce_async(torch.ones(4), name=f"a.{i}", op=hvd.Sum) for i in range(9)]
        handles.append(hvd.allreduce_async(torch.ones(count), name="b", op=hvd.Sum))
        return [outcome(handle) for handle in handles]

    def outcome(handle: int) -> str:
        try:
            assert (hvd.synchronize(handle) == hvd.size()).all()
        except hvd.HorovodInternalError as error:
            return str(error)
        return ""

    for _ in range(30):
        assert step(4) == [""] * 10
    *others, differs = step(4 + (hvd.rank() == 0))
    for text in (differs, *filter(None, others)):  # What has been fused with it fails with it.
        assert text.startswith("Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of sh")
    hvd.barrier()
    assert step(4) == [""] * 10


@pytest.mark.usefixtures("two")
def test_what_stops_at_a_joined_rank_begins_with_the_operation() -> None:
    if hvd.rank() == 0:
        hvd.join()
        return
    x = torch.ones(4)
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("Allgather", lambda: hvd.allgather(x, name="x")),
        ("Broadcast", lambda: hvd.broadcast(x, 1, name="x")),
        ("Reducescatter", lambda: hvd.reducescatter(x, name="x")),
        ("Alltoall", lambda: hvd.alltoall(x, [4, *[0] * (hvd.size() - 1)], name="x")),
    ]
    for name, call in calls:
        begin = f"^{name} is not supported with Join at this time"
        with pytest.raises(hvd.HorovodInternalError, match=begin):
            call()
    hvd.join()


# -- what is wrong on this rank alone -------------------------------------------------------------


def test_a_tensor_without_dims_has_no_rows() -> None:
    scalar = torch.tensor(1.0)
    with pytest.raises(IndexError):
        hvd.allgather(scalar)
    for gather in (hvd.allgather_async, lambda x: hvd.grouped_allgather_async([x])):
        with pytest.raises(hvd.HorovodInternalError, match=r"^Process-set rank zero tried to ALLG"):
            gather(scalar)
    for scatter in (hvd.reducescatter, hvd.reducescatter_async, hvd.alltoall, hvd.alltoall_async):
        with pytest.raises(ValueError):  # noqa: PT011  # The texts differ.
            scatter(scalar)


@pytest.mark.parametrize(
    "verb", [hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter]
)
def test_tensors_that_are_not_contiguous(verb: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"^Tensor is required to be contiguous\."):
        verb(torch.ones(3, 2 * hvd.size()).t())


@pytest.mark.parametrize(
    "verb", [hvd.allreduce, hvd.allreduce_async, hvd.allreduce_, hvd.reducescatter]
)
def test_dtypes_without_arithmetic(verb: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="complex64"):
        verb(torch.ones(4, dtype=torch.complex64))


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("verb", [hvd.allreduce, hvd.allreduce_, hvd.reducescatter])
def test_bool_has_no_average(verb: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="bool has neither averages nor factors"):
        verb(torch.ones(4, dtype=torch.bool))


def test_roots_that_are_not_there() -> None:
    for root in (hvd.size(), -1):
        with pytest.raises(ValueError, match="rank"):
            hvd.broadcast(torch.ones(2), root)


@pytest.mark.usefixtures("two")
def test_who_is_not_in_the_process_set() -> None:
    alone = hvd.add_process_set([0])
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match="rank 1"):
            hvd.broadcast(torch.ones(2), 1, process_set=alone)
    else:
        for name, call in (
            ("Allreduce", lambda: hvd.allreduce(torch.ones(2), process_set=alone)),
            ("Allgather", lambda: hvd.allgather_async(torch.ones(2), process_set=alone)),
            ("Broadcast", lambda: hvd.broadcast_(torch.ones(2), 0, process_set=alone)),
            ("Alltoall", lambda: hvd.alltoall(torch.ones(1), process_set=alone)),
            ("Reducescatter", lambda: hvd.reducescatter(torch.ones(2), process_set=alone)),
            ("Barrier", lambda: hvd.barrier(alone)),
        ):
            begin = f"^{name}: Rank {hvd.rank()} is not a member of the provided process set\\."
            with pytest.raises(ValueError, match=begin):
                call()
    hvd.barrier()
    hvd.remove_process_set(alone)
    gone = r"^Allreduce: Process set provided does not exist, or has not been registered\."
    with pytest.raises(ValueError, match=gone):
        hvd.allreduce(torch.ones(2), process_set=alone)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product, hvd.Adasum, 3])
def test_reducescatter_adds_up_and_nothing_else(op: Any) -> None:
    for verb in (hvd.reducescatter, hvd.reducescatter_async):
        with pytest.raises(hvd.HorovodInternalError, match=r"only hvd\.Average and hvd\.Sum"):
            verb(torch.ones(4), op=op)
    for grouped in (hvd.grouped_reducescatter, hvd.grouped_reducescatter_async):
        with pytest.raises(hvd.HorovodInternalError, match=r"only hvd\.Average and hvd\.Sum"):
            grouped([torch.ones(4)], op=op)
