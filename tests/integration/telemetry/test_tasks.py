"""The Celery tasks around the writer."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psycopg
import pytest
from celery.signals import worker_shutting_down
from django.db import OperationalError, connection

from telemetry import samples, stream, tasks
from telemetry.samples import TABLES, existing_partitions
from telemetry.writer import Writer, only_one
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source


def stored_rows() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM gpu_sample")
        return int(cursor.fetchone()[0])


def partitions(table: str = "gpu_sample") -> list[samples.Partition]:
    with connection.cursor() as cursor:
        return existing_partitions(cursor.cursor, table)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The shards for which a writer was asked."""
    shards: list[int] = []
    monkeypatch.setattr(tasks.write, "delay", shards.append)
    monkeypatch.setattr(tasks, "_IDLE_S", 0.01)
    monkeypatch.setattr(tasks, "_LINGER_S", (0.02, 0.02))
    return shards


def test_a_push_asks_for_one_drain_until_it_has_run(source: Source, asked: list[int]) -> None:
    for seq in (1, 2, 3):
        source.push(make_batch("agent-1", "n1", seq))
    assert asked == [0]
    tasks.write(0)
    assert stored_rows() == 24
    source.push(make_batch("agent-1", "n1", 4))
    assert asked == [0, 0]


def test_a_drain_leaves_the_work_to_the_one_that_has_the_lock(
    source: Source, asked: list[int]
) -> None:
    source.push(make_batch("agent-1", "n1"))
    # The lock is the other session's, as it is when a worker of another machine drains.
    parameters = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname")
    with psycopg.connect(**{name: parameters[name] for name in names}) as other:
        other.execute("SELECT pg_advisory_lock(%s, 0)", [0x48454144])
        tasks.write(0)
        assert stream.backlog(0) == 1
        other.execute("SELECT pg_advisory_unlock(%s, 0)", [0x48454144])
    tasks.write(0)
    assert stream.backlog(0) == 0


def test_the_lock_is_given_back(source: Source) -> None:
    for _ in range(2):
        with only_one(0) as held:
            assert held


def test_a_drain_of_a_worker_that_is_to_end_leaves_the_rest_to_the_next(
    source: Source, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MESSAGES_PER_ROUND", 1)
    monkeypatch.setattr(tasks._stopping, "value", 0)
    real = Writer.step

    def step_and_be_told_to_stop(self: Any, limit: int = 1) -> int:
        worker_shutting_down.send(None)
        return real(self, limit)

    for seq in (1, 2):
        source.push(make_batch("agent-1", "n1", seq))
    stream.say_done(0)
    monkeypatch.setattr(Writer, "step", step_and_be_told_to_stop)
    tasks.write(0)
    assert stream.backlog(0) == 1
    assert asked[-1] == 0
    monkeypatch.setattr(Writer, "step", real)
    monkeypatch.setattr(tasks._stopping, "value", 0)
    tasks.write(0)
    assert stream.backlog(0) == 0
    assert stored_rows() == 16


def test_messages_whose_drain_was_lost_are_found_by_beat(source: Source, asked: list[int]) -> None:
    source.push(make_batch("agent-1", "n1"))
    stream.say_done(0)  # the asked-for writer died with its worker
    tasks.write_all()
    assert asked == [0, 0]


def test_messages_that_come_as_a_drain_ends_get_another(
    source: Source, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = stream.say_done

    def one_comes_in_between(shard: int) -> None:
        source.push(make_batch("agent-1", "n1", 2))
        real(shard)

    source.push(make_batch("agent-1", "n1", 1))
    monkeypatch.setattr(stream, "say_done", one_comes_in_between)
    tasks.write(0)
    assert asked == [0, 0]


def test_nothing_is_asked_for_where_nothing_waits(db: None, asked: list[int]) -> None:
    tasks.write_all()
    assert asked == []


def test_a_server_that_is_away_costs_no_message(
    source: Source, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any) -> Any:
        raise OperationalError("the server closed the connection")

    source.push(make_batch("agent-1", "n1"))
    with monkeypatch.context() as patch:
        patch.setattr(samples, "copy", away)
        with pytest.raises(OperationalError):
            tasks.write(0)
    assert stream.backlog(0) == 1
    tasks.write(0)
    assert stored_rows() == 8


def test_partitions_are_made_ahead_and_dropped_past_retention(source: Source) -> None:
    now = datetime.now(UTC)
    old = samples.partitions_for(
        TABLES["gpu_sample"], np.array([time.time() - 15 * 86_400]), timedelta(hours=1)
    )
    with connection.cursor() as cursor:
        samples.create_partitions(cursor.cursor, old)
    tasks.keep_partitions()
    for table in TABLES:
        found = partitions(table)
        assert not set(old) & set(found)
        assert found[0].start <= now
        assert found[-1].end >= now + timedelta(hours=2)


def test_keeping_partitions_twice_changes_nothing(db: None) -> None:
    tasks.keep_partitions()
    before = partitions()
    tasks.keep_partitions()
    assert partitions() == before


def test_a_changed_width_fits_new_partitions_between_old_ones(db: None) -> None:
    def make(hour: int, minute: int, width: timedelta) -> None:
        at = datetime(2026, 5, 1, hour, minute, tzinfo=UTC).timestamp()
        wanted = samples.partitions_for(TABLES["gpu_sample"], np.array([at]), width)
        with connection.cursor() as cursor:
            samples.create_partitions(cursor.cursor, wanted)

    make(10, 20, timedelta(minutes=10))
    make(10, 0, timedelta(hours=1))
    found = [(p.start.strftime("%H:%M"), p.end.strftime("%H:%M")) for p in partitions()]
    assert found == [("10:00", "10:20"), ("10:20", "10:30"), ("10:30", "11:00")]


@pytest.mark.django_db(transaction=True)
def test_two_who_create_the_same_partition_do_not_collide() -> None:
    at = np.array([datetime(2026, 6, 1, 10, tzinfo=UTC).timestamp()])
    wanted = samples.partitions_for(TABLES["gpu_sample"], at, timedelta(hours=1))
    parameters = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname")
    connect = {name: parameters[name] for name in names}

    def create(held: threading.Event | None) -> None:
        with psycopg.connect(**connect) as mine, mine.cursor() as cursor:
            samples.create_partitions(cursor, wanted)
            if held is not None:
                held.set()
                time.sleep(0.3)  # the other one looks now

    held = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(create, held)
        assert held.wait(60)
        second = pool.submit(create, None)
        first.result(60)
        second.result(60)
    try:
        assert set(wanted) <= set(partitions())
    finally:
        with connection.cursor() as cursor:
            samples.drop(cursor.cursor, wanted[0].name)
