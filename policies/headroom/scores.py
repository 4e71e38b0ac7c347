"""How far forecasts are off: counts of errors by size, from which percentiles can be read."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from policies.headroom.columns import Bools, Floats, Ints

#: Bins of |error|: below 1 W, then 16 for each factor of ten up to 100 MW, then the rest. So a
#: percentile is known to 15 %.
BINS_PER_DECADE = 16
_EDGES = 10.0 ** (np.arange(8 * BINS_PER_DECADE + 1) / BINS_PER_DECADE)
BINS = len(_EDGES) + 1


@dataclass(frozen=True)
class Errors:
    """Errors of many forecasts: forecast less the load that came, W.

    ``off_sum_w`` sums up absolute errors, ``as_now_sum_w`` what those of "as now" would have been.
    ``shown`` of the forecasts were shown, the others said "as now". ``banded`` came with a band,
    and ``covered`` of these loads fell into it.
    """

    count: int
    error_sum_w: float
    load_sum_w: float
    histogram: Ints
    off_sum_w: float = 0.0
    as_now_sum_w: float = 0.0
    shown: int = 0
    banded: int = 0
    covered: int = 0

    @staticmethod
    def none() -> Errors:
        """Nothing was compared."""
        return Errors(0, 0.0, 0.0, np.zeros(BINS, dtype=np.int64))

    def plus(self, other: Errors) -> Errors:
        """Return the errors of both."""
        names = (each.name for each in fields(self))
        return Errors(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def of_as_now(self) -> float | None:
        """Absolute errors over those of "as now"."""
        return self.off_sum_w / self.as_now_sum_w if self.as_now_sum_w else None

    @property
    def coverage(self) -> float | None:
        """Share of loads that fell into their band."""
        return self.covered / self.banded if self.banded else None

    @property
    def bias_w(self) -> float | None:
        """Mean error; above 0 where forecasts are too high."""
        return self.error_sum_w / self.count if self.count else None

    @property
    def mean_load_w(self) -> float | None:
        """Mean of the loads that came."""
        return self.load_sum_w / self.count if self.count else None

    @property
    def shown_share(self) -> float | None:
        """Share of forecasts that were shown."""
        return self.shown / self.count if self.count else None

    def percentile_w(self, share: float) -> float | None:
        """Return the quantile ``share`` (0 to 1) of the absolute errors, to 15 %."""
        if not self.count:
            return None
        place = int(np.searchsorted(np.cumsum(self.histogram), share * self.count))
        return float(_EDGES[min(place, len(_EDGES) - 1)])


def errors_of(
    forecast_w: Floats,
    came_w: Floats,
    *,
    as_now_w: Floats,
    band_w: tuple[Floats, Floats],
    banded: Bools,
    shown: Bools,
) -> Errors:
    """Compare forecasts and their bands with the loads that came, wherever both are known."""
    off_w = forecast_w - came_w
    known = ~np.isnan(off_w)
    places = np.searchsorted(_EDGES, np.abs(off_w[known]))
    low_w, high_w = band_w
    return Errors(
        count=int(known.sum()),
        error_sum_w=float(off_w[known].sum()),
        load_sum_w=float(came_w[known].sum()),
        histogram=np.bincount(places, minlength=BINS),
        off_sum_w=float(np.abs(off_w[known]).sum()),
        as_now_sum_w=float(np.abs(as_now_w - came_w)[known].sum()),
        shown=int((shown & known).sum()),
        banded=int((banded & known).sum()),
        covered=int((banded & known & (came_w >= low_w) & (came_w <= high_w)).sum()),
    )
