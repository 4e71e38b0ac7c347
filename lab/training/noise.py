"""Noise by counter: the same seed and number give the same value, in whatever order one asks."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


def seed_of(seed: int, key: str) -> int:
    """Return a seed of 63 bits for the thing that ``key`` names in a run with ``seed``."""
    digest = hashlib.blake2b(f"{seed}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def uniform(seed: int | Words, counter: Words) -> Array:
    """Return a value from 0 up to 1 for each number (SplitMix64, Steele, Lea and Flood 2014).

    ``seed``: one for all, or one for each.
    """
    # It wraps around, as it is meant to.
    with np.errstate(over="ignore"):
        word = np.asarray(seed, dtype=np.uint64) + (counter + np.uint64(1)) * _GOLDEN
        for shift, factor in _MIX:
            word = (word ^ (word >> shift)) * factor
        word = word ^ (word >> np.uint64(31))
    drawn: Array = (word >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn


def standard_normal(seed: int | Words, counter: Words) -> Array:
    """Return a normal value for each number (Box and Muller 1958)."""
    first = uniform(seed, counter * np.uint64(2))
    second = uniform(seed, counter * np.uint64(2) + np.uint64(1))
    drawn: Array = np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second)
    return drawn
