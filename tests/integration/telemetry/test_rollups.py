"""Roll-ups in Postgres: incremental, right for late readings, and the same when done twice."""

from __future__ import annotations

import math
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction

from telemetry import housekeeping, samples
from telemetry.rollups import carriers, marks, progress, work
from telemetry.rollups.marks import NewMark
from telemetry.rollups.models import RollupMark
from telemetry.rollups.spec import HOUR_S, HOURS, MINUTE_S, MINUTES
from telemetry.store.columns import Window
from tests.builders.batches import make_batch
from tests.builders.demo import until
from tests.builders.readings import write_samples
from tests.integration.telemetry.conftest import Source, drain_everything

pytestmark = pytest.mark.django_db

#: On a full hour.
T0 = 1_800_000_000
LATER = T0 + 86_400


def rows(table: str, *names: str) -> list[tuple[Any, ...]]:
    """Return rows in order of thing and time, the time as seconds since T0."""
    key = {"gpu": "gpu_id", "meter": "meter_id", "host": "node_id"}[table.partition("_")[0]]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {key}, extract(epoch FROM ts)::int - {T0}, {', '.join(names)}"
            f" FROM {table} ORDER BY 1, 2"
        )
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def write_meter(meter: int, seconds: list[float], powers: Any) -> None:
    write_samples(samples.METER, meter, [T0 + s for s in seconds], power_w=powers)


@pytest.mark.parametrize("width_s", [MINUTE_S, HOUR_S])
def test_the_tables_have_the_columns_that_are_written(width_s: int) -> None:
    for table in {MINUTE_S: MINUTES, HOUR_S: HOURS}[width_s].values():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name, udt_name FROM information_schema.columns"
                " WHERE table_name = %s",
                [table.name],
            )
            # Whoever writes or reads names the columns: their order is that in which they came.
            assert sorted(cursor.fetchall()) == sorted((c.name, c.pg_type) for c in table.columns)


def test_a_minute_that_has_ended_is_computed_once() -> None:
    write_meter(1, [0, 10, 70], [100, 200, 300])
    assert housekeeping.roll_up(T0 + 60 + work.SETTLE_S[MINUTE_S])
    assert rows("meter_minute", "readings", "power_w", "used_j") == [(1, 0, 2, 150, 1500)]
    assert not work.step("meter_sample", MINUTE_S, T0 + 60 + work.SETTLE_S[MINUTE_S])


def test_a_minute_that_goes_on_waits() -> None:
    write_meter(1, [0], 100)
    assert housekeeping.roll_up(T0 + 60)
    assert rows("meter_minute", "readings") == []
    assert RollupMark.objects.filter(source="meter_sample").exists()


def test_a_piece_across_a_border_counts_where_it_ends() -> None:
    write_meter(1, [55, 65, 125], 100)
    housekeeping.roll_up(LATER)
    assert rows("meter_minute", "used_j", "covered_s") == [
        (1, 0, None, None),
        (1, 60, 1000, 10),
        (1, 120, 6000, 60),
    ]
    assert rows("meter_hour", "used_j", "covered_s", "readings") == [(1, 0, 7000, 70, 3)]


