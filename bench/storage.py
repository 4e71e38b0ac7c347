"""Readings on disk in each tier: their size, the cost of moving them, and the speed of queries.

The readings are those of ``bench.readings``: a day of some racks, each ten seconds. They go through
the real roll-ups and the real move into the cold tier; then timelines are asked for over HTTP. The
published meters of ``mlperf-train-h100-node-power`` go the same way where they are found
(``HEADROOM_TEST_DATA``). Bytes in Postgres are those of heap and indexes; the ceiling of the
timelines is /healthz in the same run.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import csv
import gzip
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import urllib3

from bench import django_in, report
from bench.readings import STEP_S, Readings, Step
from bench.stack import Stack, running
from tests.data_sets import data_folder

if TYPE_CHECKING:
    from telemetry.samples import Rows, Table

GPUS = 512
HOURS = 26
STEPS_PER_MINUTE = 6
#: A minute of so many GPUs is rolled up for the cost of roll-ups.
LARGE_FLEET = 100_000
REQUESTS = 40
DAY_S = 86_400.0


def run() -> None:
    with running("--web-workers", "1") as stack:
        django_in.set_up(stack)
        figures: dict[str, Any] = {}
        with only_keeper():
            gpus = load_fleet(GPUS)
            start_s = time.time() - HOURS * 3600
            store_day(gpus, start_s)
            figures |= sizes_in_postgres()
            figures |= cost_of_move()
            figures |= meters()
            store_hours(gpus, start_s)
            figures |= timelines(stack, gpus)
            figures |= sizes_in_files(figures)
            figures |= cost_of_rollups()
    report.show("storage", figures, _NOTES)


_NOTES = {
    "raw_bytes_per_reading": f"a GPU's reading in Postgres; {GPUS} GPUs each {STEP_S:g} s",
    "raw_cold_bytes_per_reading": "the same in Parquet",
    "minute_bytes_per_reading": "a minute's roll-up, by the readings in it",
    "meters_ratio": "raw in Postgres to Parquet, published readings",
    "rollup_cpu_s_per_minute_100k": "a minute of 100,000 GPUs each 10 s, Postgres included",
    "move_cpu_s_per_million_rows": "out of Postgres, encoded, written and read back",
}


# --- What is stored ------------------------------------------------------------------------------


@contextmanager
def only_keeper() -> Iterator[None]:
    """Be the housekeeper: the stack's own would do the same work, in between."""
    from telemetry import housekeeping

    while True:
        with housekeeping.only_one() as held:
            if held:
                yield
                return
        time.sleep(0.1)


def load_fleet(gpus: int, *, nodes_per_rack: int = 4) -> list[int]:
    """Make an inventory of ``gpus`` GPUs and return their ids."""
    from fleet import inventory, snapshot
    from tests.builders.inventory import make_inventory

    document = inventory.parse(make_inventory(gpus=gpus, nodes_per_rack=nodes_per_rack))
    inventory.apply(inventory.plan(document, inventory.read_state(), prune_sites=True), "bench")
    snapshot.invalidate()
    return [int(each) for each in snapshot.current().gpus.ids]


def store(rows: Rows) -> None:
    """Store rows as the writer does."""
    from django.db import connection, transaction

    from telemetry import samples, tiers
    from telemetry.rollups import marks

    with transaction.atomic(), connection.cursor() as django_cursor:
        cursor = django_cursor.cursor
        wanted = samples.partitions_for(rows.table, rows.columns["ts"], tiers.raw_width())
        samples.create_partitions(cursor, wanted)
        samples.copy(cursor, rows)
        marks.note(cursor, [rows])


def as_rows(step: Step, gpus: list[int]) -> Rows:
    """Return one reading of every GPU as rows."""
    from telemetry.samples import GPU, NULL_INT, Rows

    columns: dict[str, Any] = {}
    for column in GPU.columns:
        given = step.values.get(column.name)
        if given is None:
            missing = np.nan if column.is_float else NULL_INT
            columns[column.name] = np.full(len(gpus), missing, column.dtype)
        elif column.is_float:
            columns[column.name] = given
        else:
            columns[column.name] = np.where(np.isnan(given), NULL_INT, given).astype("i8")
    return Rows(GPU, {**columns, "ts": step.ts, "gpu_id": np.array(gpus)})


def store_day(gpus: list[int], start_s: float) -> None:
    """Store ``HOURS`` of readings, and roll them up."""
    readings = Readings(len(gpus), start_s=start_s)
    end_s = time.time()
    for _ in range(int(HOURS * 60)):
        minute = [as_rows(step, gpus) for step in readings.steps(STEPS_PER_MINUTE)]
        if max(float(rows.columns["ts"].max()) for rows in minute) < end_s:
            store(_joined(minute))
    _finish_rollups(time.time())


def _joined(parts: list[Rows]) -> Rows:
    from telemetry.samples import Rows

    names = parts[0].columns
    return Rows(
        parts[0].table, {n: np.concatenate([part.columns[n] for part in parts]) for n in names}
    )


