"""Smaller forms in which gradients travel: codecs of the engine.

corro.jax.DistributedOptimizer(optax.sgd(0.1), compression=corro.jax.Compression.bf16)
"""

from __future__ import annotations

from dataclasses import dataclass

from corro import _native
from corro.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class CastCodec:
    """Larger floating-point numbers travel as this dtype, a number of the engine's; None: as is."""

    dtype: int | None

    @property
    def address(self) -> int:
        """Of the engine's codec in this process; 0 for none."""
        return 0 if self.dtype is None else _native.cast_codec(self.dtype)


class Compression:
    """The codecs that are here."""

    none = CastCodec(None)
    fp16 = CastCodec(_native.F16)
    bf16 = CastCodec(_native.BF16)


def checked(codec: object) -> CastCodec:
    """Returns the codec; None is none of them."""
    if codec is None:
        return Compression.none
    if not isinstance(codec, CastCodec):
        raise InvalidArgumentError(
            f"compression has to be one of corro.jax.Compression or None, not {codec!r}"
        )
    return codec
