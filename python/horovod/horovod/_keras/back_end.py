"""What horovod.keras needs of the framework below Keras."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from horovod.common import basics
from horovod.common.elastic import run_fn
from horovod.common.gradients import GradientReducer, Options
from horovod.common.process_sets import ProcessSet

Function = TypeVar("Function", bound=Callable[..., Any])


class BackEnd(ABC):
    """Collectives on a framework's tensors; each blocks, unless it becomes part of a graph.

    Attributes:
        compression: what scripts know as hvd.Compression.
    """

    compression: Any

    @abstractmethod
    def tensor(self, value: Any) -> Any:
        """Returns the value as a tensor; floats of Python have Keras's floatx."""

    @abstractmethod
    def reducer(self, options: Options) -> GradientReducer:
        """Returns what reduces an optimizer's gradients; it may be called in a graph."""

    @abstractmethod
    def allreduce(
        self, tensor: Any, name: str | None, op: Any, factors: tuple[float, float], compression: Any
    ) -> Any:
        """Returns the tensor of all ranks; `factors`: of what goes in, and of what comes out."""

    @abstractmethod
    def allgather(self, tensor: Any, name: str | None) -> Any:
        """Returns all ranks' rows."""

    @abstractmethod
    def reducescatter(self, tensor: Any, name: str | None, op: Any) -> Any:
        """Returns this rank's rows of the tensor of all ranks."""

    @abstractmethod
    def broadcast(
        self, tensors: Sequence[Any], root_rank: int, name: str | None, process_set: ProcessSet
    ) -> list[Any]:
        """Returns the tensors of a rank of the world."""

    def broadcast_global_variables(self, root_rank: int) -> Any:
        """Gives all variables of a graph the values of a rank, where there are graphs."""
        del root_rank
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for graphs of TensorFlow 1: give fit() a"
            " hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank)"
        )

    def elastic(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a training function that goes on when ranks come or go."""
        return run_fn(function, basics.enter_epoch)

    def on_reset(self) -> None:  # noqa: B027  # Most have nothing to do.
        """Ranks have come or gone: forgets what depends on how many there are."""

    @abstractmethod
    def unconverted(self, function: Function) -> Function:
        """Returns the function, as the framework is to call it in what it makes a graph of."""
