"""What an hour is closed by: roll-ups of GPUs, hosts and meters, and who held which GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from admission.core.at_work import at_work, least_at_work_w
from admission.core.energy.amounts import Bools, Read
from admission.core.energy.amounts import read as as_read
from admission.core.energy.closing import Account, close
from admission.core.energy.holders import FIRST_JOB, Buckets, Held, changing, pieces_of
from admission.jobs.models import Attempt
from admission.learned.energy import slice_share
from fleet.snapshot import FleetArrays
from fleet.tables import Floats, Ints
from telemetry import samples
from telemetry.rollups.spec import HOUR_S, HOURS, MINUTE_S, MINUTES
from telemetry.samples import Table
from telemetry.store.columns import Array, Columns, Window
from telemetry.store.reading import read

__all__ = ["Hour", "read_hour"]

_MINUTES = HOUR_S // MINUTE_S


@dataclass(frozen=True, eq=False)
class Hour:
    """The account of an hour, what was read of its GPUs, and its jobs as (project, name).

    The owner FIRST_JOB + i of a piece is job i.
    """

    start: float
    account: Account
    gpus: Read
    jobs: list[tuple[str, str]]


def read_hour(fleet: FleetArrays, start: float, pue: Floats) -> Hour:
    """Close the hour that begins at ``start``, Unix s; ``pue``: by site, as stated.

    One query of attempts, and those of four reads of roll-ups.
    """
    window = Window(start, start + HOUR_S)
    gpu = _Rows.of(samples.GPU, fleet.gpus.ids, window, ("util", "power_w", "job_id"))
    hosts = _Rows.of(samples.HOST, fleet.nodes.ids, window)
    meters = _Rows.of(samples.METER, fleet.meters.ids, window)
    held, jobs = _held(fleet, window)
    least_w = least_at_work_w(fleet.gpus.idle_w, fleet.gpus.rated_w)
    works = at_work(gpu.field("util"), gpu.field("power_w"), least_w) | (gpu.whole("job_id") > 0)
    gpus = gpu.read()
    buckets = _buckets(fleet, changing(held, window.start, window.end, len(fleet.gpus)), window)
    pieces = pieces_of(fleet, gpus, buckets, held, works)
    account = close(fleet, pieces, hosts.read(), meters.read(), HOUR_S, pue)
    return Hour(start, account, gpus, jobs)


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
    """Return the hour of each GPU, of those that are ``divided`` its minutes by their energy."""
    count = len(fleet.gpus)
    parts = np.where(divided, _MINUTES, 1)
    gpu = np.repeat(np.arange(count), parts)
    number = np.arange(len(gpu)) - np.repeat(np.cumsum(parts) - parts, parts)
    length_s = np.repeat(np.where(divided, MINUTE_S, HOUR_S), parts).astype(np.float64)
    start = window.start + number * length_s
    weight = np.ones(len(gpu))
    if divided.any():
        weight[divided[gpu]] = _minutes(fleet, np.flatnonzero(divided), window).ravel()
    return Buckets(gpu=gpu, start=start, end=start + length_s, weight=weight)


def _minutes(fleet: FleetArrays, rows: Ints, window: Window) -> Floats:
    """Return the energy of each minute of GPUs, J; one that was not read has the mean."""
    ids = fleet.gpus.ids[rows]
    found = read(MINUTES[samples.GPU.name], ("used_j",), window, ids.tolist())
    at, known = _rows_of(ids, found[samples.GPU.key])
    minute = ((found["ts"] - window.start_us) // (MINUTE_S * 1_000_000))[known]
    used_j = np.full((len(rows), _MINUTES), np.nan)
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
