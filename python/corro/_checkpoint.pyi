"""The door to checkpoints on disk; use corro.checkpoint. Dtypes are those of corro._native."""

from collections.abc import Sequence

Dims = Sequence[int]

def share(
    rank: int, world: int, tensors: Sequence[tuple[int, Dims]]
) -> list[tuple[int, list[int], list[int]]]:
    """Returns the boxes that a rank writes of tensors that all have: index, offsets, shape."""

def commit(
    root: str, step: int, attempt: int, world: int, table_parts: Sequence[int], keep: int
) -> None:
    """Makes a checkpoint of the parts of ranks, and of so many of each table."""

def remove_partial(root: str) -> None: ...
def partial_name(step: int, attempt: int) -> str: ...
def steps(root: str) -> list[int]:
    """Returns the steps of which there are checkpoints, newest first."""

class Image:
    def __init__(self) -> None: ...
    def resize(self, bytes: int) -> None: ...
    def memory(self) -> memoryview:
        """Returns its bytes: valid until resize(), and as long as this object."""

class Part:
    """A rank's file of a checkpoint; boxes are name, dtype, whole shape, offsets, shape."""

    def __init__(
        self,
        step: int,
        rank: int,
        world: int,
        values: str,
        boxes: Sequence[tuple[str, int, Dims, Dims, Dims]],
    ) -> None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def offsets(self) -> list[int]: ...
    def write(self, folder: str, image: Image) -> None:
        """Blocks until the image, whose boxes are filled, is on the disk."""

class Lock:
    def __init__(self, root: str) -> None: ...
    def close(self) -> None: ...

class Opened:
    def __init__(self, root: str, step: int) -> None: ...
    @property
    def world(self) -> int: ...
    @property
    def values(self) -> str: ...
    @property
    def tensors(self) -> list[tuple[str, int, list[int]]]: ...
    @property
    def tables(self) -> list[str]: ...
    def read(self, boxes: Sequence[tuple[int, Dims, Dims, int]]) -> None:
        """Fills boxes, each an index, offsets, shape and address; blocks."""
