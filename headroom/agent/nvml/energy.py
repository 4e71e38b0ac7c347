"""Mean power: from a counter of energy, and from power readings."""

from __future__ import annotations

from collections import deque

__all__ = ["EnergyLog", "PowerLog"]

#: Over less than this the steps of the counter show: drivers move it each 10 to 100 ms.
_SHORTEST_S = 0.5
#: How far back a mean may be asked for.
_KEPT_S = 30.0
#: Counters of 32 bits start anew here; at 700 W after an hour and 42 minutes.
_WRAP_MJ = 2**32


class EnergyLog:
    """The last half minute of one GPU's energy counter.

    ``most_w`` is more than the GPU can draw: a difference above it is a glitch of the counter.
    """

    def __init__(self, most_w: float) -> None:
        self._most_w = most_w
        self._points: deque[tuple[float, float]] = deque()
        self._last_mj = 0
        self._wrapped_mj = 0

    def add(self, at_s: float, counted_mj: int) -> float | None:
        """Add one reading; return the mean power since the one before it, W.

        None where the counter cannot tell: the first reading, after a reset, while it stands still.
        """
        if self._points and counted_mj < self._last_mj:
            self._fall(at_s, counted_mj)
        self._last_mj = counted_mj
        self._points.append((at_s, (self._wrapped_mj + counted_mj) / 1e3))
        while self._points[0][0] < at_s - _KEPT_S:
            self._points.popleft()
        for before in reversed(self._points):
            if at_s - before[0] >= _SHORTEST_S:
                return self._mean_w(before)
        return None

    def mean_w(self, since_s: float) -> float | None:
        """Return the mean power from ``since_s`` to the last reading, W; None where unknown."""
        for before in self._points:
            if before[0] >= since_s:
                return self._mean_w(before)
        return None

    def _fall(self, at_s: float, counted_mj: int) -> None:
        """Go on after a counter that fell: it came to its end, or it was reset."""
        span_s = at_s - self._points[-1][0]
        grown_j = (counted_mj + _WRAP_MJ - self._last_mj) / 1e3
        if self._is_sane(grown_j, span_s):
            self._wrapped_mj += _WRAP_MJ
        else:
            self._points.clear()
            self._wrapped_mj = 0

    def _mean_w(self, before: tuple[float, float]) -> float | None:
        at_s, joules = self._points[-1]
        span_s, grown_j = at_s - before[0], joules - before[1]
        return grown_j / span_s if self._is_sane(grown_j, span_s) else None

    def _is_sane(self, grown_j: float, span_s: float) -> bool:
        return span_s >= _SHORTEST_S and 0 < grown_j <= self._most_w * span_s


class PowerLog:
    """The last half minute of one GPU's own readings of power."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque()

    def add(self, at_s: float, watts: float) -> None:
        """Add one reading."""
        self._readings.append((at_s, watts))
        while self._readings[0][0] < at_s - _KEPT_S:
            self._readings.popleft()

    def mean_w(self, since_s: float) -> float | None:
        """Return the mean of the readings after ``since_s``, W; None where there is none."""
        found = [watts for at_s, watts in self._readings if at_s > since_s]
        return sum(found) / len(found) if found else None
