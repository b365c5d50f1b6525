"""Making ranks equal."""

from __future__ import annotations

from typing import Any

from mxnet.gluon.parameter import DeferredInitializationError, Parameter, ParameterDict

from horovod.common.handles import synchronize
from horovod.mxnet.mpi_ops import broadcast_, start_broadcast_


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Fills `net.collect_params()`, or a dict of NDArrays, with those of a rank. Blocks.

    A parameter whose shape is not known yet is filled when MXNet makes it: in the first forward
    pass, which all ranks then have to do.

    Args:
        params: Parameters or NDArrays by name; the same names on every rank.
        root_rank: whose they become.
        prefix: stands before their names.

    Raises:
        ValueError: it is no such dict.
    """
    if not isinstance(params, dict | ParameterDict):
        raise ValueError(f"broadcast_parameters: a dict is needed, not a {type(params).__name__}")
    started = []
    for key, value in sorted(params.items()):
        name = f"parameters.{prefix or ''}{key}"
        try:
            tensor = value.data() if isinstance(value, Parameter) else value
        except DeferredInitializationError:
            _fill_when_made(value, root_rank, name)
            continue
        started.append(start_broadcast_(tensor, root_rank, name))
    for handle in started:
        synchronize(handle)


def _fill_when_made(parameter: Any, root_rank: int, name: str) -> None:
    make = parameter._init_impl

    def made(*args: Any, **kwargs: Any) -> None:
        del parameter._init_impl  # It is made once.
        make(*args, **kwargs)
        broadcast_(parameter.data(), root_rank, name)

    parameter._init_impl = made
