"""Run by two ranks from outside the tree: the installed wheels of corro and corro-horovod."""

import os

import corro
import horovod
from horovod.common import basics as hvd

hvd.init()
assert (hvd.rank(), hvd.size()) == (int(os.environ["HOROVOD_RANK"]), 2)
corro.barrier()
print(f"rank {hvd.rank()} of {hvd.size()}: horovod {horovod.__file__}")
