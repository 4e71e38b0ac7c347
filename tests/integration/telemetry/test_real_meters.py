"""Published readings of real node meters, with their gaps, doubles, zeros and negative values.

Needs the data set ``mlperf-train-h100-node-power`` (MLPerf Training v4.0, Sustainable Metal Cloud),
found as tests/data_sets.py says; skipped where it is not there.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from django.db import connection
from pytest_django import Settings

from fleet.models import Meter
from telemetry import housekeeping, samples
from telemetry.cold.models import ColdFile
from telemetry.rollups import marks, progress
from telemetry.samples import Rows
from telemetry.series import Kind, SeriesRequest, Tier, query
from telemetry.store.columns import Window
from telemetry.store.reading import read
from telemetry.tiers import raw_width
from tests.builders.readings import make_node
from tests.data_sets import data_set

pytestmark = pytest.mark.django_db

#: Eight nodes with an AC and a DC meter each, three runs.
FILE = "power_8node_ssd.csv.gz"

#: By run and by meter and node: times (Unix s) and W, as published.
Run = dict[str, list[tuple[float, float]]]


@pytest.fixture
def runs() -> dict[str, Run]:
    found: dict[str, Run] = defaultdict(lambda: defaultdict(list))
    with gzip.open(data_set("mlperf-train-h100-node-power") / FILE, "rt") as file:
        for row in csv.DictReader(file):
            meter = f"{row['meter']}/{row['node']}"
            found[row["run_id"]][meter].append((int(row["t_ms"]) / 1000, float(row["power_w"])))
    return {
        run: {name: sorted(each) for name, each in meters.items()} for run, meters in found.items()
    }


@pytest.fixture
def meters(runs: dict[str, Run]) -> dict[str, int]:
    """The meters' ids by name, with all runs stored as the writer stores them."""
    node = make_node(gpus=0)
    names = sorted({name for run in runs.values() for name in run})
    ids = {name: Meter.objects.create(name=name, node=node).pk for name in names}
    readings = [
        (ids[name], t, power)
        for run in runs.values()
        for name, each in run.items()
        for t, power in each
    ]
    source, ts, power = (np.array(column) for column in zip(*readings, strict=True))
    rows = Rows(
        samples.METER,
        {
            "ts": ts,
            "meter_id": source,
            "power_w": power,
            "energy_j": np.full(len(ts), np.nan),
            "temp_c": np.full(len(ts), np.nan, "f4"),
        },
    )
    with connection.cursor() as django_cursor:
        cursor = django_cursor.cursor
        progress.begin(cursor, "meter_sample", ts.min() - 3600)
        wanted = samples.partitions_for(samples.METER, ts, raw_width())
        samples.create_partitions(cursor, wanted)
        samples.copy(cursor, rows)
        marks.note(cursor, [rows])
    housekeeping.roll_up(ts.max() + 2 * 3600)
    return ids


def trapezoid(readings: list[tuple[float, float]]) -> float:
    """Return the energy between good readings that follow each other, J."""
    return sum((p + q) / 2 * (u - t) for (t, p), (u, q) in pairwise(readings) if p > 0 and q > 0)


@pytest.mark.parametrize("tier", [Tier.MINUTE, Tier.RAW])
def test_the_energy_of_each_run_is_that_of_the_file(
    runs: dict[str, Run], meters: dict[str, int], tier: Tier
) -> None:
    for run in runs.values():
        found, true = 0.0, 0.0
        for name, readings in run.items():
            # Runs follow each other closely: what is drawn in between is in neither.
            start, end = readings[0][0], readings[-1][0] + 0.001
            now = end + 3600
            request = SeriesRequest(
                Kind.METER, meters[name], ("used_j",), start, end, points=5000, tier=tier
            )
            used = [value for value in query(request, now).columns["used_j"] if value is not None]
            assert sum(used) == pytest.approx(trapezoid(readings), rel=1e-3), name
            found, true = found + sum(used), true + trapezoid(readings)
        assert found == pytest.approx(true, rel=1e-3)


def test_zero_and_negative_readings_are_kept_and_flagged(
    runs: dict[str, Run], meters: dict[str, int]
) -> None:
    suspect = {
        name: sum(power <= 0 for run in runs.values() for _, power in run.get(name, []))
        for name in meters
    }
    assert sum(suspect.values()) == 18
    with connection.cursor() as cursor:
        cursor.execute("SELECT meter_id, sum(suspect)::int FROM meter_minute GROUP BY 1")
        flagged = dict(cursor.fetchall())
    assert {name: flagged[meter] for name, meter in meters.items()} == suspect
    powers = [power for run in runs.values() for each in run.values() for _, power in each]
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(power_w) FROM meter_sample")
        kept = cursor.fetchone()[0]
        cursor.execute("SELECT min(power_w_min), max(power_w_max) FROM meter_minute")
        drawn = cursor.fetchone()
    assert kept == pytest.approx(min(powers))
    assert kept < 0
    # What stands for a minute is what its good readings say.
    assert drawn == pytest.approx((min(p for p in powers if p > 0), max(powers)))


def test_files_take_an_eighth_of_the_space_and_hold_every_reading(
    runs: dict[str, Run], meters: dict[str, int], settings: Settings, tmp_path: Path
) -> None:
    settings.TELEMETRY_COLD_URL = str(tmp_path)
    ever = Window(0, 4e9)
    before = read(samples.METER, ("power_w",), ever)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_relation_size(inhrelid) + pg_indexes_size(inhrelid))::int"
            " FROM pg_inherits WHERE inhparent = 'meter_sample'::regclass"
        )
        in_postgres = cursor.fetchone()[0]
    newest = max(t for run in runs.values() for each in run.values() for t, _ in each)
    moved_at = datetime.fromtimestamp(newest, UTC) + timedelta(hours=12)
    assert housekeeping.move_to_cold(moved_at, budget_s=60)
    files = ColdFile.objects.filter(table="meter_sample")
    assert sum(file.rows for file in files) == len(before["ts"]) == 10_501
    assert in_postgres / sum(file.bytes for file in files) > 8
    after = read(samples.METER, ("power_w",), ever)
    for name, values in before.items():
        assert np.array_equal(values, after[name]), name
