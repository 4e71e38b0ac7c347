"""Axes of a plot: ranges, ticks, and fewer points where the eye sees no more. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lab.matrix.result import Series

__all__ = ["Axis", "thinned", "ticks", "time_ticks", "value_axis"]

#: Steps that people read off: 1, 2, 2.5 or 5 of a power of ten.
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
)  # fmt: skip
#: Room between the highest value and the edge, as a share of the range.
_AIR = 0.08


@dataclass(frozen=True)
class Axis:
    """The range of an axis, and where it is labeled."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Return where a value is: 0 at the low end, 1 at the high one."""
        return (value - self.low) / (self.high - self.low)


def ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return at most ``most`` round values from ``low`` to ``high``."""
    rough = (high - low) / max(1, most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * each for each in _STEPS if size * each >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(i * step for i in range(first, last + 1))


def time_ticks(end_s: float, most: int = 5) -> tuple[float, ...]:
    """Return at most ``most`` round moments from the start of a run to its end."""
    rough = end_s / (most - 1)
    step = next((float(each) for each in _TIME_STEPS_S if each >= rough), 0.0)
    step = step or math.ceil(rough / 86_400) * 86_400.0
    return tuple(i * step for i in range(math.floor(end_s / step + 1e-9) + 1))


def value_axis(values: Sequence[float], budgets: Sequence[float], size: float) -> Axis:
    """Return the axis for values and budgets, with ticks that are round multiples of ``size``.

    It begins at zero, unless all values are so far from it that nothing could be seen.
    """
    known = [*values, *budgets] or [0.0]
    low, high = min(known), max(known)
    if 0 <= low < 0.6 * high:
        low = 0.0
    if high - low < max(abs(high), abs(low)) * 1e-6 or high == low:
        low, high = (low - 0.5 * abs(low), high + 0.5 * abs(high)) if high else (0.0, size)
    air = _AIR * (high - low)
    low, high = (low if low == 0 else low - air), high + air
    return Axis(low, high, tuple(size * each for each in ticks(low / size, high / size, 5)))


def thinned(series: Series, most: int) -> list[tuple[float, float | None]]:
    """Return at most about ``most`` points: of each stretch of time its lowest and its highest.

    So no peak is lost. A gap stays a gap.
    """
    points = list(zip(series.t_s, series.values, strict=True))
    if len(points) <= most:
        return points
    width = math.ceil(len(points) / (most // 2))
    kept: list[tuple[float, float | None]] = []
    for at in range(0, len(points), width):
        stretch = points[at : at + width]
        known = [(t_s, value) for t_s, value in stretch if value is not None]
        if len(known) < len(stretch):
            kept.append(next(point for point in stretch if point[1] is None))
        if known:
            kept += {
                min(known, key=lambda point: point[1]): None,
                max(known, key=lambda point: point[1]): None,
            }
    return sorted(kept, key=lambda point: point[0])
