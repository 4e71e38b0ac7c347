"""What an hour is closed by: roll-ups of GPUs, hosts and meters, and who held which GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from admission.core.at_work import at_work, least_at_work_w
from admission.core.energy.amounts import MS_PER_S, Bools, Read, apportion, within
from admission.core.energy.amounts import read as as_read
from admission.core.energy.closing import Account, close
from admission.core.energy.holders import (
    FIRST_JOB,
    IDLE,
    Buckets,
    Held,
    Pieces,
    changing,
    pieces_of,
)
from admission.core.energy.peaks import BIN_S, BINS
from admission.jobs.models import Attempt
from admission.learned.energy import slice_share
from fleet.snapshot import FleetArrays
from fleet.tables import Floats, Ints
from telemetry import samples
from telemetry.rollups.spec import HOUR_S, HOURS, MINUTE_S, MINUTES
from telemetry.samples import Table
from telemetry.store.columns import US, Array, Columns, Window
from telemetry.store.hot import IdRange
from telemetry.store.reading import read

__all__ = ["Hour", "Interval", "by_five_minutes", "read_hour", "read_interval"]

#: Ids of things whose minutes are looked at together: an hour of them is some 10 MB.
_IDS_AT_ONCE = 8_192


@dataclass(frozen=True, eq=False)
class Hour:
    """The account of an hour, what was read in it by row, and its jobs as (project, name).

    The owner FIRST_JOB + i of a piece is job i. ``works`` says of GPUs whether readings show work.
    """

    start: float
    account: Account
    gpus: Read
    hosts: Read
    meters: Read
    works: Bools
    jobs: list[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Interval:
    """The account of a part of an hour, and its jobs as those of :class:`Hour`."""

    account: Account
    jobs: list[tuple[str, str]]


def read_hour(fleet: FleetArrays, start: float, pue: Floats) -> Hour:
    """Close the hour that begins at ``start``, Unix s; ``pue``: by site, as stated.

    One query of attempts, and those of four reads of roll-ups.
    """
    window = Window(start, start + HOUR_S)
    gpu = _Rows.of(samples.GPU, fleet.gpus.ids, window, ("util", "power_w", "job_id"))
    hosts = _Rows.of(samples.HOST, fleet.nodes.ids, window).read()
    meters = _Rows.of(samples.METER, fleet.meters.ids, window).read()
    held, jobs = _held(fleet, window)
    least_w = least_at_work_w(fleet.gpus.idle_w, fleet.gpus.rated_w)
    works = at_work(gpu.field("util"), gpu.field("power_w"), least_w) | (gpu.whole("job_id") > 0)
    gpus = gpu.read()
    buckets = _buckets(fleet, changing(held, window.start, window.end, len(fleet.gpus)), window)
    pieces = pieces_of(fleet, gpus, buckets, held, works)
    account = close(fleet, pieces, hosts, meters, HOUR_S, pue)
    return Hour(start, account, gpus, hosts, meters, works, jobs)


def read_interval(fleet: FleetArrays, hour: Hour, window: Window, pue: Floats) -> Interval:
    """Close a part of an hour, whole minutes, as the hour itself is. Four queries at least."""
    length_s = window.end - window.start
    gpus, hosts, meters = (each[0] for each in _parts(fleet, hour, window, int(length_s)))
    held, jobs = _held(fleet, window)
    buckets = _buckets(fleet, changing(held, window.start, window.end, len(fleet.gpus)), window)
    pieces = pieces_of(fleet, gpus, buckets, held, hour.works)
    return Interval(close(fleet, pieces, hosts, meters, length_s, pue), jobs)


def by_five_minutes(fleet: FleetArrays, hour: Hour, pue: Floats) -> Ints:
    """Return what each site drew in each five minutes of an hour, mJ: they add up to the hour.

    A row for each site; all zero where no minutes are there. Three queries at least.
    """
    window = Window(hour.start, hour.start + HOUR_S)
    gpu = np.arange(len(fleet.gpus))
    same = {"gpu": gpu, "owner": np.full(len(gpu), IDLE), "ms": np.full(len(gpu), BIN_S * MS_PER_S)}
    found = np.zeros((len(fleet.sites), BINS), dtype=np.int64)
    parts = zip(*_parts(fleet, hour, window, BIN_S), strict=True)
    for place, (gpus, hosts, meters) in enumerate(parts):
        pieces = Pieces(mj=gpus.mj, **same)
        found[:, place] = close(fleet, pieces, hosts, meters, BIN_S, pue).sites.total
    weights = np.maximum(found, 0).astype(np.float64)
    is_read = weights.any(axis=1)
    totals = np.where(is_read, hour.account.sites.total, 0)
    site = np.repeat(np.arange(len(fleet.sites)), BINS)
    return apportion(totals, weights.ravel(), site).reshape(found.shape)


def _parts(
    fleet: FleetArrays, hour: Hour, window: Window, part_s: int
) -> tuple[list[Read], list[Read], list[Read]]:
    """Return what was read of GPUs, hosts and meters in each part of ``part_s`` s of a window."""
    gpus, hosts, meters = (
        [
            within(whole, HOUR_S, used_j, covered_s, part_s)
            for used_j, covered_s in zip(*_binned(table, ids, window, part_s), strict=True)
        ]
        for table, ids, whole in (
            (samples.GPU, fleet.gpus.ids, hour.gpus),
            (samples.HOST, fleet.nodes.ids, hour.hosts),
            (samples.METER, fleet.meters.ids, hour.meters),
        )
    )
    return gpus, hosts, meters


def _binned(table: Table, ids: Ints, window: Window, bin_s: int) -> tuple[Floats, Floats]:
    """Return the energy, J, and the time read, s, of things by bin and by row of ``ids``."""
    bins = round((window.end - window.start) / bin_s)
    found = np.zeros((2, bins * len(ids)))
    for first in range(int(ids.min(initial=0)), int(ids.max(initial=-1)) + 1, _IDS_AT_ONCE):
        some = IdRange(first, first + _IDS_AT_ONCE)
        minutes = read(MINUTES[table.name], ("used_j", "covered_s"), window, some)
        at, known = _rows_of(ids, minutes[table.key])
        known &= ~np.isnan(minutes["used_j"])
        number = (minutes["ts"] - window.start_us) // (bin_s * US)
        key = (number * len(ids) + at)[known]
        for sums, name in zip(found, ("used_j", "covered_s"), strict=True):
            sums += np.bincount(key, weights=minutes[name][known], minlength=sums.size)
    used_j, covered_s = found.reshape(2, bins, len(ids))
    return used_j, covered_s


# --- Roll-ups ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rows:
    """The roll-ups of one hour, and the row in the inventory that each is of."""

    columns: Columns
    at: Ints
    count: int

    @staticmethod
    def of(table: Table, ids: Ints, window: Window, names: tuple[str, ...] = ()) -> _Rows:
        found = read(HOURS[table.name], ("used_j", "covered_s", *names), window)
        at, known = _rows_of(ids, found[table.key])
        return _Rows({name: values[known] for name, values in found.items()}, at[known], len(ids))

    def field(self, name: str) -> Floats:
        """Return a field by row, NaN where nothing was read."""
        values = np.full(self.count, np.nan)
        values[self.at] = self.columns[name]
        return values

    def whole(self, name: str) -> Ints:
        """Return a whole field by row, 0 where nothing was read."""
        values = np.zeros(self.count, dtype=np.int64)
        values[self.at] = self.columns[name]
        return values

    def read(self) -> Read:
        covered_s = np.nan_to_num(self.field("covered_s"))
        return as_read(self.field("used_j"), covered_s, HOUR_S)


def _rows_of(ids: Ints, wanted: Array) -> tuple[Ints, Bools]:
    """Return the place of each id of ``wanted`` in ``ids``, and whether it is there."""
    if not len(ids):
        return np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted), dtype=bool)
    order = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    at = order[place]
    return at, np.asarray(ids[at] == wanted)


def _buckets(fleet: FleetArrays, divided: Bools, window: Window) -> Buckets:
    """Return the window of each GPU, of those that are ``divided`` its minutes by their energy."""
    count, span_s = len(fleet.gpus), window.end - window.start
    parts = np.where(divided, _minutes_in(window), 1)
    gpu = np.repeat(np.arange(count), parts)
    number = np.arange(len(gpu)) - np.repeat(np.cumsum(parts) - parts, parts)
    length_s = np.repeat(np.where(divided, MINUTE_S, span_s), parts).astype(np.float64)
    start = window.start + number * length_s
    weight = np.ones(len(gpu))
    if divided.any():
        weight[divided[gpu]] = _minutes(fleet, np.flatnonzero(divided), window).ravel()
    return Buckets(gpu=gpu, start=start, end=start + length_s, weight=weight)


def _minutes_in(window: Window) -> int:
    return round((window.end - window.start) / MINUTE_S)


def _minutes(fleet: FleetArrays, rows: Ints, window: Window) -> Floats:
    """Return the energy of each minute of GPUs, J; one that was not read has the mean."""
    ids = fleet.gpus.ids[rows]
    found = read(MINUTES[samples.GPU.name], ("used_j",), window, ids.tolist())
    at, known = _rows_of(ids, found[samples.GPU.key])
    minute = ((found["ts"] - window.start_us) // (MINUTE_S * US))[known]
    used_j = np.full((len(rows), _minutes_in(window)), np.nan)
    used_j[at[known], minute] = found["used_j"][known]
    was_read = ~np.isnan(used_j)
    total_j = np.where(was_read, used_j, 0.0).sum(axis=1)
    mean_j = np.divide(total_j, was_read.sum(axis=1), out=np.ones(len(rows)), where=total_j > 0)
    return np.where(was_read, used_j, mean_j[:, None])


# --- Who held them -------------------------------------------------------------------------------


def _held(fleet: FleetArrays, window: Window) -> tuple[Held, list[tuple[str, str]]]:
    """Return the spans in which jobs held GPUs within a window, and the jobs. One query."""
    attempts = Attempt.objects.overlapping(window.start_at, window.end_at)
    rows = attempts.order_by("pk").values_list(
        "phase__job__project__name", "phase__job__name", "placement", "dispatched_at", "ended_at"
    )
    numbers: dict[tuple[str, str], int] = {}
    spans: list[tuple[int, int, float, float, float]] = []
    for project, name, placement, begun, ended in rows:
        owner = FIRST_JOB + numbers.setdefault((project, name), len(numbers))
        end = window.end if ended is None else ended.timestamp()
        for row, share in _gpus(fleet, placement):
            spans.append((row, owner, begun.timestamp(), end, share))
    table = np.array(spans, dtype=np.float64).reshape(-1, 5).T
    gpu, owners = table[0].astype(np.int64), table[1].astype(np.int64)
    held = Held(gpu=gpu, owner=owners, start=table[2], end=table[3], share=table[4])
    return held, list(numbers)


def _gpus(fleet: FleetArrays, placement: dict[str, object]) -> list[tuple[int, float]]:
    """Return the rows of the GPUs of a placement, and how much of each it is."""
    rows, found = fleet.gpu_index_by_node, []
    slices = placement.get("slices") or {}
    for node, gpus in placement.get("gpus", {}).items():  # type: ignore[attr-defined]
        mine = slices.get(node)  # type: ignore[attr-defined]
        for place, index in enumerate(gpus):
            row = rows.get((node, index))
            if row is not None:
                share = slice_share(fleet, row, mine[place]) if mine else 1.0
                found.append((row, share))
    return found
