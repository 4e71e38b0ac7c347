"""From the tiers to arrays: rows of some things over a span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from django.db import connection
from psycopg import Cursor

from telemetry import tiers
from telemetry.rollups import progress
from telemetry.rollups.compute import first_known, integrate, is_failed
from telemetry.rollups.spec import HOUR_S, HOURS, MAX_GAP_S, MINUTE_S, MINUTES, ROLLUPS
from telemetry.samples import Array, Table
from telemetry.store.columns import (
    US,
    Columns,
    SupersedingTable,
    Window,
    is_null,
    null_of,
    order_by,
    take,
)
from telemetry.store.columns import concatenate as concatenate_columns
from telemetry.store.reading import read
from telemetry.timeline import bins
from telemetry.timeline.fields import COVERED, READINGS, SUMS, SUSPECT, USED
from telemetry.timeline.points import Field, Points, concatenate
from telemetry.timeline.tiers import Known, Part, Tier, parts

_CADENCE_ROWS = 50


@dataclass(frozen=True)
class Found:
    """Rows of several things, in order of thing and, within a part of the span, of time."""

    ids: Array
    points: Points
    #: The tiers that answered, the oldest part of the span first.
    parts: list[Part]

    @cached_property
    def stood_s(self) -> Array:
        """Return for how long each row stands, s."""
        return self.points.stood_s(self.ids)


def known(table: Table, now: float) -> Known:
    """Return the span that each tier covers of ``table``. One query."""
    with connection.cursor() as django_cursor:
        cursor: Cursor[Any] = django_cursor.cursor
        done = progress.done(cursor, table.name) if table.name in ROLLUPS else {}
    _, raw = tiers.raw_kept()
    _, minutes = tiers.rollup_kept(MINUTE_S)
    return Known(
        minutes_until=done.get(MINUTE_S, 0.0),
        hours_until=done.get(HOUR_S, 0.0),
        raw_from=now - raw.total_seconds(),
        minutes_from=now - minutes.total_seconds(),
    )


def fetch(
    table: Table,
    ids: Sequence[int],
    names: Sequence[str],
    window: Window,
    tier: Tier,
    now: float,
    *,
    stats: Sequence[str] = (),
    job: int | None = None,
    bin_s: int = 0,
    exact: bool = False,
) -> Found:
    """Return ``names`` of ``ids`` over ``window``; with ``job``, only while they carried it.

    Roll-ups may be put together in buckets of ``bin_s`` where that changes no mean over these.
    Of roll-ups, ``stats`` are given too: ``min``, ``max``, ``p95``. What is summed up is that of
    the window to the second, where there are readings at both ends; with ``exact``, so is the rest.
    """
    exact = exact or bool(SUMS.intersection(names))
    divided = parts(tier, window.start, window.end, known(table, now), exact=exact)
    pieces = [
        (bin_s and part.tier.width_s and _binned(table, ids, names, part, bin_s))
        or _part(table, ids, names, part, window, stats, job)
        for part in divided
    ]
    whole = concatenate([points for _, points in pieces], names)
    return Found(np.concatenate([found for found, _ in pieces]), whole, divided)


def _part(
    table: Table,
    ids: Sequence[int],
    names: Sequence[str],
    part: Part,
    window: Window,
    stats: Sequence[str],
    job: int | None,
) -> tuple[Array, Points]:
    if part.tier is Tier.RAW:
        rows = _readings(table, ids, names, part, window, job)
    else:
        rows = _rolled(table, ids, names, part, stats, job)
    if job is not None:
        rows = take(rows, rows["job_id"] == job)
    cadence_s = _cadence_s(rows[table.key], rows["ts"] / US)
    # Roll-ups are as far apart as they are wide, unless readings are further.
    cadence_s = cadence_s if cadence_s > part.tier.width_s else 0.0
    return rows[table.key], _points(table, rows, names, part.tier, part.tier.width_s, cadence_s)


def _points(
    table: Table, rows: Columns, names: Sequence[str], tier: Tier, width_s: float, cadence_s: float
) -> Points:
    t = rows["ts"] / US
    power = ROLLUPS[table.name].power if table.name in ROLLUPS else ()
    fields = {name: _field(rows, name, tier, is_power=name in power) for name in names}
    return Points(t, np.full(len(t), float(width_s)), np.full(len(t), cadence_s), fields)


def _binned(
    table: Table, ids: Sequence[int], names: Sequence[str], part: Part, bin_s: int
) -> tuple[Array, Points] | None:
    """Return roll-ups in buckets of ``bin_s`` where nothing is missing, as they are elsewhere."""
    rolled, width_s = _rollups(table, part.tier), part.tier.width_s
    there = {column.name for column in rolled.columns}
    wanted = [READINGS, *(name for name in names if name in there)]
    window = Window(part.start // width_s * width_s, part.end)
    found = bins.read(rolled, wanted, window, ids, width_s=width_s, step_s=bin_s)
    if found is None:
        return None
    pieces = [(found.columns, bin_s)]
    for left in found.left:
        between = Part(part.tier, left.start, left.end)
        rows = _rolled(table, ids, names, between, stats=(), job=None)
        pieces.append((found.outside(rows), width_s))
    key = np.concatenate([rows[table.key] for rows, _ in pieces])
    whole = concatenate(
        [_points(table, rows, names, part.tier, width, 0.0) for rows, width in pieces], names
    )
    order = np.lexsort((whole.t, key))
    return key[order], whole.at(order)


def _readings(
    table: Table,
    ids: Sequence[int],
    names: Sequence[str],
    part: Part,
    window: Window,
    job: int | None,
) -> Columns:
    """Return readings, each with the sums over the time that ends at it."""
    columns = {column.name for column in table.columns}
    wanted = [name for name in names if name in columns] + (["job_id"] if job else [])
    sums = [name for name in names if name in SUMS]
    span = Window(part.start, part.end)
    if not sums:
        return read(table, wanted, span, ids)
    rollup = ROLLUPS[table.name]
    around = Window(part.start - MAX_GAP_S, part.end + MAX_GAP_S)
    rows = read(table, (*wanted, *rollup.edge_inputs), around, ids)
    pieces = integrate(rollup, rows)
    pieces[READINGS] = np.ones(len(rows["ts"]))
    if rollup.power:
        pieces[SUSPECT] = is_failed(first_known(rows, rollup.power)).astype("f8")
    begun = _begun(rows, table.key, pieces)
    rows = {**rows, **{name: pieces[name] for name in sums}}
    is_first = part.start == window.start
    if is_first:
        _cut_first(rows, begun, sums, span)
    inside = take(rows, (rows["ts"] >= span.start_us) & (rows["ts"] < span.end_us))
    if part.end != window.end:
        return inside
    rest = _rest(rows, begun, table.key, sums, span, is_first=is_first)
    return order_by(concatenate_columns([inside, rest]), table.key)


def _begun(rows: Columns, key: str, pieces: Columns) -> tuple[Array, Array]:
    """Return when what ends at each row began, µs: pieces of energy, and all others.

    NaN where there is none.
    """
    ts, ids = rows["ts"], rows[key]
    before = np.where(ids[1:] == ids[:-1], ts[:-1].astype("f8"), np.nan)
    others = np.append(np.nan, before)[: len(ts)]
    return (ts - pieces[COVERED] * US if COVERED in pieces else others), others


def _start_of(name: str, begun: tuple[Array, Array]) -> Array:
    return begun[0] if name in (USED, COVERED) else begun[1]


def _cut_first(
    rows: Columns, begun: tuple[Array, Array], sums: Sequence[str], span: Window
) -> None:
    """Scale the pieces across the start of ``span`` to the part inside, in proportion to time."""
    ends = rows["ts"]
    for name in set(sums) - {READINGS, SUSPECT}:
        start = _start_of(name, begun)
        across = (start < span.start_us) & (ends >= span.start_us) & (ends < span.end_us)
        rows[name][across] *= (ends[across] - span.start_us) / (ends[across] - start[across])


def _rest(
    rows: Columns,
    begun: tuple[Array, Array],
    key: str,
    sums: Sequence[str],
    span: Window,
    *,
    is_first: bool,
) -> Columns:
    """Return a row at the end of ``span`` for each row with pieces across it, of the part inside.

    ``is_first``: nobody else counts what they have before ``span``, nor is it wanted.
    """
    ends = rows["ts"]
    is_across = [(ends >= span.end_us) & (start < span.end_us) for start in begun]
    across = np.flatnonzero(is_across[0] | is_across[1])
    rest = take(rows, across)
    for name, values in rest.items():
        if name in (READINGS, SUSPECT):
            values[:] = 0
        elif name in sums:
            start, length = _start_of(name, begun)[across], np.full(len(across), np.nan)
            begins = start < span.end_us
            length[begins] = ends[across][begins] - start[begins]
            inside = span.end_us - (np.maximum(start, span.start_us) if is_first else start)
            values *= inside / length
        elif name not in (key, "ts", "job_id"):
            values[:] = null_of(values.dtype)
    rest["ts"] = np.full(len(across), span.end_us - 1)
    return rest


def _rolled(
    table: Table,
    ids: Sequence[int],
    names: Sequence[str],
    part: Part,
    stats: Sequence[str],
    job: int | None,
) -> Columns:
    """Return roll-ups, with those columns of each field that they have."""
    width_s = part.tier.width_s
    rolled = _rollups(table, part.tier)
    there = {column.name for column in rolled.columns}
    suffixes = ("", "_n", *(f"_{stat}" for stat in stats))
    wanted = [f"{name}{suffix}" for name in names for suffix in suffixes]
    wanted = [READINGS, *filter(there.__contains__, wanted), *(["job_id"] if job else [])]
    window = Window(part.start // width_s * width_s, part.end)
    return read(rolled, wanted, window, ids)


def _rollups(table: Table, tier: Tier) -> SupersedingTable:
    return (MINUTES if tier is Tier.MINUTE else HOURS)[table.name]


def _field(rows: Columns, name: str, tier: Tier, *, is_power: bool) -> Field:
    """Return one field of the rows. A reading of power that failed is its value, and no more."""
    nothing = np.full(len(rows["ts"]), np.nan)
    value = as_float(rows[name]) if name in rows else nothing
    if tier is Tier.RAW:
        told = np.where(is_failed(value), np.nan, value) if is_power else value
        return Field(value, told, told, told, (~np.isnan(told)).astype("f8"))
    least, greatest, p95 = (
        as_float(rows[f"{name}_{stat}"]) if f"{name}_{stat}" in rows else other
        for stat, other in (("min", value), ("max", value), ("p95", nothing))
    )
    readings = rows[READINGS].astype("f8")
    if f"{name}_n" not in rows:
        return Field(value, least, greatest, p95, readings)
    count = as_float(rows[f"{name}_n"])
    return Field(value, least, greatest, p95, np.where(np.isnan(count), readings, count))


def as_float(values: Array) -> Array:
    """Return values as float64, NaN where missing."""
    if values.dtype.kind == "f":
        return values.astype("f8")
    return np.where(is_null(values), np.nan, values.astype("f8"))


def _cadence_s(ids: Array, t: Array) -> float:
    """Return the usual time between two rows of one thing, of one alone its last; 0: unknown."""
    between = np.diff(t)[ids[1:] == ids[:-1]]
    if len(ids) and ids[0] == ids[-1]:
        between = between[-_CADENCE_ROWS:]
    if not len(between):
        return 0.0
    middle = (len(between) - 1) // 2
    return float(np.partition(between, middle)[middle])
