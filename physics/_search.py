"""Search along one line, for many cases at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from physics.law import Array, Flags

__all__ = ["least", "smallest_positive", "smallest_whole"]

_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


def smallest_whole(enough: Callable[[Array], Flags], *, above: Array, up_to: Array) -> Array:
    """Return the smallest whole number in (above, up_to] for which ``enough`` is true.

    ``enough`` takes and gives arrays, stays true once it is true, and is true at ``up_to``; it is
    never asked about ``above``. The bounds are whole, under 2**53 and of one shape. Takes
    log2(up_to - above) calls of ``enough``.
    """
    while np.any(up_to - above > 1.0):
        # Rounded up, so that where the bounds already touch, it is ``up_to`` that is asked about.
        middle = np.ceil((above + up_to) / 2.0)
        holds = enough(middle)
        up_to, above = np.where(holds, middle, up_to), np.where(holds, above, middle)
    return up_to


def smallest_positive(reached: Callable[[Array], Any], low: Array, high: Array) -> Array:
    """Return the least positive x in [low, high] at which ``reached``, which then stays true."""
    low, high = np.log(low), np.log(high)
    for _ in range(64):  # from 1e-40 … 1e40 to less than the spacing of floats
        middle = (low + high) / 2.0
        there = reached(np.exp(middle))
        low, high = np.where(there, low, middle), np.where(there, middle, high)
    return np.exp(high)


def least(
    objective: Callable[[Array], Array], low: Array, high: Array, *, points: int, rounds: int
) -> Array:
    """Return where ``objective`` is least between ``low`` and ``high``, each fit for itself.

    ``low`` and ``high`` have one value a fit, and ``objective`` takes and gives as many. A grid of
    ``points`` finds the valley, so that a second, shallower one does no harm; then ``rounds`` of
    golden section narrow it, each by 0.618.
    """
    grid = np.linspace(low, high, points)
    best = np.stack([objective(place) for place in grid]).argmin(axis=0)
    left = np.take_along_axis(grid, np.maximum(best - 1, 0)[None], axis=0)[0]
    right = np.take_along_axis(grid, np.minimum(best + 1, points - 1)[None], axis=0)[0]
    middle = _golden_section(objective, left, right, rounds)
    # Golden section comes near an end of its range but never reaches it.
    found = np.stack([middle, left, right])
    values = np.stack([objective(place) for place in found])
    return np.asarray(np.take_along_axis(found, values.argmin(axis=0)[None], axis=0)[0])


def _golden_section(
    objective: Callable[[Array], Array], left: Array, right: Array, rounds: int
) -> Array:
    inner = right - _GOLDEN * (right - left)
    outer = left + _GOLDEN * (right - left)
    at_inner, at_outer = objective(inner), objective(outer)
    for _ in range(rounds):
        leftward = at_inner < at_outer
        left, right = np.where(leftward, left, inner), np.where(leftward, outer, right)
        step = _GOLDEN * (right - left)
        new = np.where(leftward, right - step, left + step)
        at_new = objective(new)
        inner, outer = np.where(leftward, new, outer), np.where(leftward, inner, new)
        at_inner, at_outer = (
            np.where(leftward, at_new, at_outer),
            np.where(leftward, at_inner, at_new),
        )
    return np.asarray((left + right) / 2.0)
