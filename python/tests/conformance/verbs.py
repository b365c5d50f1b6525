"""The suite: verbs x dtypes x shapes x errors. Values are small: every dtype has them exactly."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy
import pytest

import corro
from conformance.front_end import FrontEnd, Values

SHAPES = [(), (1,), (5,), (3, 2), (0,), (2, 0), (100_003,)]
OPS: dict[str, Callable[[Any, Any], Any]] = {
    "Sum": numpy.add,
    "Min": numpy.minimum,
    "Max": numpy.maximum,
    "Product": numpy.multiply,
}
# What rank 1 does otherwise: the verb, what all others give, what it gives, and what is said of it.
DIFFERENCES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "shape": ("allreduce", {"shape": (4,)}, {"shape": (3,)}, "ALLREDUCE tensor shapes"),
    "dims": ("allreduce", {"shape": (2, 3)}, {"shape": (3, 2)}, "ALLREDUCE tensor shapes"),
    "number of dims": ("allreduce", {"shape": (4,)}, {"shape": (2, 2)}, "ALLREDUCE tensor shapes"),
    "dtype": ("allreduce", {}, {"dtype": "int32"}, "data types"),
    "op": ("allreduce", {"op": "Sum"}, {"op": "Max"}, "reduction operation"),
    "factor": ("allreduce", {}, {"prescale_factor": 2.0}, "prescale and/or postscale factors"),
    "root": ("broadcast", {"root_rank": 0}, {"root_rank": 1}, "BROADCAST root ranks"),
    "what is sent": ("broadcast", {"shape": (4,)}, {"shape": (3,)}, "BROADCAST tensor shapes"),
    "rows": ("allgather", {"shape": (2, 3)}, {"shape": (1, 4)}, "ALLGATHER tensor shapes"),
    "dtype of rows": ("allgather", {}, {"dtype": "int32"}, "data types"),
    "rows for others": ("alltoall", {"shape": (1, 3)}, {"shape": (1, 4)}, "ALLTOALL tensor shapes"),
    "rows to scatter": (
        "reducescatter",
        {"shape": (1,)},
        {"shape": (2,)},
        "REDUCESCATTER tensor shapes",
    ),
}
WHERE = re.compile(r" on rank \d+ \(phase \w+\)")


def ranks() -> range:
    return range(corro.size())


def of(rank: int, shape: tuple[int, ...] = (7,)) -> Values:
    """Returns what a rank gives."""
    count = int(numpy.prod(shape, dtype=int))
    return (numpy.arange(count) % 5 + rank + 1).reshape(shape)


def bits(rank: int, count: int = 8) -> Values:
    """Returns ones and zeros: their product is small, and bool has them."""
    return (numpy.arange(count) + rank) % 3 > 0


def rows(rank: int, width: tuple[int, ...] = ()) -> Values:
    """Returns another number of rows for each rank, none for one."""
    return of(rank, ((rank + 2) % 3, *width))


def folded(op: str, parts: list[Values]) -> Values:
    """Returns what the op makes of what all ranks give."""
    return reduce(OPS[op], parts)


class Verbs:
    """Every test of every front end. A subclass has `front`."""

    front: FrontEnd

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "dtype" in metafunc.fixturenames:
            metafunc.parametrize("dtype", self.front.dtypes)

    def mine(self, shape: tuple[int, ...] = (7,), dtype: str = "float32") -> Any:
        return self.front.make(of(corro.rank(), shape), dtype)

    def same(self, found: Any, expected: Any, dtype: str = "float32") -> None:
        assert self.front.dtype(found) == dtype
        values = self.front.read(found)
        assert values.shape == numpy.shape(expected)
        numpy.testing.assert_array_equal(values, expected)

    def goes_on(self) -> None:
        """The next operation works."""
        total = self.front.call("allreduce", self.mine((2,)), op="Sum")
        self.same(total, folded("Sum", [of(rank, (2,)) for rank in ranks()]))

    def need_uneven_rows(self) -> None:
        if not self.front.takes_uneven_rows:
            pytest.skip("ranks of this front end have equally many rows")

    # -- reductions -------------------------------------------------------------------------------

    @pytest.mark.parametrize("op", OPS)
    def test_allreduce_of_each_dtype(self, op: str, dtype: str) -> None:
        parts = [bits(rank) if op == "Product" else of(rank) for rank in ranks()]
        if dtype == "bool":
            parts = [bits(rank) for rank in ranks()]
        found = self.front.call("allreduce", self.front.make(parts[corro.rank()], dtype), op=op)
        self.same(found, folded(op, parts), dtype)

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_each_shape(self, shape: tuple[int, ...]) -> None:
        x, last = self.mine(shape), corro.size() - 1
        total = folded("Sum", [of(rank, shape) for rank in ranks()])
        self.same(self.front.call("allreduce", x, op="Sum"), total)
        self.same(self.front.call("broadcast", x, root_rank=last), of(last, shape))
        self.same(x, of(corro.rank(), shape))  # What is given is left alone.

    def test_the_average_is_the_default(self) -> None:
        mean = folded("Sum", [of(rank) for rank in ranks()]) / numpy.float32(corro.size())
        found = self.front.read(self.front.call("allreduce", self.mine()))
        numpy.testing.assert_allclose(found, mean, rtol=1e-6)

    def test_factors(self) -> None:
        total = folded("Sum", [of(rank) for rank in ranks()])
        how = {"op": "Sum", "prescale_factor": 4.0, "postscale_factor": 0.5}
        self.same(self.front.call("allreduce", self.mine(), **how), 2 * total)

    def test_arrays_with_strides(self) -> None:
        x = self.front.transposed(self.mine((3, 4)))
        if not self.front.takes_strides:
            with pytest.raises(self.front.refusals, match="contiguous"):
                self.front.call("allreduce", x, op="Sum")
            return
        total = folded("Sum", [of(rank, (3, 4)) for rank in ranks()])
        self.same(self.front.call("allreduce", x, op="Sum"), total.T)
        self.same(
            self.front.call("allgather", x), numpy.concatenate([of(r, (3, 4)).T for r in ranks()])
        )

    def test_several_arrays_are_one_unit(self) -> None:
        xs = [self.mine((4,)), self.mine((2, 3), "int64"), self.mine((0,)), self.mine(())]
        found = self.front.call("grouped_allreduce", xs, op="Max", name="several")
        last = corro.size() - 1
        self.same(found[0], of(last, (4,)))
        self.same(found[1], of(last, (2, 3)), "int64")
        self.same(found[2], of(last, (0,)))
        self.same(found[3], of(last, ()))

    @pytest.mark.parametrize("more", [0, 1])
    def test_reducescatter_gives_the_first_ranks_a_row_more(self, more: int) -> None:
        if more:
            self.need_uneven_rows()
        shape = (2 * corro.size() + more, 2)
        found = self.front.call("reducescatter", self.mine(shape), op="Sum", name="scattered")
        total = folded("Sum", [of(rank, shape) for rank in ranks()])
        self.same(found, numpy.array_split(total, corro.size())[corro.rank()])
        if not self.front.has("grouped_reducescatter"):
            return
        one, two = self.front.call(
            "grouped_reducescatter", [self.mine(shape), self.mine((1,))], op="Sum", name="pair"
        )
        self.same(one, numpy.array_split(total, corro.size())[corro.rank()])
        assert self.front.read(two).shape == (int(corro.rank() == 0),)

    # -- what moves -------------------------------------------------------------------------------

    def test_each_dtype_moves(self, dtype: str) -> None:
        every = [bits(rank, 2 * corro.size()) for rank in ranks()]
        x, last = self.front.make(every[corro.rank()], dtype), corro.size() - 1
        self.same(self.front.call("broadcast", x, root_rank=last), every[last], dtype)
        self.same(self.front.call("allgather", x), numpy.concatenate(every), dtype)
        found, _ = self.front.alltoall(x, None)
        part = slice(2 * corro.rank(), 2 * corro.rank() + 2)
        numpy.testing.assert_array_equal(found, numpy.concatenate([one[part] for one in every]))

    @pytest.mark.parametrize("name", [None, "gathered"])
    @pytest.mark.parametrize("width", [(), (3,), (0,)], ids=str)
    def test_allgather_of_different_numbers_of_rows(self, width: tuple[int], name: str) -> None:
        self.need_uneven_rows()
        x = self.front.make(rows(corro.rank(), width), "int32")
        expected = numpy.concatenate([rows(rank, width) for rank in ranks()])
        self.same(self.front.call("allgather", x, name=name), expected, "int32")
        if not self.front.has("grouped_allgather"):
            return
        pair = self.front.call("grouped_allgather", [x, self.mine((1,))], name=name)
        self.same(pair[0], expected, "int32")
        self.same(pair[1], numpy.concatenate([of(rank, (1,)) for rank in ranks()]))

    @pytest.mark.parametrize("name", [None, "exchanged"])
    def test_alltoall_of_different_numbers_of_rows(self, name: str | None) -> None:
        """Rank r sends (r + s) % 3 rows to rank s."""

        def sent(rank: int, to: int) -> Values:
            return numpy.full(((rank + to) % 3, 2), 10 * rank + to)

        self.need_uneven_rows()
        own = corro.rank()
        splits = [(own + to) % 3 for to in ranks()]
        x = self.front.make(numpy.concatenate([sent(own, to) for to in ranks()]), "int64")
        found, received = self.front.alltoall(x, splits, name=name)
        assert received == splits  # The same from each as to each.
        numpy.testing.assert_array_equal(
            found, numpy.concatenate([sent(rank, own) for rank in ranks()])
        )

    # -- names, handles, groups, joining ----------------------------------------------------------

    def test_handles_in_another_order_on_each_rank(self) -> None:
        if not self.front.starts:
            pytest.skip("this front end has no handles")
        verbs: dict[str, dict[str, Any]] = {
            "allreduce": {"op": "Sum"},
            "broadcast": {"root_rank": 0},
            "allgather": {},
            "reducescatter": {"op": "Sum"},
        }
        shape = (corro.size(), 3)
        total = folded("Sum", [of(rank, shape) for rank in ranks()])
        expected = {
            "allreduce": total,
            "broadcast": of(0, shape),
            "allgather": numpy.concatenate([of(rank, shape) for rank in ranks()]),
            "reducescatter": total[corro.rank() : corro.rank() + 1],
        }
        order = [(verb, i) for verb in verbs for i in range(5)]
        random.Random(corro.rank()).shuffle(order)
        handles = {
            (verb, i): self.front.start(verb, self.mine(shape), name=f"{verb}.{i}", **verbs[verb])
            for verb, i in order
        }
        random.Random(corro.rank() + 100).shuffle(order)
        for verb, i in order:
            self.same(self.front.wait(handles[verb, i]), expected[verb])

    def test_a_name_may_be_in_flight_once(self) -> None:
        if not self.front.starts or corro.size() == 1:
            pytest.skip("without handles, or with one rank, nothing is in flight")
        x = self.mine()
        if corro.rank() > 0:
            corro.barrier()  # Until rank 0 has tried it: nobody else has started the first.
        handle = self.front.start("allreduce", x, op="Sum", name="twice")
        if corro.rank() == 0:
            with pytest.raises(self.front.refusals, match="twice"):
                self.front.wait(self.front.start("allreduce", x, op="Sum", name="twice"))
            corro.barrier()
        self.same(self.front.wait(handle), folded("Sum", [of(rank) for rank in ranks()]))
        self.goes_on()

    def test_a_group_of_some_ranks(self) -> None:
        members = list(ranks())[1:][-2:]
        if not members:
            pytest.skip("one rank is in no group but the world")
        group = self.front.group(members)
        if corro.rank() in members:
            found = self.front.call("allreduce", self.mine(), op="Sum", group=group)
            self.same(found, folded("Sum", [of(rank) for rank in members]))
            found = self.front.call("broadcast", self.mine(), root_rank=members[-1], group=group)
            self.same(found, of(members[-1]))
            found = self.front.call("allgather", self.mine(), name="of_some", group=group)
            self.same(found, numpy.concatenate([of(rank) for rank in members]))
        else:
            with pytest.raises(self.front.refusals):
                self.front.call("allreduce", self.mine(), op="Sum", group=group)
        self.front.let_go(group)
        self.goes_on()

    def test_ranks_with_less_data_join(self) -> None:
        for step in range(corro.rank() + 1):
            found = self.front.call("allreduce", self.mine((3,)), op="Sum", name=f"step.{step}")
            self.same(found, folded("Sum", [of(rank, (3,)) for rank in ranks()[step:]]))
        assert self.front.join() in ranks()
        self.goes_on()

    def test_a_barrier_holds_ranks_back(self, tmp_path: Path) -> None:
        if not self.front.has("barrier"):
            pytest.skip("this front end has no barrier")
        came = Path(corro.broadcast_object(str(tmp_path))) / "came"
        if corro.rank() == corro.size() - 1:
            came.touch()
        self.front.barrier()
        assert came.exists()

    # -- mistakes ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("what", DIFFERENCES)
    def test_what_differs_is_an_error_with_one_text_on_every_rank(self, what: str) -> None:
        if corro.size() == 1:
            pytest.skip("one rank differs from nobody")
        verb, usual, other, said = DIFFERENCES[what]
        how = {**usual, **(other if corro.rank() == 1 else {})}
        shape = how.pop("shape", (4,))
        if verb in ("alltoall", "reducescatter"):  # Shapes are of what a rank gets.
            shape = (corro.size() * shape[0], *shape[1:])
        x = self.mine(shape, how.pop("dtype", "float32"))
        if verb in ("allreduce", "reducescatter"):
            how.setdefault("op", "Sum")
        if verb == "broadcast":
            how.setdefault("root_rank", 0)
        with pytest.raises(self.front.differs) as raised:
            self.front.call(verb, x, name="different", **how)
        texts = corro.allgather_object(WHERE.sub("", self.front.text(raised.value)))
        assert len(set(texts)) == 1
        assert f"Mismatched {said}: " in texts[0]
        assert "rank 1 submitted" in texts[0]
        self.goes_on()

    def test_what_is_wrong_on_this_rank_is_refused_at_once(self) -> None:
        x = self.mine((2,))
        with pytest.raises(self.front.refusals):
            self.front.call("allgather", self.mine(()))
        with pytest.raises(self.front.refusals):
            self.front.alltoall(x, [99] * corro.size())
        with pytest.raises(self.front.refusals):
            self.front.alltoall(x, [1] * (corro.size() + 1))
        with pytest.raises(self.front.refusals):
            self.front.call("broadcast", x, root_rank=corro.size())
        self.goes_on()
