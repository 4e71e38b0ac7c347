"""Which of many ranges that overlap counts: the one with the greatest value."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["greatest_cover"]


def greatest_cover(
    left: NDArray[np.intp], right: NDArray[np.intp], value: NDArray[np.int64], segments: int
) -> NDArray[np.int64]:
    """Return for each of ``segments`` the greatest value of the ranges over it, else -1.

    Ranges are [left, right) in segments, in any order; values are at least 0. A range is the union
    of two blocks of the greatest power of two within it. From the longest blocks to single
    segments, each block hands its value to its two halves.
    """
    some = right > left
    left, right, value = left[some], right[some], value[some]
    level = np.frexp(right - left)[1] - 1
    greatest = np.full(segments, -1, dtype=np.int64)
    for each in range(int(level.max(initial=0)), -1, -1):
        members = np.flatnonzero(level == each)
        np.maximum.at(greatest, left[members], value[members])
        np.maximum.at(greatest, right[members] - 2**each, value[members])
        if each:
            half = 2 ** (each - 1)
            upper = greatest[:-half].copy()
            np.maximum(greatest[half:], upper, out=greatest[half:])
    return greatest
