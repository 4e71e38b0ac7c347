"""Moving into the cold tier: every row is read exactly once, at any moment, whatever dies."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings

from telemetry import housekeeping, samples
from telemetry.cold import keep, move, places
from telemetry.cold.models import ColdFile, DetachedPartition
from telemetry.cold.places import Unreachable
from telemetry.rollups import marks
from telemetry.rollups.marks import NewMark
from telemetry.rollups.models import RollupMark
from telemetry.rollups.spec import MINUTE_S, MINUTES
from telemetry.store.columns import Window
from telemetry.store.reading import read
from tests.integration.telemetry.cold import (
    HOUR,
    NOW,
    PER_HOUR,
    STEP,
    T0,
    in_postgres,
    move_all,
    stored,
    write_meter,
    write_some,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    settings.TELEMETRY_COLD_URL = str(tmp_path / "cold")
    settings.TELEMETRY_HOT_H = 6
    settings.TELEMETRY_MINUTE_HOT_H = 6
    return tmp_path / "cold"


def test_a_reader_gets_the_same_before_and_after() -> None:
    before = write_some()
    assert move_all()
    assert stored(samples.METER) == before
    assert in_postgres("meter_sample") == 0
    assert not DetachedPartition.objects.exists()
    assert ColdFile.objects.filter(table="meter_sample").count() == 4
    assert not move.step(NOW)


def test_what_is_young_stays() -> None:
    write_some()
    # The first two hours ended six hours ago, or longer.
    move_all(datetime.fromtimestamp(T0 + 8 * HOUR, UTC))
    files = ColdFile.objects.filter(table="meter_sample").order_by("start")
    assert [file.start.hour for file in files] == [0, 1]
    assert in_postgres("meter_sample") == 2 * PER_HOUR


def test_a_file_says_what_it_holds(folder: Path) -> None:
    write_some()
    move_all()
    file = ColdFile.objects.filter(table="meter_sample").order_by("start")[0]
    assert (file.rows, file.first_id, file.last_id) == (PER_HOUR + 3, 1, 3)
    assert file.end - file.start == timedelta(hours=1)
    assert (folder / file.path).stat().st_size == file.bytes
    assert list(keep.damaged()) == []


def test_narrow_partitions_of_an_hour_go_together(settings: Settings) -> None:
    settings.TELEMETRY_PARTITION_MIN = 10
    before = write_some()
    # Of the first hour, half is old enough.
    assert not move_all(datetime.fromtimestamp(T0 + 6.5 * HOUR, UTC))
    assert move_all(datetime.fromtimestamp(T0 + 7 * HOUR, UTC)) == 2
    assert ColdFile.objects.get().rows == PER_HOUR + 3
    assert stored(samples.METER) == before


def test_widths_may_change_in_between(settings: Settings) -> None:
    settings.TELEMETRY_PARTITION_MIN = 20
    write_meter(1, [2400], 1)
    settings.TELEMETRY_PARTITION_MIN = 180
    write_meter(1, [0, 4000, 10_000], 2)
    housekeeping.roll_up(NOW.timestamp())
    before = stored(samples.METER)
    move_all()
    assert stored(samples.METER) == before
    assert in_postgres("meter_sample") == 0


def test_what_is_not_rolled_up_waits() -> None:
    write_meter(1, [0], 100)
    assert not move_all()
    housekeeping.roll_up(NOW.timestamp())
    assert move_all()


def test_what_comes_late_makes_a_second_file() -> None:
    before = write_some()
    move_all()
    write_meter(2, [310], [5.0])
    late = sorted([*before, (2, 310.0, 5.0)])
    assert stored(samples.METER) == late
    housekeeping.roll_up(NOW.timestamp())
    move_all()
    assert stored(samples.METER) == late
    files = ColdFile.objects.filter(table="meter_sample", start__hour=0).order_by("pk")
    assert [file.rows for file in files] == [PER_HOUR + 3, 1]


def test_a_reader_may_ask_for_some_things() -> None:
    write_some()
    move_all()
    found = read(samples.METER, ("power_w",), Window(T0, T0 + 2 * STEP), [1, 3])
    assert found["meter_id"].tolist() == [1, 1, 1, 3, 3, 3]


def test_large_partitions_become_several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    before = write_some()
    monkeypatch.setattr(move, "FILE_ROWS", 4)
    monkeypatch.setattr(move, "_ROW_BYTES", 8192 / (PER_HOUR + 3))  # so small a table has one page
    while move.step(NOW):
        assert stored(samples.METER) == before
    files = ColdFile.objects.filter(table="meter_sample", start__hour=0)
    assert [(file.first_id, file.last_id) for file in files.order_by("pk")] == [
        (1, 1), (2, 2), (3, 3),
    ]  # fmt: skip


def fail_after(call: Callable[..., Any]) -> Callable[..., Any]:
    def fails(*args: Any, **named: Any) -> None:
        call(*args, **named)
        raise RuntimeError("killed here")

    return fails


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (move, "_detach_one"),
        (move, "_next_ids"),
        (move, "_rows"),
        (places.Directory, "put"),
        (move, "_check"),
        (move, "write"),
        (move, "_count_as_moved"),
        (os, "fsync"),
    ],
)
def test_a_mover_may_be_killed_anywhere(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    before = write_some()
    with monkeypatch.context() as patch:
        patch.setattr(place, name, fail_after(getattr(place, name)))
        with pytest.raises(RuntimeError, match="killed here"):
            move_all()
    assert stored(samples.METER) == before
    move_all()
    assert stored(samples.METER) == before
    assert in_postgres("meter_sample") == 0
    assert list(keep.damaged()) == []
    # What was written for nothing goes, later.
    keep.clean(NOW)
    keep.clean(datetime.now(UTC) + timedelta(days=2))
    known = set(ColdFile.objects.values_list("path", flat=True))
    assert {path for path, *_ in places.place().listed()} == known


def test_a_file_that_does_not_give_back_its_rows_is_not_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = write_some()
    put = places.Directory.put

    def corrupts(self: places.Directory, path: str, data: bytes) -> None:
        wrong = np.frombuffer(data, "u1").copy()
        wrong[len(wrong) // 8] ^= 0xFF
        put(self, path, wrong.tobytes())

    monkeypatch.setattr(places.Directory, "put", corrupts)
    # Polars may find that the file is broken, or we that the rows are others.
    with pytest.raises((Unreachable, move.Damaged)):
        move_all()
    assert not ColdFile.objects.exists()
    assert stored(samples.METER) == before


def other_session() -> psycopg.Connection[Any]:
    parameters = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname")
    return psycopg.connect(**{name: parameters[name] for name in names})


class TestRollUps:
    def test_those_of_moved_readings_can_be_computed_again(self) -> None:
        write_some()
        before = stored(MINUTES["meter_sample"], "used_j")
        move_all()
        with connection.cursor() as cursor:
            marks.insert(
                cursor.cursor,
                [NewMark("meter_sample", MINUTE_S, T0 + STEP * i, [0]) for i in range(12)],
            )
        housekeeping.roll_up(NOW.timestamp())
        assert repr(stored(MINUTES["meter_sample"], "used_j")) == repr(before)

    def test_the_newest_counts_wherever_it_lies(self) -> None:
        write_some()
        move_all()
        minutes = MINUTES["meter_sample"]
        for late in range(3):
            write_meter(1, [5 + late], 90_000 + late)
            housekeeping.roll_up(NOW.timestamp())
            expected = [(1, 0.0, float(2 + late)), (1, 1200.0, 2.0)]
            assert stored(minutes, "readings")[:2] == expected
            move_all()
            assert stored(minutes, "readings")[:2] == expected
        assert ColdFile.objects.filter(table="meter_minute").count() == 4


class TestKeeping:
    def test_many_small_files_become_one(self, folder: Path) -> None:
        before = write_some()
        for late in range(9):
            move_all()
            write_meter(1, [400 + late], [float(late)])
            housekeeping.roll_up(NOW.timestamp())
            before = sorted([*before, (1, 400.0 + late, float(late))])
        move_all()
        readings = stored(MINUTES["meter_sample"], "readings")
        housekeeping.keep_cold_files(NOW)
        assert ColdFile.objects.filter(table="meter_sample", start__hour=0).count() == 1
        assert ColdFile.objects.filter(table="meter_minute").count() == 1
        assert stored(samples.METER) == before
        assert stored(MINUTES["meter_sample"], "readings") == readings
        assert len(list(folder.rglob("*.parquet"))) == ColdFile.objects.count()

    def test_what_is_past_its_time_goes_the_oldest_first(self, folder: Path) -> None:
        write_some()
        move_all()
        much_later = NOW + timedelta(days=14)
        for left in (3, 2, 1, 0, 0):
            keep.retire(much_later)
            assert ColdFile.objects.filter(table="meter_sample").count() == left
        assert len(list((folder / "meter_sample").rglob("*.parquet"))) == 0
        # Minutes are kept for longer.
        assert ColdFile.objects.filter(table="meter_minute").exists()

    def test_what_is_not_ours_stays(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
        keep.clean(datetime.now(UTC) + timedelta(days=400))
        assert (folder / "notes.txt").exists()

    def test_damage_is_found(self, folder: Path) -> None:
        write_some()
        move_all()
        first, second = ColdFile.objects.order_by("pk")[:2]
        (folder / first.path).unlink()
        (folder / second.path).write_bytes(b"PAR1")
        assert list(keep.damaged()) == [first.path, second.path]

    def test_a_wrong_clock_costs_an_hour_and_not_all(self, settings: Settings) -> None:
        settings.TELEMETRY_PARTITION_MIN = 10
        write_some()
        assert in_postgres("meter_sample") == 4 * PER_HOUR + 3
        # The clock leaps by a year.
        housekeeping.keep_partitions(NOW + timedelta(days=365))
        assert in_postgres("meter_sample") == 3 * PER_HOUR


class TestCommand:
    def test_it_shows_what_each_tier_takes(self) -> None:
        write_some()
        move_all(datetime.fromtimestamp(T0 + 8 * HOUR, UTC))
        out = StringIO()
        call_command("storage", stdout=out)
        cold = next(line for line in out.getvalue().splitlines() if "cold" in line)
        assert cold.split()[:3] == ["meter_sample", "cold", str(2 * PER_HOUR + 3)]
        assert cold.endswith("2027-01-16 00:00 … 2027-01-16 02:00")

    def test_it_tells_of_damage(self, folder: Path) -> None:
        write_some()
        move_all()
        out = StringIO()
        call_command("storage", "verify", stdout=out)
        assert "as they were written" in out.getvalue()
        path = ColdFile.objects.order_by("pk")[0].path
        (folder / path).unlink()
        with pytest.raises(CommandError, match="1 of"):
            call_command("storage", "verify", stdout=out)
        assert path in out.getvalue()


@pytest.fixture
def committed(transactional_db: None) -> Iterator[None]:
    """Tables that other sessions see, emptied afterwards: nothing else knows of partitions."""
    yield
    with connection.cursor() as cursor:
        for table in (samples.METER, MINUTES["meter_sample"]):
            samples.drop_before(cursor.cursor, table, datetime(2100, 1, 1, tzinfo=UTC))
        for detached in DetachedPartition.objects.values_list("relation", flat=True):
            samples.drop(cursor.cursor, detached)


@pytest.mark.django_db(transaction=True)
def test_a_busy_table_is_left_for_later(committed: None) -> None:
    write_some()
    with other_session() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [0x50415254])
        assert not move.step(NOW)
        assert not DetachedPartition.objects.exists()
    assert move.step(NOW)


@pytest.mark.django_db(transaction=True)
def test_readers_see_every_row_once_while_rows_move(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "FILE_ROWS", 4)
    monkeypatch.setattr(move, "_ROW_BYTES", 200)
    before = write_some()
    done, wrong, looks = threading.Event(), [], [0]

    def look() -> None:
        while not done.is_set():
            if stored(samples.METER) != before:
                wrong.append("rows are missing, or there twice")
            looks[0] += 1
        connection.close()

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        assert move_all()
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not wrong
    assert looks[0] > 2
    assert in_postgres("meter_sample") == 0
    assert RollupMark.objects.count() == 0
