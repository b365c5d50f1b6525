"""What scripts and tests of Horovod ask about the installation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from horovod.common.basics import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built

__all__ = [
    "ccl_built",
    "check_extension",
    "ddl_built",
    "env",
    "extension_available",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]

T = TypeVar("T")
_FRONT_ENDS = ("torch", "tensorflow", "mxnet")


def _cache(f: Callable[[], T]) -> Callable[[], T]:
    return cache(f)


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether there is a front end of this name, and its framework is installed."""
    del verbose
    return ext_base_name in _FRONT_ENDS and find_spec(ext_base_name) is not None


def check_extension(ext_name: str, *_: object) -> None:
    """Raises ImportError unless there is a front end of this name: "horovod.torch" is one."""
    name = ext_name.removeprefix("horovod.")
    if not extension_available(name):
        raise ImportError(
            f"Extension {ext_name} has not been built: corro-horovod has {', '.join(_FRONT_ENDS)}, "
            "and needs the framework to be installed"
        )


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether the framework has a GPU."""
    if not extension_available(ext_base_name, verbose):
        return False
    if ext_base_name == "torch":
        return bool(import_module("torch").cuda.is_available())
    if ext_base_name == "mxnet":
        return bool(import_module("mxnet").context.num_gpus() > 0)
    return bool(import_module("tensorflow").config.list_physical_devices("GPU"))


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets variables of the environment, removes those that are None, and undoes it at the end."""
    before = {name: os.environ.get(name) for name in kwargs}
    try:
        _set(kwargs)
        yield
    finally:
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def is_iterable(x: Any) -> bool:
    """Returns whether x can be iterated over."""
    return isinstance(x, Iterable)


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether the number is a power of 2."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(values: list[T], parts: int) -> list[list[T]]:
    """Returns consecutive parts of almost equal length, the first ones longer by one."""
    size, longer = divmod(len(values), parts)
    ends = [(i + 1) * size + min(i + 1, longer) for i in range(parts)]
    return [values[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Returns whether a version such as "2.8.0" is at least another one."""
    from packaging.version import parse

    return parse(ver) >= parse(target)
