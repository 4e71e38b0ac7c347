"""How long rows are kept, where, and in how wide partitions.

| tier | in Postgres | then in the cold tier, until |
|---|---|---|
| raw | ``TELEMETRY_HOT_H`` | ``TELEMETRY_RETENTION_H`` |
| minutes | ``TELEMETRY_MINUTE_HOT_H`` | ``TELEMETRY_MINUTE_DAYS`` |
| hours | ``TELEMETRY_HOUR_HOT_DAYS`` | ``TELEMETRY_HOUR_DAYS`` |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from fleet import snapshot
from telemetry import samples
from telemetry.rollups.spec import HOUR_S, HOURS, MINUTE_S, MINUTES
from telemetry.samples import Table

#: Widths of partitions of minutes and of hours, the widest first.
_MINUTE_WIDTHS = tuple(timedelta(hours=h) for h in (24, 12, 6, 3, 2, 1))
_HOUR_WIDTHS = tuple(timedelta(days=d) for d in (28, 7, 2, 1))
#: The index of so many rows stays in Postgres' buffers: see telemetry.samples.width_for.
_ROWS_IN_BUFFERS = 6_000_000


@dataclass(frozen=True)
class Kept:
    """The retention of one table's rows, and the width of its partitions."""

    table: Table
    width: timedelta
    #: Rows older than this leave Postgres.
    hot: timedelta
    #: Rows older than this are gone.
    total: timedelta


def raw_width() -> timedelta:
    """Return the width of new partitions of readings: as set, else by the size of the fleet."""
    if settings.TELEMETRY_PARTITION_MIN:
        return timedelta(minutes=settings.TELEMETRY_PARTITION_MIN)
    return samples.width_for(len(snapshot.current().gpus))


def rollup_width(width_s: int, gpus: int) -> timedelta:
    """Return the width of new partitions of roll-ups with buckets of ``width_s``."""
    widths = _MINUTE_WIDTHS if width_s == MINUTE_S else _HOUR_WIDTHS
    rows_per_s = gpus / width_s
    for width in widths:
        if rows_per_s * width.total_seconds() <= _ROWS_IN_BUFFERS:
            return width
    return widths[-1]


def raw_kept() -> tuple[timedelta, timedelta]:
    """Return for how long readings stay in Postgres, and for how long they are kept at all."""
    total = timedelta(hours=settings.TELEMETRY_RETENTION_H)
    return min(timedelta(hours=settings.TELEMETRY_HOT_H), total), total


def rollup_kept(width_s: int) -> tuple[timedelta, timedelta]:
    """Return for how long roll-ups stay in Postgres, and for how long they are kept at all."""
    if width_s == MINUTE_S:
        total = timedelta(days=settings.TELEMETRY_MINUTE_DAYS)
        return min(timedelta(hours=settings.TELEMETRY_MINUTE_HOT_H), total), total
    total = timedelta(days=settings.TELEMETRY_HOUR_DAYS)
    return min(timedelta(days=settings.TELEMETRY_HOUR_HOT_DAYS), total), total


def kept() -> Iterator[Kept]:
    """Yield every table with the retention of its rows."""
    gpus = len(snapshot.current().gpus)
    for table in samples.TABLES.values():
        yield Kept(table, raw_width(), *raw_kept())
    for width_s, tables in ((MINUTE_S, MINUTES), (HOUR_S, HOURS)):
        for rolled in tables.values():
            yield Kept(rolled, rollup_width(width_s, gpus), *rollup_kept(width_s))
