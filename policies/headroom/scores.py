"""How far forecasts are off: counts of errors by size, from which percentiles can be read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.headroom.columns import Floats, Ints

#: Bins of |error|: below 1 W, then 16 for each factor of ten up to 100 MW, then the rest. So a
#: percentile is known to 15 %.
BINS_PER_DECADE = 16
_EDGES = 10.0 ** (np.arange(8 * BINS_PER_DECADE + 1) / BINS_PER_DECADE)
BINS = len(_EDGES) + 1


@dataclass(frozen=True)
class Errors:
    """Errors of many forecasts: forecast less the load that came, W."""

    count: int
    error_sum_w: float
    load_sum_w: float
    histogram: Ints

    @property
    def bias_w(self) -> float | None:
        """Mean error; above 0 where forecasts are too high."""
        return self.error_sum_w / self.count if self.count else None

    @property
    def mean_load_w(self) -> float | None:
        """Mean of the loads that came."""
        return self.load_sum_w / self.count if self.count else None

    def percentile_w(self, share: float) -> float | None:
        """Return the quantile ``share`` (0 to 1) of the absolute errors, to 15 %."""
        if not self.count:
            return None
        place = int(np.searchsorted(np.cumsum(self.histogram), share * self.count))
        return float(_EDGES[min(place, len(_EDGES) - 1)])


def errors_of(forecast_w: Floats, came_w: Floats) -> Errors:
    """Compare forecasts with the loads that came, wherever both are known."""
    off_w = forecast_w - came_w
    known = ~np.isnan(off_w)
    places = np.searchsorted(_EDGES, np.abs(off_w[known]))
    return Errors(
        count=int(known.sum()),
        error_sum_w=float(off_w[known].sum()),
        load_sum_w=float(came_w[known].sum()),
        histogram=np.bincount(places, minlength=BINS),
    )
