"""Says what is wrong with MXNet, before anything else imports it."""

import numpy

from corro._frameworks import check_framework

try:
    check_framework("horovod.mxnet", "mxnet", "MXNet", "MXNet", (1, 9))
except AttributeError:  # MXNet asks for numpy.bool, numpy.PZERO ...
    if tuple(map(int, numpy.__version__.split(".")[:2])) < (1, 24):
        raise
    raise ImportError(
        f"horovod.mxnet: MXNet needs numpy 1.23 or older, and {numpy.__version__} is installed"
        " here: pip install 'numpy<1.24'"
    ) from None
