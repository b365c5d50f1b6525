"""Random bits by counting: a sample's bits depend on its stream's number and their place alone.

The n-th 64 bits of stream s are mix(s + n * GOLDEN), which is SplitMix64 (Steele, Lea, Flood:
"Fast splittable pseudorandom number generators", 2014). There is no state, so that many streams
are drawn at once, and every device, dtype and version of torch draws the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None))
_ALL = (1 << 64) - 1
_WORDS_AT_ONCE = {"cpu": 1 << 16}
"""What lies in a core's cache with its scratch memory; a device with many cores takes more."""


def mix(*numbers: int) -> int:
    """Returns 64 bits in which every bit of every number counts, and their order."""
    result = 0
    for number in numbers:
        result = (result + number + 1) * _GOLDEN & _ALL
        for shift, factor in _ROUNDS:
            result ^= result >> shift
            result = result * (factor or 1) & _ALL
    return result


def bernoulli(streams: Tensor, elements: int, probability: float) -> Tensor:
    """Returns `elements` draws of each stream: true with the probability, to 2^-32.

    Args:
        streams: [S] int64, one number per stream.

    Returns: [S, elements] bool, on the streams' device.
    """
    if not 0 < probability < 1:
        shape = (len(streams), elements)
        return torch.full(shape, probability >= 1, dtype=torch.bool, device=streams.device)
    limit = min(round(probability * 2**32), 2**32 - 1) - 2**31
    words = (elements + 1) // 2
    result = torch.empty(len(streams), 2 * words, dtype=torch.bool, device=streams.device)
    at_once = _WORDS_AT_ONCE.get(streams.device.type, 1 << 22)
    for rows in _slices(len(streams), max(1, at_once // max(1, words))):
        for columns in _slices(words, at_once):
            bits = _bits(streams[rows], columns)
            torch.lt(bits, limit, out=result[rows, 2 * columns.start : 2 * columns.stop])
    return result[:, :elements]


def _bits(streams: Tensor, words: slice) -> Tensor:
    """Returns [S, 2 * words] int32: these 64-bit words of every stream, in halves."""
    counters = torch.arange(words.start, words.stop, device=streams.device).mul_(_signed(_GOLDEN))
    bits = streams[:, None] + counters
    scratch = torch.empty_like(bits)
    for shift, factor in _ROUNDS:
        torch.bitwise_right_shift(bits, shift, out=scratch)
        bits.bitwise_xor_(scratch.bitwise_and_((1 << (64 - shift)) - 1))  # the sign's copies off
        if factor is not None:
            bits.mul_(_signed(factor))
    return bits.view(torch.int32)


def _signed(bits: int) -> int:
    """Returns the int64 of the same 64 bits."""
    return bits - (1 << 64) if bits >> 63 else bits


def numbers_of(base: int, samples: Iterable[int]) -> list[int]:
    """Returns each sample's stream number, as int64."""
    return [_signed(mix(base, sample)) for sample in samples]


def _slices(end: int, length: int) -> Iterator[slice]:
    """Cuts [0, end) into slices of at most `length`."""
    for start in range(0, end, length):
        yield slice(start, min(start + length, end))
