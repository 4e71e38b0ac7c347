"""Four hours of readings of three meters, old enough for the cold tier."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from telemetry import housekeeping, samples
from telemetry.cold import move
from telemetry.rollups import progress
from telemetry.samples import Table
from telemetry.store.columns import Columns, Window
from telemetry.store.reading import read
from tests.builders.readings import write_samples

#: On a full day, so that partitions of every width begin there.
T0 = 1_800_057_600
HOUR = 3600
#: Between two readings of a meter, s, and how many rows all three have in an hour.
STEP = 1200
PER_HOUR = 3 * HOUR // STEP
NOW = datetime.fromtimestamp(T0, UTC) + timedelta(hours=30)
DAY = Window(T0, T0 + 86_400)


def write_meter(meter: int, seconds: list[float], powers: Any) -> None:
    write_samples(samples.METER, meter, [T0 + s for s in seconds], power_w=powers)


def write_some() -> list[tuple[int, float, float]]:
    """Store readings of four hours, some of them twice, and return them in order."""
    with connection.cursor() as cursor:
        progress.begin(cursor.cursor, "meter_sample", T0)
    seconds = [float(s) for s in range(0, 4 * HOUR, STEP)]
    for meter in (1, 2, 3):
        write_meter(meter, [*seconds, STEP], [1000 * meter + s / STEP for s in seconds] + [7.0])
    housekeeping.roll_up(NOW.timestamp())
    return stored(samples.METER)


def stored(table: Table, name: str = "power_w") -> list[tuple[int, float, float]]:
    """Return what a reader gets of the day: thing, seconds since T0, value, duplicates included."""
    found: Columns = read(table, (name,), DAY)
    seconds = (found["ts"] / 1e6 - T0).tolist()
    return sorted(zip(found[table.key].tolist(), seconds, found[name].tolist(), strict=True))


def move_all(now: datetime = NOW) -> int:
    steps = 0
    while move.step(now):
        steps += 1
    return steps


def in_postgres(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchone()[0])