def _finish_rollups(now: float) -> None:
    from telemetry import housekeeping

    while not housekeeping.roll_up(now, budget_s=60):
        pass


def store_hours(gpus: list[int], before_s: float) -> None:
    """Give the month before the readings hours, made of the hours that there are."""
    from django.db import connection, transaction

    from telemetry import samples, tiers
    from telemetry.rollups.spec import HOUR_S
    from telemetry.rollups.spec import HOURS as TABLES
    from telemetry.samples import NULL_INT, Rows

    table = TABLES["gpu_sample"]
    rng = np.random.default_rng(7)
    width = tiers.rollup_width(HOUR_S, len(gpus))
    for hour in range(int((before_s - 31 * DAY_S) // 3600), int(before_s // 3600)):
        columns: dict[str, Any] = {}
        for column in table.columns:
            values = rng.uniform(100, 700, len(gpus))
            nothing = np.full(len(gpus), NULL_INT)
            columns[column.name] = values.round(1) if column.is_float else nothing
        columns |= {"ts": np.full(len(gpus), hour * 3600.0), "gpu_id": np.array(gpus)}
        columns["readings"] = np.full(len(gpus), 360)
        with transaction.atomic(), connection.cursor() as cursor:
            rows = Rows(table, columns)
            wanted = samples.partitions_for(table, rows.columns["ts"], width)
            samples.create_partitions(cursor.cursor, wanted)
            samples.copy(cursor.cursor, rows)


# --- Bytes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """A number of rows and their size."""

    rows: int
    bytes: int

    @property
    def per_row(self) -> float:
        return self.bytes / self.rows


def in_postgres(table: Table) -> Space:
    """Return rows of a table and the bytes of heap and indexes, without empty partitions."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(sum(pg_relation_size(inhrelid) + pg_indexes_size(inhrelid)), 0)::int8"
            " FROM pg_inherits WHERE inhparent = %s::regclass AND pg_relation_size(inhrelid) > 0",
            [table.name],
        )
        size = int(cursor.fetchone()[0])
        cursor.execute(f"SELECT count(*) FROM {table.name}")
        return Space(int(cursor.fetchone()[0]), size)


def in_files(table: Table) -> Space:
    """Return rows of a table in the cold tier and the bytes of its files."""
    from telemetry.cold.models import ColdFile

    files = list(ColdFile.objects.filter(table=table.name))
    return Space(sum(file.rows for file in files), sum(file.bytes for file in files))


def sizes_in_postgres() -> dict[str, Any]:
    from telemetry.rollups.spec import HOURS as HOUR_TABLES
    from telemetry.rollups.spec import MINUTES
    from telemetry.samples import GPU

    raw = in_postgres(GPU)
    minutes, hours = in_postgres(MINUTES["gpu_sample"]), in_postgres(HOUR_TABLES["gpu_sample"])
    return {
        "raw_rows": raw.rows,
        "raw_bytes_per_reading": raw.per_row,
        "minute_bytes_per_row": minutes.per_row,
        "minute_bytes_per_reading": minutes.bytes / raw.rows,
        "hour_bytes_per_row": hours.per_row,
        "hour_bytes_per_reading": hours.bytes / raw.rows,
    }


def sizes_in_files(figures: dict[str, Any]) -> dict[str, Any]:
    from django.conf import settings

    from telemetry.rollups.spec import MINUTES
    from telemetry.samples import GPU

    # Minutes stay for a day; what they take is known as well after an hour.
    settings.TELEMETRY_MINUTE_HOT_H = 1.0
    _move()
    raw, minutes = in_files(GPU), in_files(MINUTES["gpu_sample"])
    return {
        "raw_cold_bytes_per_reading": raw.per_row,
        "raw_ratio": figures["raw_bytes_per_reading"] / raw.per_row,
        "cold_bytes_per_value": raw.bytes / (raw.rows * _values_per_row()),
        "minute_cold_bytes_per_row": minutes.per_row,
    }


def _values_per_row() -> int:
    """Return how many readings a stored row holds: its columns that are not null."""
    from django.db import connection

    from telemetry.samples import GPU

    with connection.cursor() as cursor:
        names = ", ".join(column.name for column in GPU.fields)
        cursor.execute(f"SELECT num_nonnulls({names}) FROM gpu_sample LIMIT 1")
        return int(cursor.fetchone()[0])


def meters() -> dict[str, Any]:
    """Store the published readings of node meters, and move them."""
    folder = data_folder() / "mlperf-train-h100-node-power"
    if not folder.is_dir():
        return {}
    from telemetry.samples import METER, Rows

    source, ts, power = _published(folder)
    # As if the last of them had come a day ago: what is older than the retention is dropped.
    ts = ts - ts.max() + time.time() - DAY_S
    nothing = np.full(len(ts), np.nan)
    store(
        Rows(
            METER,
            {
                "ts": ts,
                "meter_id": source,
                "power_w": power,
                "energy_j": nothing,
                "temp_c": nothing,
            },
        )
    )
    _finish_rollups(time.time())
    hot = in_postgres(METER)
    _move()
    cold = in_files(METER)
    return {
        "meters_rows": cold.rows,
        "meters_bytes_per_reading": hot.per_row,
        "meters_cold_bytes_per_reading": cold.per_row,
        "meters_ratio": hot.per_row / cold.per_row,
    }


def _published(folder: Path) -> tuple[Any, Any, Any]:
    """Return meter number, time and W of all runs of all files; each run's meters are its own."""
    numbers: dict[tuple[str, ...], int] = {}
    found = []
    for path in sorted(folder.glob("power_*.csv.gz")):
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                key = (path.name, row["run_id"], row["meter"], row["node"])
                number = numbers.setdefault(key, len(numbers) + 1)
                found.append((number, int(row["t_ms"]) / 1000, float(row["power_w"])))
    source, ts, power = (np.array(column) for column in zip(*found, strict=True))
    return source, ts, power


# --- Cost ----------------------------------------------------------------------------------------


def cpu_s() -> float:
    """Return the CPU time so far of this process and of the Postgres that it talks to."""
    from django.db import connection

    own = psutil.Process().cpu_times()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = psutil.Process(cursor.fetchone()[0]).cpu_times()
    return float(own.user + own.system + backend.user + backend.system)


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return CPU seconds and seconds."""
    before, began = cpu_s(), time.perf_counter()
    work()
    return cpu_s() - before, time.perf_counter() - began


def _move() -> None:
    from telemetry import housekeeping

    while not housekeeping.move_to_cold(datetime.now(UTC), budget_s=60):
        pass


def cost_of_move() -> dict[str, Any]:
    from telemetry.cold.models import ColdFile

    used, elapsed = _timed(_move)
    rows = sum(file.rows for file in ColdFile.objects.all())
    return {
        "move_rows_per_s": rows / elapsed,
        "move_cpu_s_per_million_rows": used / (rows / 1e6),
    }


def cost_of_rollups() -> dict[str, Any]:
    """Return the CPU time of a minute of a large fleet, which nobody else asks for."""
    from telemetry.rollups import work
    from telemetry.rollups.spec import MINUTE_S

    gpus = load_fleet(LARGE_FLEET)
    now = time.time()
    start_s = (now // 60 - 4) * 60
    for step in Readings(len(gpus), start_s=start_s).steps(18):
        if step.ts.max() < now:
            store(as_rows(step, gpus))
    costs = []
    for _ in range(2):
        used, _ = _timed(lambda: work.step("gpu_sample", MINUTE_S, now))
        costs.append(used)
    # The first minute has no readings before it.
    return {"rollup_cpu_s_per_minute_100k": costs[-1]}


# --- Reading -------------------------------------------------------------------------------------


def timelines(stack: Stack, gpus: list[int]) -> dict[str, Any]:
    """Return the 95th percentile of the time of an answer, ms."""
    from fleet.models import Rack

    racks = [int(pk) for pk in Rack.objects.values_list("pk", flat=True)]
    pool = urllib3.PoolManager(retries=False)
    headers = {"Authorization": f"Bearer {django_in.operator_token()}"}
    now = time.time()
    cold = f"from={now - 20 * 3600:.0f}&to={now - 19 * 3600:.0f}"
    asked = {
        "gpu_1h": ("gpu", gpus, "range=1h"),
        "gpu_1h_cold": ("gpu", gpus, cold),
        "gpu_1d": ("gpu", gpus, "range=1d"),
        "gpu_1d_raw": ("gpu", gpus, "range=1d&tier=raw&method=lttb&fields=power_w"),
        "gpu_30d": ("gpu", gpus, "range=30d"),
        "rack_1h": ("rack", racks, "range=1h"),
        "rack_1h_cold": ("rack", racks, cold),
        "rack_1d": ("rack", racks, "range=1d"),
        "rack_30d": ("rack", racks, "range=30d"),
    }
    rng = random.Random(7)
    figures = {}
    for name, (kind, ids, span) in asked.items():
        times = []
        for _ in range(REQUESTS):
            url = f"{stack.url}/api/v1/series?kind={kind}&id={rng.choice(ids)}&{span}"
            times.append(answer_ms(pool, url, headers))
        figures[f"{name}_p95_ms"] = report.percentile(times[1:], 0.95)
    healthz = [answer_ms(pool, f"{stack.url}/healthz", {}) for _ in range(REQUESTS)]
    return figures | {"healthz_p95_ms": report.percentile(healthz, 0.95)}


def answer_ms(pool: urllib3.PoolManager, url: str, headers: dict[str, str]) -> float:
    """Return how long it takes to get an answer, ms. Raises ``RuntimeError`` unless it is 200."""
    began = time.perf_counter()
    answer = pool.request("GET", url, headers=headers)
    if answer.status != 200:
        raise RuntimeError(f"{url} answers {answer.status}: {answer.data[:300]!r}")
    return (time.perf_counter() - began) * 1e3
