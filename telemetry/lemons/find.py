"""Which GPUs stand out of their peers in one window: robust, over arrays, no I/O.

Peers are of one model, at one place (a rack, or where it is too small a cooling zone, or a site)
and in one band of load. For heat, what more power and another place on the node explain is taken
out; for clocks, peers are of one job and under one power limit, since only they have one load.

What is left is divided by its spread: the median absolute deviation of the group, and no less than
that of all groups of the model and than a floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from telemetry.lemons import rules
from telemetry.lemons.rules import RULES, Metric, Rule

Array: TypeAlias = NDArray[Any]

#: What ``Scores.among`` stands for.
AMONG = ("rack", "zone", "site", "job", "node")
_NOBODY = -1


@dataclass(frozen=True, eq=False)
class Window:
    """Means of GPUs over one window, a row each. NaN: not known.

    ``model``, ``node``, ``rack``, ``zone``, ``site`` and ``job`` are any numbers that tell them
    apart; -1: none.
    """

    gpu_id: Array
    model: Array
    index: Array
    node: Array
    rack: Array
    zone: Array
    site: Array
    job: Array
    rated_w: Array
    readings: Array
    power_w: Array
    power_limit_w: Array
    temp_c: Array
    temp_mem_c: Array
    sm_mhz: Array
    util: Array

    def __len__(self) -> int:
        return len(self.gpu_id)

    def take(self, rows: Array) -> Window:
        """Return the given rows."""
        return Window(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of the GPUs that can be compared with their peers, a row each.

    ``peers_median`` is what the peers have, brought to the GPU's power and place on its node.
    """

    gpu_id: Array
    own: Array
    peers_median: Array
    peers: Array
    #: code in :data:`AMONG`
    among: Array
    #: how many spreads it is worse than they; below 0: better
    score: Array
    #: whether the difference is large enough to matter
    matters: Array


def find(window: Window) -> dict[Metric, Scores]:
    """Return the scores of all GPUs at work, by metric."""
    at_work = _at_work(window)
    found = {}
    for metric, rule in RULES.items():
        rows = np.flatnonzero(at_work & ~np.isnan(getattr(window, rule.field)))
        part = window.take(rows)
        group, among = _same_job(part) if metric is Metric.SLOW_CLOCK else _same_place(part)
        found[metric] = _scores(part, rule, group, among)
    return found


def _at_work(window: Window) -> Array:
    usual = np.median(window.readings) if len(window) else 0.0
    told = window.readings >= rules.LEAST_READINGS * usual
    used = np.isnan(window.util) | (window.util >= rules.LEAST_UTIL)
    at_work: Array = told & used & (window.power_w >= rules.LEAST_POWER_SHARE * window.rated_w)
    return at_work


# --- Who is compared with whom -------------------------------------------------------------------


def _same_place(window: Window) -> tuple[Array, Array]:
    """Group by model, band of load, and the smallest place with enough of them."""
    band = np.digitize(window.power_w / window.rated_w, rules.BAND_EDGES)
    load = _groups(window.model, band)
    return _smallest(
        [(_groups(load, window.rack), AMONG.index("rack"), window.rack >= 0),
         (_groups(load, window.zone), AMONG.index("zone"), window.zone >= 0),
         (_groups(load, window.site), AMONG.index("site"), window.site >= 0)]
    )  # fmt: skip


def _same_job(window: Window) -> tuple[Array, Array]:
    """Group by model, power limit and job, in one rack if that has enough.

    Where no job is known, GPUs of one node are taken to work on the same.
    """
    limit = np.nan_to_num(window.power_limit_w / 10.0, nan=-1.0).round().astype(np.int64)
    kind = _groups(window.model, limit)
    on_job = window.job >= 0
    return _smallest(
        [(_groups(kind, window.job, window.rack), AMONG.index("rack"), on_job),
         (_groups(kind, window.job), AMONG.index("job"), on_job),
         (_groups(kind, window.node), AMONG.index("node"), ~on_job)]
    )  # fmt: skip


