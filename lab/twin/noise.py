"""Noise that costs next to nothing: stretches of one table, each from a place that is drawn.

A fresh normal number for every GPU and step would take longer than all the physics of the step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Starts in the table, and how many of them are drawn in one call, since a call costs far more
#: than a number.
_PLACES = 1 << 16
_DRAWN_AT_ONCE = 4096
#: No number of the table is further from 0, so that what is made of it stays bounded.
_MOST = 4.0


class Noise:
    """Standard normal numbers, at most 4 from 0, the same for the same seed."""

    def __init__(self, longest: int, rng: np.random.Generator) -> None:
        """``longest``: the most numbers that are asked for at once."""
        self._rng = rng
        self.table: Array = rng.standard_normal(_PLACES + longest).clip(-_MOST, _MOST)
        self._places: list[int] = []

    def place(self) -> int:
        """Return where in the table the next numbers begin."""
        if not self._places:
            self._places = self._rng.integers(0, _PLACES, _DRAWN_AT_ONCE).tolist()
        return self._places.pop()

    def draw(self, count: int) -> Array:
        """Return the next ``count`` numbers. They are a part of the table: to be read only."""
        start = self.place()
        return self.table[start : start + count]
