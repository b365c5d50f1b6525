"""Run by two ranks from outside the tree: the installed wheel, numpy, nothing else."""

import numpy

import corro
import corro.numpy

corro.init()
total = corro.numpy.allreduce(numpy.arange(5.0) + corro.rank(), op=corro.Sum)
assert total.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0], total
assert corro.size() == 2
print(f"rank {corro.rank()}: corro {corro.__file__} adds up")