def _smallest(ways: list[tuple[Array, int, Array]]) -> tuple[Array, Array]:
    """Return each row's group by the first way in which that is large enough; -1: by none.

    Those whom one way leaves over are grouped by the next one.
    """
    count = len(ways[0][0])
    group = np.full(count, _NOBODY)
    among = np.zeros(count, dtype=np.int64)
    offset = 0
    for key, code, applies in ways:
        left = np.flatnonzero((group == _NOBODY) & applies)
        chosen = left[np.bincount(key[left])[key[left]] >= rules.LEAST_GROUP]
        group[chosen] = key[chosen] + offset
        among[chosen] = code
        offset += int(key.max(initial=0)) + 1
    return group, among


def _groups(*keys: Array) -> Array:
    """Return a number for each distinct combination of ``keys``, whole numbers, from 0 on."""
    group = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        lowest = int(key.min(initial=0))
        width = int(key.max(initial=0)) - lowest + 1
        _, group = np.unique(group * width + (key - lowest), return_inverse=True)
    return group


# --- How far each is from its peers --------------------------------------------------------------


def _scores(window: Window, rule: Rule, group: Array, among: Array) -> Scores:
    grouped = np.flatnonzero(group != _NOBODY)
    window, among = window.take(grouped), among[grouped]
    _, group = np.unique(group[grouped], return_inverse=True)
    own = getattr(window, rule.field).astype(np.float64)
    off = own - _median(own, group)
    if rule.sign > 0:
        off = _without_load_and_place(off, window, group)
    size = np.bincount(group, minlength=1)[group] if len(group) else np.zeros(0, np.int64)
    # The median of a few values is itself uncertain.
    spread = _spread(off, group, window.model, rule.floor) * np.sqrt(1.0 + np.pi / (2.0 * size))
    worse = rule.sign * off
    peers_median = own - off
    return Scores(
        gpu_id=window.gpu_id,
        own=own,
        peers_median=peers_median,
        peers=size - 1,
        among=among,
        score=worse / spread,
        matters=worse >= np.maximum(rule.effect, rule.effect_share * np.abs(peers_median)),
    )


def _without_load_and_place(off: Array, window: Window, group: Array) -> Array:
    """Take out of temperatures the share of more power, and that of the place on the node."""
    power_off = window.power_w - _median(window.power_w, group)
    off = off - _c_per_w(off, power_off, window.model) * power_off
    place = _groups(window.model, window.index)
    known = np.bincount(place, minlength=1)[place] >= rules.LEAST_AT_PLACE if len(off) else off > 0
    off = off - np.where(known, _median(off, place), 0.0)
    return off - _median(off, group)


def _c_per_w(off: Array, power_off: Array, model: Array) -> Array:
    """Return for each row the degrees that a watt more gives its model.

    A weighted median of slopes: no lemon moves it.
    """
    slope = np.divide(off, power_off, out=np.zeros(len(off)), where=power_off != 0.0)
    found = np.zeros(len(off))
    for each in np.unique(model):
        here = np.flatnonzero(model == each)
        order = here[np.argsort(slope[here])]
        weight = np.cumsum(np.abs(power_off[order]))
        if weight[-1] > 0.0:
            middle = order[np.searchsorted(weight, 0.5 * weight[-1])]
            found[here] = np.clip(slope[middle], 0.0, rules.MOST_C_PER_W)
    return found


def _spread(off: Array, group: Array, model: Array, floor: float) -> Array:
    own = _median(np.abs(off), group)
    of_model = _median(np.abs(off), _groups(model))
    return np.maximum(floor, rules.MAD_TO_SIGMA * np.maximum(own, of_model))


def _median(values: Array, group: Array) -> Array:
    """Return for each row the median of its group. ``group`` counts from 0 without gaps."""
    if not len(values):
        return values
    order = np.lexsort((values, group))
    firsts = np.flatnonzero(np.append(True, np.diff(group[order]) > 0))
    size = np.diff(np.append(firsts, len(values)))
    in_order = values[order]
    middle: Array = 0.5 * (in_order[firsts + (size - 1) // 2] + in_order[firsts + size // 2])
    return middle[group]
