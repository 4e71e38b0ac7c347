"""What is usual of gangs, hour by hour, and how far one is from it. Pure.

An hour of a gang is normal where nothing held it back, else degraded, by each cause that did. A
gang keeps step: what slows one of its GPUs slows all, so that a cause is the whole gang's.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from admission.core.account import LEVERS, Cause, GpuSpans, Ints
from admission.core.fleet_account import CAUSES, FleetAccount, Onto

__all__ = [
    "LEAST_HOURS", "NORMAL", "UNITS", "Baseline", "Condition", "Metric", "Outside", "Shift",
    "Spread", "Working", "conditions", "outside", "outsides", "save_s", "shifts", "touched",
]  # fmt: skip

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: The cause of hours in which nothing held a gang back.
NORMAL = ""
#: What is usual is told of so many hours at least: of fewer, one odd hour makes it.
LEAST_HOURS = 8


class Metric(enum.StrEnum):
    """What baselines are kept of."""

    #: of a GPU, while it works
    POWER_W = "power_w"
    #: of a GPU, while it works
    TEMP_C = "temp_c"
    #: of a GPU, while it works: how warm it is above what its cooling zone supplies, over its draw
    C_PER_W = "c_per_w"
    #: of the links that begin in its rack, as readings of them tell
    LINK_LATENCY_S = "link_latency_s"
    #: that a step waits for the gradients of other ranks, as the loop tells
    SYNC_S = "sync_s"
    #: that a save takes at most: evaluation and preparing are in it
    SAVE_S = "save_s"
    #: the bytes of a checkpoint over that: the least
    SAVE_BYTES_PER_S = "save_bytes_per_s"


UNITS: Mapping[Metric, str] = {
    Metric.POWER_W: "W",
    Metric.TEMP_C: "°C",
    Metric.C_PER_W: "°C/W",
    Metric.LINK_LATENCY_S: "s",
    Metric.SYNC_S: "s",
    Metric.SAVE_S: "s",
    Metric.SAVE_BYTES_PER_S: "byte/s",
}


class Condition(enum.StrEnum):
    """What makes an hour a degraded one, besides throttling by each of its causes."""

    #: a cap of ours was in force on it, whether it throttled or not
    CAPPED = "capped"
    PAUSED = "paused"
    #: a restriction that is no cap covered a part of it
    RESTRICTED = "restricted"
    #: an incident about a part of it, or of its place, was open
    INCIDENT = "incident"


# --- What was read -------------------------------------------------------------------------------


class Working:
    """Sums of readings of GPUs that work, by place: a number of a gang in a rack.

    Readings are added as they come, a part of the fleet at a time.
    """

    def __init__(self, places: int) -> None:
        #: readings with power, W; with temperature, °C; with both and a supply: W, and °C above it
        self._sums: Floats = np.zeros((6, places))

    def add(self, place: Ints, power_w: Floats, temp_c: Floats, supply_c: Floats) -> None:
        """Add a reading of a GPU for each place; NaN: not known, place -1: of none."""
        has_power, has_temp = ~np.isnan(power_w), ~np.isnan(temp_c)
        # Warmth over next to no draw says nothing.
        has_both = has_power & has_temp & ~np.isnan(supply_c) & (power_w > 0.0)
        for row, (which, values) in enumerate(
            (
                (has_power, None), (has_power, power_w), (has_temp, None), (has_temp, temp_c),
                (has_both, power_w), (has_both, temp_c - supply_c),
            )
        ):  # fmt: skip
            some = which & (place >= 0)
            weights = None if values is None else values[some].astype(np.float64)
            self._sums[row] += np.bincount(place[some], weights, self._sums.shape[1])

    @property
    def readings(self) -> Floats:
        """How many readings of power each place has."""
        count: Floats = self._sums[0]
        return count

    def means(self) -> dict[Metric, Floats]:
        """Return by place the mean draw, temperature and °C per W; NaN: not known."""
        powered, power_w, warmed, temp_c, drawn_w, above_c = self._sums
        return {
            Metric.POWER_W: _over(power_w, powered),
            Metric.TEMP_C: _over(temp_c, warmed),
            Metric.C_PER_W: _over(above_c, drawn_w),
        }


def _over(values: Floats, by: Floats) -> Floats:
    found: Floats = np.full(values.shape, np.nan)
    np.divide(values, by, out=found, where=by > 0.0)
    return found


#: Causes of the time of which a loop tells and which is not repeated.
_TOLD = [
    CAUSES.index(name)
    for name in LEVERS
    if name not in (Cause.UNKNOWN, Cause.REPEATED, Cause.STARTING, Cause.RESTARTING, Cause.PAUSED)
]
_OUTSIDE = CAUSES.index(Cause.OUTSIDE_STEPS)


def save_s(us: Ints, period_s: Floats) -> Floats:
    """Return what a save takes at most, s, where one begins each ``period_s``; NaN: not known.

    ``period_s · outside steps / told``: loops tell the time outside of steps, of which saves are a
    part; evaluation is in it too. ``us`` has rows by :data:`CAUSES`.
    """
    told, outside_us = us[:, _TOLD].sum(axis=1), us[:, _OUTSIDE]
    share = _over(outside_us.astype(np.float64), told.astype(np.float64))
    found: Floats = np.where((outside_us > 0) & (outside_us < told), share * period_s, np.nan)
    return found


# --- What held gangs back ------------------------------------------------------------------------


def touched(spans: GpuSpans, held: GpuSpans, gang: Ints, gangs: int) -> Bools:
    """Say of each gang whether a span of a part fell into time in which it held that part.

    ``gang`` is that of each of the spans in ``held``.
    """
    on_held = Onto(held.gpu).put(spans)
    place = on_held.gpu
    overlaps = (on_held.start_us < held.end_us[place]) & (on_held.end_us > held.start_us[place])
    found = np.zeros(gangs, dtype=np.bool_)
    found[gang[place[overlaps]]] = True
    return found


def conditions(account: FleetAccount, gangs: int, others: Mapping[str, Bools]) -> list[list[str]]:
    """Return what held each gang back, in words of one token each; none: its hour is normal.

    Throttling counts by its cause, however little of it there was; ``others`` say of each gang
    whether something else did.
    """
    held = account.gang >= 0
    us = np.zeros((gangs, len(CAUSES)), dtype=np.int64)
    np.add.at(us, account.gang[held], account.us[held])
    by_token: dict[str, Bools] = {}
    for place, cause in enumerate(CAUSES):
        token = _token(cause)
        if token:
            by_token[token] = by_token.get(token, False) | (us[:, place] > 0)
    for token, which in others.items():
        by_token[token] = by_token.get(token, False) | which
    found: list[list[str]] = [[] for _ in range(gangs)]
    for token, which in by_token.items():
        for row in np.flatnonzero(which).tolist():
            found[row].append(token)
    return found


def _token(cause: str) -> str:
    """Return what a cause of lost time makes of an hour, "": nothing."""
    if cause.startswith("throttled_"):
        return cause.rpartition("_")[0]
    return cause if cause in (Condition.CAPPED, Condition.PAUSED) else ""


# --- What is usual -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a value over hours: its 10th, 50th and 90th percentile."""

    hours: int
    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is usual of one project's phase at one place, in normal hours or under one cause.

    ``rack`` is empty where the place is a site. ``spreads`` lack what is not known.
    """

    project: str
    phase: str
    site: str
    rack: str
    cause: str
    spreads: Mapping[Metric, Spread]


@dataclass(frozen=True, slots=True)
class Outside:
    """A value beyond what is normal. ``ratio``: it over the usual value; None: that is 0."""

    metric: Metric
    value: float
    normal: Spread

    @property
    def is_above(self) -> bool:
        return self.value > self.normal.p90

    @property
    def ratio(self) -> float | None:
        return self.value / self.normal.p50 if self.normal.p50 else None


def outside(metric: Metric, value: float | None, normal: Spread | None) -> Outside | None:
    """Return a value that lies beyond the 10th or the 90th percentile of what is normal.

    None: it does not, or it is not known, or too few normal hours are.
    """
    if value is None or normal is None or normal.hours < LEAST_HOURS:
        return None
    if normal.p10 <= value <= normal.p90:
        return None
    return Outside(metric, value, normal)


def outsides(
    values: Mapping[Metric, float | None], normals: Iterable[Baseline]
) -> Sequence[Outside]:
    """Return which of ``values`` are beyond the normal baseline of ``normals``, if there is one."""
    normal = next((each.spreads for each in normals if each.cause == NORMAL), {})
    found = (outside(metric, values.get(metric), normal.get(metric)) for metric in Metric)
    return [each for each in found if each is not None]


# --- What a cause does ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shift:
    """How a value differed from normal in hours under a cause: its median over the normal one.

    ``hours`` are those of gangs under the cause.
    """

    ratio: float
    hours: int


def shifts(found: Iterable[Baseline]) -> dict[str, dict[Metric, Shift]]:
    """Return by cause how far values were from normal, like beside like.

    Each phase of a project at a place is held against its own normal hours; of them all the median
    is told, each counted by its hours under the cause. Where fewer than :data:`LEAST_HOURS` normal
    hours are known, or what is usual is 0, a phase says nothing.
    """
    baselines = list(found)
    normals = {_place(each): each.spreads for each in baselines if each.cause == NORMAL}
    ratios: dict[tuple[str, Metric], list[tuple[float, int]]] = defaultdict(list)
    for each in baselines:
        usual = normals.get(_place(each), {}) if each.cause != NORMAL else {}
        for metric, spread in each.spreads.items():
            normal = usual.get(metric)
            if normal is not None and normal.hours >= LEAST_HOURS and normal.p50:
                ratios[each.cause, metric].append((spread.p50 / normal.p50, spread.hours))
    by_cause: dict[str, dict[Metric, Shift]] = defaultdict(dict)
    for (cause, metric), told in ratios.items():
        by_cause[cause][metric] = _median(told)
    return dict(by_cause)


def _place(each: Baseline) -> tuple[str, str, str, str]:
    return each.project, each.phase, each.site, each.rack


def _median(told: Iterable[tuple[float, int]]) -> Shift:
    """Return the ratio up to which half of all hours lie."""
    ratio, hours = np.array(sorted(told)).T
    ran = np.cumsum(hours)
    at = int(np.searchsorted(ran, 0.5 * ran[-1]))
    return Shift(float(ratio[at]), int(ran[-1]))
