"""What torch and JAX below Keras have in common: values and variables are sent by way of numpy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy

import corro
import corro.numpy
from horovod._keras.back_end import BackEnd, Function
from horovod._keras.framework import keras
from horovod.common.exceptions import raised_as_horovods
from horovod.common.gradients import GradientReducer, Options
from horovod.common.operations import reduction_of_reducescatter
from horovod.common.process_sets import ProcessSet, global_process_set, member_group
from horovod.common.reduce_op import corros


class ArrayReducer(GradientReducer):
    """Reduces gradients by a function, each unit as a whole."""

    def __init__(
        self, options: Options, reduce: Callable[[Sequence[Any], Options], list[Any]]
    ) -> None:
        super().__init__(options)
        self._reduce = reduce

    def _reduced(self, gradients: Sequence[Any], number: int, generic_names: bool) -> list[Any]:
        del number, generic_names  # There are no graphs.
        return self._reduce(gradients, self.options)

    def _divided(self, gradient: Any, by: Any) -> Any:
        return gradient / by


class ArrayBackEnd(BackEnd):
    """Gradients, which are many, are reduced as the framework has them, by a subclass."""

    @abstractmethod
    def reduced(self, gradients: Sequence[Any], options: Options) -> list[Any]:
        """Returns the gradients of all ranks, reduced as one unit."""

    def reducer(self, options: Options) -> GradientReducer:
        return ArrayReducer(options, self.reduced)

    def tensor(self, value: Any) -> Any:
        return keras.ops.convert_to_tensor(value)

    def allreduce(
        self, tensor: Any, name: str | None, op: Any, factors: tuple[float, float], compression: Any
    ) -> Any:
        del name
        before, after = factors
        options = Options(compression=compression, op=op)
        if before != 1.0:
            tensor = tensor * before
        reduced = self.reduced([tensor], options)[0]
        return reduced if after == 1.0 else reduced * after

    def allgather(self, tensor: Any, name: str | None) -> Any:
        group = member_group(global_process_set, "allgather")
        with raised_as_horovods():
            return self._back(corro.numpy.allgather(_array(tensor), name=name, group=group))

    def reducescatter(self, tensor: Any, name: str | None, op: Any) -> Any:
        group = member_group(global_process_set, "reducescatter")
        reduction = reduction_of_reducescatter(op)
        with raised_as_horovods():
            part = corro.numpy.reducescatter(
                _array(tensor), corros(reduction), name=name, group=group
            )
        return self._back(part)

    def broadcast(
        self, tensors: Sequence[Any], root_rank: int, name: str | None, process_set: ProcessSet
    ) -> list[Any]:
        group = member_group(process_set, "broadcast")
        with raised_as_horovods():
            return [
                self._back(corro.numpy.broadcast(_array(tensor), root_rank, name, group=group))
                for tensor in tensors
            ]

    def unconverted(self, function: Function) -> Function:
        return function

    def _back(self, array: Any) -> Any:
        return keras.ops.convert_to_tensor(array, dtype=str(array.dtype))


def _array(tensor: Any) -> Any:
    return numpy.ascontiguousarray(keras.ops.convert_to_numpy(tensor)).reshape(tensor.shape)
