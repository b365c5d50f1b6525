"""Which tensors ranks have alike already, so that nothing is written to them.

A model that memory has no room for is mapped from a file. Reading it takes no memory for long;
writing to it takes as much as it has.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping

from torch import Tensor

from corro._context import Group
from corro._objects import allgather_object


def differing(tensors: Mapping[str, Tensor], group: Group) -> dict[str, Tensor]:
    """Returns those that are not the same on all ranks of the group, by name. Blocks.

    Args:
        tensors: in the host's memory; of the same names on all ranks.
    """
    digests: list[list[bytes]] = allgather_object(list(map(_digest, tensors.values())), group=group)
    of_each = zip(tensors.items(), zip(*digests, strict=True), strict=True)
    return dict(named for named, found in of_each if len(set(found)) > 1)


def _digest(tensor: Tensor) -> bytes:
    flat = tensor.detach().contiguous()
    # By address: memory that numpy has seen cannot be freed.
    data = (ctypes.c_char * flat.nbytes).from_address(flat.data_ptr()) if flat.nbytes else b""
    return hashlib.sha256(data).digest()
