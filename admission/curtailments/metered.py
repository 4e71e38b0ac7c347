"""The load of a site by its power meters, as stored.

The meters of the roots of its power tree count where each of them has some, since they see all that
the site draws; else those of its racks, where each of them has some. A site that has neither has no
meters that could prove anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
from django.db import connection

from fleet.snapshot import FleetArrays
from fleet.tables import METER_KINDS, METER_TARGETS

__all__ = ["EVERY_S", "Metered", "read"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Readings are put together in steps of so many seconds.
EVERY_S = 10.0
#: A meter counts with what it read last for so many steps.
_LASTS_STEPS = 3
_POWER = METER_KINDS.index("power")
_ON_DOMAIN, _ON_RACK = METER_TARGETS.index("power_domain"), METER_TARGETS.index("rack")

_STEPS = """
SELECT meter_id, floor((extract(epoch FROM ts) - %(start)s) / %(every)s)::int AS step,
       avg(power_w)
FROM meter_sample
WHERE meter_id = ANY(%(meters)s) AND ts >= %(since)s AND ts < %(until)s AND power_w > 0
GROUP BY 1, 2
"""


@dataclass(frozen=True, eq=False)
class Metered:
    """The load of a site: Unix s at the ends of steps, and W, NaN where some meter was silent."""

    times: Floats
    watts: Floats
    meters: int
    #: "power domains", "racks", or "" where the site has no meters
    of: str


def read(fleet: FleetArrays, site: str, start: float, end: float) -> Metered:
    """Return the load of a site between two moments (Unix s). One query.

    Raises KeyError for a site that the inventory lacks.
    """
    of, meters = _meters(fleet, fleet.sites.index_by_name[site])
    steps = max(int(np.ceil((end - start) / EVERY_S)), 0)
    times: Floats = start + EVERY_S * np.arange(1, steps + 1, dtype=np.float64)
    watts = np.full((len(meters), steps), np.nan)
    if len(meters) and steps:
        place = {int(meter): row for row, meter in enumerate(meters)}
        with connection.cursor() as cursor:
            cursor.execute(
                _STEPS,
                {
                    "meters": meters.tolist(), "start": start, "every": EVERY_S,
                    "since": datetime.fromtimestamp(start, UTC),
                    "until": datetime.fromtimestamp(end, UTC),
                },
            )  # fmt: skip
            for meter, step, mean_w in cursor.fetchall():
                if 0 <= step < steps:
                    watts[place[meter], step] = mean_w
    filled = _carried_on(watts)
    total_w = filled.sum(axis=0) if len(meters) else np.full(steps, np.nan)
    return Metered(times, total_w, len(meters), of)


def _meters(fleet: FleetArrays, site: int) -> tuple[str, Ints]:
    """Return the ids of the meters that see all of a site, and what they are on."""
    meters = fleet.meters
    roots = np.flatnonzero((fleet.domains.parent < 0) & (fleet.domains.site == site))
    racks = np.flatnonzero(fleet.racks.site == site)
    all_of = (("power domains", _ON_DOMAIN, roots), ("racks", _ON_RACK, racks))
    for of, target_kind, wholes in all_of:
        here = (meters.kind == _POWER) & (meters.target_kind == target_kind)
        here &= np.isin(meters.target, wholes)
        if len(wholes) and np.isin(wholes, meters.target[here]).all():
            return of, meters.ids[here]
    return "", meters.ids[:0]


def _carried_on(watts: Floats) -> Floats:
    """Return readings by meter and step, each carried on for a few steps without one."""
    filled = watts.copy()
    for _ in range(_LASTS_STEPS):
        gaps = np.isnan(filled[:, 1:])
        filled[:, 1:][gaps] = filled[:, :-1][gaps]
    return filled
