"""Permutation: an order of the samples of a data epoch of which any part can be computed.

A list that is shuffled takes memory and time for all samples on all ranks, however few a rank is
about to read. Here a position is enciphered instead. What comes out is the sample's index:

    position  ->  (left, right)             a digit of base a and a digit of base b, a * b >= size
    8 rounds  ->  left += f(right) mod a, then right += f(left) mod b, and so on
    (left, right)  ->  index                if it is below size; else it is enciphered once more

A round can be undone, whatever f is, so the rounds are a permutation of [0, a * b). The positions
below size lie on cycles of it. Who walks on along a cycle until it is below size again gets a
permutation of [0, size). Less than a of the a * b numbers are too large, so few walk at all.

Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002: method 2 (cycle
walking) around method 3 (a generalized Feistel network). Here f is no cipher but the finalizer of
SplitMix64: the order has to look random, and hides nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

ROUNDS = 8

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # What SplitMix64 adds from one number to the next.

Words = Any  # numpy.ndarray of uint64; numpy's stubs differ too much by release to say so.


class Permutation:
    """A permutation of [0, size), drawn by a key; the same with every release. Immutable.

    A position costs 8 rounds, and once more that with a probability below 1 / sqrt(size).
    """

    def __init__(self, size: int, seed: int, data_epoch: int) -> None:
        """`size`: 0 to 2**62. The key is drawn from seed and data epoch, any integers."""
        self._size = size
        self._a = math.isqrt(max(size, 1) - 1) + 1
        self._b = -(-max(size, 1) // self._a)
        key = _mix(_mix(seed & _WORD) + data_epoch * _GOLDEN & _WORD)
        self._keys = [_mix(key + (i + 1) * _GOLDEN & _WORD) for i in range(ROUNDS)]

    def indices(self, positions: range) -> list[int]:
        """Returns what is at these positions, each of them in [0, size)."""
        found = self._enciphered(
            numpy.arange(positions.start, positions.stop, positions.step, dtype=numpy.uint64)
        )
        while True:
            (outside,) = numpy.nonzero(found >= numpy.uint64(self._size))
            if len(outside) == 0:
                return found.tolist()  # type: ignore[no-any-return]
            found[outside] = self._enciphered(found[outside])

    def _enciphered(self, numbers: Words) -> Words:
        a, b = numpy.uint64(self._a), numpy.uint64(self._b)
        left, right = numbers // b, numbers % b
        for i, key in enumerate(self._keys):
            if i % 2 == 0:
                left = (left + _mixed(right, key) % a) % a
            else:
                right = (right + _mixed(left, key) % b) % b
        return left * b + right


def _mix(word: int) -> int:
    """The finalizer of SplitMix64: a permutation of 64-bit words in which each bit counts."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31


def _mixed(words: Words, key: int) -> Words:
    """_mix() of each word with a key."""
    words = words ^ numpy.uint64(key)
    words = (words ^ words >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
    return words ^ words >> numpy.uint64(31)
