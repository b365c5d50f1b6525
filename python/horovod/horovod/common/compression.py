"""What users' own compressors derive from, as in Horovod; T is the framework's tensor."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Compressor(Generic[T]):
    """Makes a tensor smaller before it is reduced, and as it was after. Both methods are static."""

    @staticmethod
    def compress(tensor: T) -> tuple[T, Any]:
        """Returns what travels, and what decompress() needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: T, ctx: Any) -> T:
        """Returns the tensor as it was."""
        raise NotImplementedError


class NoneCompressor(Compressor[Any]):
    """Leaves it as it is."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor."""
        del ctx
        return tensor
