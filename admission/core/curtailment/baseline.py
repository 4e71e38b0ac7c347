"""The baseline: what a site would draw if nobody had asked, from what it drew before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_S", "LONGEST_S", "SETTLES_S", "WINDOW_S", "Baseline", "baseline_of"]

Floats = npt.NDArray[np.float64]

#: The baseline is the mean over so much time, s, outside of other curtailments …
WINDOW_S = 600.0
#: … of at least so much of it …
LEAST_S = 60.0
#: … and it is looked for so far back.
LONGEST_S = 3600.0
#: Loads have come back so long after the end of a curtailment, s.
SETTLES_S = 60.0


@dataclass(frozen=True)
class Baseline:
    """The mean load before a curtailment, W, with its standard deviation, over ``seconds``."""

    watts: float
    spread_w: float
    seconds: float


def baseline_of(
    times: Floats,
    watts: Floats,
    *,
    until: float,
    every_s: float,
    without: Sequence[tuple[float, float]] = (),
) -> Baseline | None:
    """Return the baseline at ``until`` from samples, each of which stands for ``every_s`` seconds.

    ``times`` are in s, rising; ``watts`` are loads, NaN where none was read. ``without``: spans
    that do not count, since something was asked then. The last :data:`WINDOW_S` seconds that count
    are taken, none of them older than :data:`LONGEST_S`. None: there are less than
    :data:`LEAST_S`.
    """
    counts = (times <= until) & (times > until - LONGEST_S) & np.isfinite(watts)
    for begin, end in without:
        counts &= ~((times >= begin) & (times < end))
    rows = np.flatnonzero(counts)[-max(round(WINDOW_S / every_s), 1) :]
    seconds = len(rows) * every_s
    if seconds < LEAST_S:
        return None
    return Baseline(float(watts[rows].mean()), float(watts[rows].std()), seconds)
