"""How the suite speaks with a front end: with those of corro, and with those of Horovod.

An instance of the suite is a subclass of Corro or Horovod that says what its library's arrays are,
and one class of tests:

    class TestVerbs(Verbs):
        front = Numpy(corro.numpy)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

import corro

INTEGERS = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]

Values = numpy.ndarray[Any, Any]


class FrontEnd:
    """A module of verbs, and its arrays."""

    dtypes: Sequence[str] = ["bool", *INTEGERS, *FLOATS]
    differs: type[Exception] = corro.MismatchError  # Ranks have called differently.
    refusals: tuple[type[Exception], ...] = (ValueError,)  # What cannot be, on this rank.
    takes_strides = True  # Arrays that are not contiguous.
    takes_uneven_rows = True  # Ranks may have different numbers of rows.

    def __init__(self, module: Any) -> None:
        self.module = module

    # -- arrays: what an instance says ------------------------------------------------------------

    def make(self, values: Values, dtype: str) -> Any:
        """Returns an array of this dtype with the values."""
        raise NotImplementedError

    def read(self, x: Any) -> Values:
        """Returns an array's values as numpy's, in a dtype that is wide enough."""
        raise NotImplementedError

    def dtype(self, x: Any) -> str:
        """Returns the name of an array's dtype."""
        raise NotImplementedError

    def transposed(self, x: Any) -> Any:
        """Returns the array with its two dims exchanged, without a copy if there is a way."""
        return x.T

    # -- verbs ------------------------------------------------------------------------------------

    def run(self, function: Callable[..., Any], *arrays: Any) -> Any:
        """Calls a function of arrays: eagerly, or as a graph."""
        return function(*arrays)

    def call(self, verb: str, x: Any, **how: Any) -> Any:
        """Returns the verb's result for x, or for several arrays."""
        function, how = getattr(self.module, verb), self.arguments(how)
        if isinstance(x, list):
            return self.run(lambda *xs: function(list(xs), **how), *x)
        return self.run(lambda one: function(one, **how), x)

    def has(self, verb: str) -> bool:
        """Returns whether there is such a verb."""
        return hasattr(self.module, verb)

    @property
    def starts(self) -> bool:
        """Whether there are handles."""
        return self.has("allreduce_async")

    def start(self, verb: str, x: Any, **how: Any) -> Any:
        """Returns a handle."""
        return getattr(self.module, f"{verb}_async")(x, **self.arguments(how))

    def wait(self, handle: Any) -> Any:
        """Returns a handle's result."""
        return self.module.synchronize(handle)

    def arguments(self, how: dict[str, Any]) -> dict[str, Any]:
        """Returns the front end's arguments: `op` is a name, and `group` what group() made."""
        made = {key: value for key, value in how.items() if key != "group"}
        if "op" in made:
            made["op"] = getattr(self.module, made["op"], made["op"])
        return made

    def alltoall(self, x: Any, splits: list[int] | None, **how: Any) -> tuple[Values, list[int]]:
        """Returns what came, and how many rows from each rank."""
        raise NotImplementedError

    def group(self, ranks: Sequence[int]) -> Any:
        """Returns a group of these ranks; all ranks call it."""
        raise NotImplementedError

    def let_go(self, group: Any) -> None:
        """The group is not needed any more; all ranks call it."""

    def text(self, error: Exception) -> str:
        """Returns what an error says."""
        return str(error)

    def join(self) -> int:
        """Returns the rank that was the last to call it."""
        return int(self.module.join())

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self.module.barrier()


class Corro(FrontEnd):
    """corro.numpy, corro.torch and others of their form."""

    refusals = (ValueError, corro.FailedPreconditionError)

    def arguments(self, how: dict[str, Any]) -> dict[str, Any]:
        return {**super().arguments(how), "group": how.get("group")}

    def alltoall(self, x: Any, splits: list[int] | None, **how: Any) -> tuple[Values, list[int]]:
        found, received = self.call("alltoall", x, splits=splits, **how)
        return self.read(found), list(received)

    def group(self, ranks: Sequence[int]) -> Any:
        return corro.new_group(ranks)


class Horovod(FrontEnd):
    """horovod.torch and others of its form."""

    def arguments(self, how: dict[str, Any]) -> dict[str, Any]:
        if how.get("group") is None:
            return super().arguments(how)
        return {**super().arguments(how), "process_set": how["group"]}

    def alltoall(self, x: Any, splits: list[int] | None, **how: Any) -> tuple[Values, list[int]]:
        if splits is None:
            found = self.call("alltoall", x, **how)
            return self.read(found), [len(self.read(found)) // corro.size()] * corro.size()
        found, received = self.call("alltoall", x, splits=splits, **how)
        return self.read(found), self.read(received).tolist()

    def group(self, ranks: Sequence[int]) -> Any:
        return self.module.add_process_set(ranks)

    def let_go(self, group: Any) -> None:
        self.module.remove_process_set(group)
