"""How gradients of all ranks become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horovod.common.process_sets import ProcessSet, global_process_set, member_group
from horovod.common.reduce_op import Average, Sum, known


@dataclass(frozen=True, kw_only=True, slots=True)
class Reduction:
    """What DistributedOptimizer is told about it.

    Attributes:
        compression: what gradients travel as.
        op: hvd.Average or hvd.Sum.
        predivide_factor: an average's terms are divided by it before they are added up, and the sum
            by the rest after.
        device_dense: where TensorFlow reduces dense gradients.
        device_sparse: where it reduces sparse ones.
        sparse_as_dense: makes tf.IndexedSlices tensors first.
        process_set: the ranks that take part; others keep their own gradients.
        scale_local_gradients: gradients that are not reduced are divided by the number of ranks.
    """

    compression: Any
    op: Any = Average
    predivide_factor: float = 1.0
    device_dense: str = ""
    device_sparse: str = ""
    sparse_as_dense: bool = False
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def __post_init__(self) -> None:
        if known(self.op) not in (Average, Sum):
            raise ValueError("op currently only supports Average and Sum")
        if self.predivide_factor != 1.0 and known(self.op) is not Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if self.takes_part():
            member_group(self.process_set, "DistributedOptimizer")  # Says what is wrong with it.

    def takes_part(self) -> bool:
        """Returns whether this rank's gradients are reduced with others'."""
        return self.process_set.included() is not False
