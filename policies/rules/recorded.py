"""Headroom from a recording: the past of each moment, and fields that are not recorded. Pure.

Headroom itself is that of ``policies.headroom``, evaluated for many moments at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fleet.tables import FleetArrays
from policies.headroom.columns import HORIZONS, Floats
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Past
from policies.headroom.past import (
    LINK_SLOTS,
    LINKS_EVERY_S,
    LOAD_SLOTS,
    LOAD_TABLES,
    LOADS_EVERY_S,
    Slots,
    Window,
    link_trends,
    links_of,
    load_trends,
    loads_of,
)
from policies.scopes import ScopeKind

#: With longer steps no trend of some minutes can be told, s.
MOST_TREND_STEP_S = 60.0

#: Of this nothing is kept over time.
_NEVER_RECORDED = frozenset(
    {
        "lemon_gpus",
        "xid_recent",
        "checkpoint_lag_s",
        "checkpoint_lag_steps",
        "checkpoint_lag_bytes",
        "checkpoint_bare_jobs",
        "power_reserved_w",
        "link_reserved_bits_per_s",
        "storage_load_bytes_per_s",
        "storage_headroom_bytes_per_s",
        "storage_use",
    }
)
#: Nobody has kept which claims stood.
_CLAIMS = {
    f"{load}_over_{part}" for load in ("power", "cooling") for part in ("from_s", "upto_s", "sure")
}
_FORECASTS = {f"{load}_{ahead}_w" for load in ("power_load", "cooling_load") for ahead in HORIZONS}
_EXHAUSTED = {"power_exhausted_in_s", "cooling_exhausted_in_s", "link_exhausted_in_s"}
_SLOPES = {"power_slope_w_per_s", "cooling_slope_w_per_s", "link_slope_bits_per_s2"}
_TRENDS = frozenset(_FORECASTS | _EXHAUSTED | _SLOPES)
#: In these counts live what jobs have reserved.
_WITH_RESERVATIONS = frozenset(
    {
        *_FORECASTS,
        *_EXHAUSTED,
        "power_load_w",
        "power_headroom_w",
        "power_use",
        "power_confidence",
        "failover_load_w",
        "failover_headroom_w",
        "cooling_load_w",
        "cooling_headroom_w",
        "cooling_use",
        "link_headroom_bits_per_s",
        "link_bulk_headroom_bits_per_s",
        "link_use",
        "binding",
        "tightest",
    }
)


def not_recorded(fields: frozenset[str], step_s: float) -> list[str]:
    """Return which of ``fields`` a replay in steps of ``step_s`` cannot tell: they are unknown."""
    unknown = _NEVER_RECORDED | _CLAIMS | (_TRENDS if step_s > MOST_TREND_STEP_S else frozenset())
    return sorted(fields & unknown)


def without_reservations(fields: frozenset[str]) -> list[str]:
    """Return which of ``fields`` lack the reservations of jobs: none of these are kept."""
    return sorted(fields & _WITH_RESERVATIONS)


@dataclass
class PastOverTime:
    """The past of each moment of a recording, from one piece of it to the next.

    ``lasting`` is what stays the same throughout, such as fits.
    """

    fleet: FleetArrays
    lasting: Past
    _loads: _Trend = field(init=False)
    _links: _Trend = field(init=False)

    def __post_init__(self) -> None:
        series = sum(len(getattr(self.fleet, name)) for name in LOAD_TABLES)
        of_loads = partial(load_trends, self.fleet)
        self._loads = _Trend(Window(LOADS_EVERY_S, LOAD_SLOTS), of_loads, series)
        links = len(self.fleet.links)
        self._links = _Trend(Window(LINKS_EVERY_S, LINK_SLOTS), link_trends, links)

    def take(self, headroom: Headroom, times: Floats, *, loads: bool, links: bool) -> Past:
        """Return the past of each of ``times`` (Unix s), at which ``headroom`` was so.

        Without ``loads`` or ``links`` their trends are unknown.
        """
        past = self.lasting
        if loads:
            slopes, still_s = self._loads.take(times, loads_of(headroom))
            of_kinds = {kind: np.stack([each[kind] for each in slopes]) for kind in slopes[0]}
            past = replace(past, slopes=of_kinds, gpu_still_s=np.stack(still_s))
        if links:
            slope, used = self._links.take(times, links_of(headroom))
            slopes_by_kind = {**past.slopes, ScopeKind.LINK: np.stack(slope)}
            past = replace(past, slopes=slopes_by_kind, link_bits_per_s=np.stack(used))
        return past


class _Trend:
    """The trend of some series, as it was known at each moment."""

    def __init__(self, window: Window, of: Callable[[Floats, Slots], Any], series: int) -> None:
        self._window = window
        self._of = of
        self._known = of(np.zeros(0), np.zeros((0, series), np.float32))

    def take(self, times: Floats, slots: Slots) -> Iterator[tuple[Any, ...]]:
        """Return the parts of the trend known at each of ``times``: that of the slots before it."""
        known = []
        for now, slot in zip(times.tolist(), slots, strict=True):
            known.append(self._known)
            if self._window.is_due(now):
                self._window.note(now, slot)
                self._known = self._of(*self._window.stacked())
        return zip(*known, strict=True)
