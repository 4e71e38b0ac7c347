"""What energy costs and emits at sites in the hours ahead, as it is known now. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ahead", "Later"]

Floats = NDArray[np.float64]

_HOUR_S = 3600.0
_DIGITS = 9


@dataclass(frozen=True, eq=False, kw_only=True)
class Ahead:
    """Rates of sites by the hour from ``start`` (Unix s) on; NaN: nobody tells.

    Arrays of sites by hours: ``price`` in ``currency`` per kWh, ``carbon`` in g CO2e per kWh.
    """

    start: float
    sites: tuple[str, ...]
    price: Floats
    carbon: Floats
    currency: str

    def means(self, prefers: str, at: Floats, run_s: float) -> Floats:
        """Return the mean rates of runs of ``run_s`` that begin ``at`` (Unix s), by site.

        ``prefers`` is "price" or "carbon". NaN where an hour of the run is not known, or one before
        it.
        """
        rates = self.carbon if prefers == "carbon" else self.price
        hours = np.arange(rates.shape[1] + 1)
        sums = np.concatenate([np.zeros((len(rates), 1)), np.cumsum(rates, axis=1)], axis=1)
        first = (at - self.start) / _HOUR_S
        last = first + run_s / _HOUR_S
        outside = (first < 0.0) | (last > hours[-1])
        own = [np.interp(last, hours, row) - np.interp(first, hours, row) for row in sums]
        found = np.array(own).reshape(len(rates), -1) / (run_s / _HOUR_S)
        # Sums of equal rates differ in their last digits.
        return np.where(outside, np.nan, np.round(found, _DIGITS))

    def unit(self, prefers: str) -> str:
        """Return the unit of rates."""
        return "g/kWh" if prefers == "carbon" else f"{self.currency}/kWh"


@dataclass(frozen=True, kw_only=True)
class Later:
    """A later hour that a phase prefers to a start now, within what it agreed to wait.

    ``at`` is that hour, ``until`` as long as it waits at most, Unix s. ``kwh`` is what it takes at
    the peak that it reserves, over as long as it is expected to run.
    """

    at: float
    until: float
    site: str
    prefers: str
    now_rate: float
    rate: float
    unit: str
    kwh: float

    @property
    def amounts(self) -> tuple[float, float, str]:
        """What the wait saves, what a start now comes to, and their unit: money, or kg CO2e."""
        if self.prefers == "carbon":
            per_kwh, unit = 1e-3, "kg CO2e"
        else:
            per_kwh, unit = 1.0, self.unit.removesuffix("/kWh")
        now = self.now_rate * self.kwh * per_kwh
        return now - self.rate * self.kwh * per_kwh, now, unit