def test_a_counter_that_is_read_seldom_loses_nothing_at_a_border() -> None:
    counted = [1000.0 * (s // 10) if s % 10 == 5 else None for s in range(180)]
    write_samples(
        samples.GPU, 1, [T0 + s for s in range(180)], power_w=[900.0] * 180, energy_j=counted
    )
    housekeeping.roll_up(LATER)
    # Until the counter is read first, powers count.
    expected = [(1, 0, 9500, 55), (1, 60, 6000, 60), (1, 120, 6000, 60)]
    assert rows("gpu_minute", "used_j", "covered_s") == expected
    assert rows("gpu_hour", "used_j", "covered_s") == [(1, 0, 21_500, 175)]


def test_a_late_reading_changes_its_bucket_and_the_next_piece_at_every_tier() -> None:
    write_meter(1, [10, 130], 100)
    write_meter(2, [10, 130], 100)
    housekeeping.roll_up(LATER)
    assert rows("meter_hour", "used_j", "power_w_max")[0] == (1, 0, 12_000, 100)
    # It comes hours later, and takes the place of the line between its neighbors.
    write_meter(1, [70], 700)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE telemetry_rollupmark SET noted_at = to_timestamp(%s)", [T0 + 7200])
    housekeeping.roll_up(LATER)
    assert rows("meter_minute", "used_j") == [
        (1, 0, None), (1, 60, 24_000), (1, 120, 24_000), (2, 0, None), (2, 120, 12_000),
    ]  # fmt: skip
    assert rows("meter_hour", "used_j", "power_w_max", "readings") == [
        (1, 0, 48_000, 700, 3),
        (2, 0, 12_000, 100, 2),
    ]
    assert not RollupMark.objects.exists()


def test_what_did_not_change_is_left_alone() -> None:
    write_meter(1, [0, 10], 100)
    write_meter(1 + marks.BLOCK, [0, 10], 100)
    housekeeping.roll_up(LATER)
    before = rows("meter_minute", "xmin", "ctid")
    write_meter(1, [20], 100)
    housekeeping.roll_up(LATER)
    after = rows("meter_minute", "xmin", "ctid")
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_computing_again_changes_nothing() -> None:
    write_samples(
        samples.GPU,
        1,
        [T0 + 7 * i for i in range(600)],
        power_w=[100 + (i * 37) % 600 for i in range(600)],
        energy_j=[i * 3000 for i in range(600)],
        temp_c=[None if i % 9 == 0 else 40 + i % 30 for i in range(600)],
        throttle=[4 if i % 5 == 0 else 0 for i in range(600)],
        job_id=[i // 200 for i in range(600)],
    )
    housekeeping.roll_up(LATER)
    names = [column.name for column in MINUTES["gpu_sample"].columns[2:]]
    before = rows("gpu_minute", *names), rows("gpu_hour", *names)
    assert len(before[0]) == 70
    with connection.cursor() as cursor:
        marks.insert(
            cursor.cursor, [NewMark("gpu_sample", MINUTE_S, T0 + 60 * i, None) for i in range(70)]
        )
    housekeeping.roll_up(LATER)
    assert (rows("gpu_minute", *names), rows("gpu_hour", *names)) == before


def test_the_percentile_of_an_hour_is_that_of_its_readings() -> None:
    powers = [1.0 + (i * 7919) % 1000 for i in range(360)]
    write_samples(samples.GPU, 1, [T0 + 10 * i for i in range(360)], power_w=powers)
    housekeeping.roll_up(LATER)
    expected = sorted(powers)[math.ceil(0.95 * 360) - 1]
    assert rows("gpu_hour", "power_w_p95") == [(1, 0, expected)]


def test_a_computation_that_fails_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    write_meter(1, [0, 10], 100)
    housekeeping.roll_up(LATER)
    write_meter(1, [20], 100)

    def fails(*args: Any) -> None:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(samples, "copy", fails)
        with pytest.raises(RuntimeError, match="killed here"):
            housekeeping.roll_up(LATER)
    assert rows("meter_minute", "readings") == [(1, 0, 2)]
    housekeeping.roll_up(LATER)
    assert rows("meter_minute", "readings") == [(1, 0, 3)]


def test_a_reading_that_comes_meanwhile_keeps_its_mark() -> None:
    write_meter(1, [0], 100)
    with connection.cursor() as cursor:
        found = marks.oldest(cursor.cursor, "meter_sample", MINUTE_S, LATER)
        write_meter(1, [10], 100)
        marks.delete(cursor.cursor, found)
        assert marks.oldest(cursor.cursor, "meter_sample", MINUTE_S, LATER)


class TestProgress:
    def done(self) -> dict[int, float]:
        with connection.cursor() as cursor:
            found = progress.done(cursor.cursor, "meter_sample")
        return {width_s: at - T0 for width_s, at in found.items()}

    def test_it_reaches_to_the_last_bucket_that_ended(self) -> None:
        write_meter(1, [0, 3700], 100)
        housekeeping.roll_up(T0 + 3800)
        assert self.done() == {MINUTE_S: 3780, HOUR_S: 3600}

    def test_it_does_not_pass_what_waits(self) -> None:
        write_meter(1, [0, 60, 120], 100)
        with connection.cursor() as cursor:
            progress.begin(cursor.cursor, "meter_sample", T0)
            progress.advance(cursor.cursor, "meter_sample", MINUTE_S, LATER)
        assert self.done()[MINUTE_S] == 0

    def test_a_late_reading_does_not_set_it_back(self) -> None:
        write_meter(1, [3600], 100)
        housekeeping.roll_up(LATER)
        before = self.done()
        write_meter(1, [0], 100)
        with connection.cursor() as cursor:
            progress.advance(cursor.cursor, "meter_sample", MINUTE_S, LATER)
        assert self.done() == before

    def test_what_was_stored_before_there_were_roll_ups_is_computed_too(self) -> None:
        write_meter(1, [0, 10, 70], 100)
        RollupMark.objects.all().delete()
        housekeeping.roll_up(LATER)
        assert rows("meter_minute", "readings") == [(1, 0, 2), (1, 60, 1)]

    def test_a_step_gives_way_when_its_time_is_up(self) -> None:
        with connection.cursor() as cursor:
            progress.begin(cursor.cursor, "meter_sample", T0)
        write_meter(1, [600 * i for i in range(10)], 100)
        assert not housekeeping.roll_up(LATER, budget_s=0)
        assert len(rows("meter_minute", "readings")) == 1
        assert self.done()[MINUTE_S] == 600

    def test_minutes_that_follow_each_other_are_computed_at_once(self) -> None:
        write_meter(1, [60 * i for i in range(50, 70)], 100)
        assert work.step("meter_sample", MINUTE_S, LATER)
        assert len(rows("meter_minute", "readings")) == 10  # to the end of the hour
        assert work.step("meter_sample", MINUTE_S, LATER)
        assert len(rows("meter_minute", "readings")) == 20


@pytest.mark.django_db(transaction=True)
def test_no_reading_is_looked_at_while_others_make_partitions() -> None:
    """They would wait for whoever looks, and who looks for them."""
    write_meter(1, [0, 10], 100)
    RollupMark.objects.all().delete()
    with connection.cursor() as cursor:
        # Which things it is about has to be looked up.
        marks.insert(cursor.cursor, [NewMark("meter_sample", MINUTE_S, T0, None)])
    done: list[bool] = []

    def step() -> None:
        done.append(work.step("meter_sample", MINUTE_S, LATER))
        connection.close()

    thread = threading.Thread(target=step)
    with transaction.atomic(), connection.cursor() as cursor:
        samples.lock_partitions(cursor.cursor)
        thread.start()
        until(lambda: waits_for_partitions(cursor), 60.0)
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        cursor.execute("LOCK TABLE meter_sample IN ACCESS EXCLUSIVE MODE")
    thread.join(60.0)
    assert done == [True]


def waits_for_partitions(cursor: Any) -> bool:
    cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    (count,) = cursor.fetchone()
    return bool(count)


def test_the_drain_marks_what_it_stores(source: Source) -> None:
    source.push(make_batch("agent-1", "n1"))
    drain_everything()
    assert housekeeping.roll_up(datetime.now(UTC).timestamp() + 2 * HOUR_S)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), sum(readings) FROM gpu_minute")
        assert cursor.fetchone() == (8, 8)


def test_who_carried_a_job_is_found_by_the_hour() -> None:
    write_samples(samples.GPU, 4, [T0, T0 + 60], job_id=7)
    write_samples(samples.GPU, 9, [T0 + 3600], job_id=[7])
    write_samples(samples.GPU, 5, [T0], job_id=[8])
    housekeeping.roll_up(LATER)
    with connection.cursor() as cursor:

        def found(start: float, end: float) -> list[int]:
            window = Window(T0 + start, T0 + end)
            return list(carriers.of_job(cursor.cursor, 7, window))

        assert found(0, 3600) == [4]
        assert found(0, 7200) == [4, 9]
        assert found(7200, 9000) == []
