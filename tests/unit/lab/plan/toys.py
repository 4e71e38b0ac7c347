"""Laws of no meaning, with every kind of argument and answer that a command has to deal with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from physics.law import (
    Array,
    Celsius,
    Count,
    NonNegative,
    Positive,
    Series,
    Share,
    Values,
    law,
    require,
)

__all__ = ["Spread", "Table", "looked_up", "rise_c", "spread", "walk_m", "walk_s", "warmth"]


@dataclass(frozen=True)
class Table:
    """A table as an argument."""

    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    bend_w: float = 1.0
    source: str = "this file"


@dataclass(frozen=True)
class Inner:
    """A dataclass within another."""

    peak_w: float


@dataclass(frozen=True)
class Spread:
    """An answer with fields of many kinds."""

    mean_w: float
    inner: Inner
    over: NDArray[np.bool_]
    name: str
    remarks: tuple[str, ...]
    nothing: float | None
    endless_s: float
    grid: Array


@law
def walk_s(*, distance_m: NonNegative, speed_m_per_s: Positive = 1.5) -> Values:
    """Return the time of a walk, s: ``d / v``.

    See :func:`walk_m`.
    """
    return np.divide(distance_m, speed_m_per_s)


@law
def walk_m(*, time_s: NonNegative, speed_m_per_s: Positive) -> Values:
    """Return the length of a walk, m: ``v · t``."""
    return np.multiply(speed_m_per_s, time_s)


@law
def rise_c(*, warm_c: Celsius, rise_c: NonNegative, share: Share) -> Values:
    """Return a temperature a share of a rise higher, °C."""
    require(np.less_equal(rise_c, 100.0), "rise_c", "at most 100, or warm_c is too")
    return warm_c + share * rise_c


@law
def spread(*, power_w: Series, limit_w: Positive, name: str = "all") -> Spread:
    """Return what there is to say of a series."""
    return Spread(
        mean_w=power_w.mean(),
        inner=Inner(peak_w=power_w.max()),
        over=power_w > limit_w,
        name=name,
        remarks=("first", "second"),
        nothing=None,
        endless_s=float("inf"),
        grid=np.ones((2, 3)),
    )


@law
def looked_up(
    *, gpus: Count, table: Table = Table((1, 2), (1.0, 0.5)), deep: bool = False
) -> Values:
    """Return a share of a table."""
    return np.interp(gpus, table.sizes, table.shares) * (table.bend_w if deep else 1.0)


@law
def warmth(*, kinds: list[str], how: Literal["mean", "most"], table: Table) -> Values:
    """Return how many kinds there are."""
    return float(len(kinds)) if how == "most" else float(table.sizes[0])
