"""The Celery tasks around the writer."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psycopg
import pytest
from celery.signals import worker_shutting_down
from django.db import OperationalError, connection

from headroom.contracts import HostColumns
from telemetry import frame, samples, sql, stream, tasks, writer
from telemetry.models import IngestPosition
from telemetry.samples import TABLES, existing_partitions
from telemetry.sql import PositionsMoved
from telemetry.writer import Writer, only_one
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything


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


# --- From one writer to the next ------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One element for each writer that had to learn everything anew."""
    writers: list[int] = []
    real = Writer.__init__

    def counted(self: Writer, shard: int) -> None:
        writers.append(shard)
        real(self, shard)

    monkeypatch.setattr(Writer, "__init__", counted)
    return writers


def push_and_write(source: Source, *seqs: int) -> None:
    for seq in seqs:
        source.push(make_batch("agent-1", "n1", seq))
        tasks.write(0)


def test_a_writer_goes_on_where_this_process_left_it(
    source: Source, asked: list[int], made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    real = sql.note_agents

    def counted(cursor: Any, notes: list[sql.AgentNote]) -> None:
        noted.append(len(notes))
        real(cursor, notes)

    monkeypatch.setattr(sql, "note_agents", counted)
    push_and_write(source, 1, 2, 3)
    assert len(made) == 1
    # An agent that goes on as before is no news.
    assert noted == [1, 0, 0]
    assert stored_rows() == 24
    assert IngestPosition.objects.get().mark == 3


@pytest.mark.parametrize("has_gpus", [True, False])
def test_a_writer_is_made_anew_where_another_process_has_written(
    source: Source, asked: list[int], made: list[int], has_gpus: bool
) -> None:
    push_and_write(source, 1)
    batch = make_batch("agent-1", "n1", 2)
    if not has_gpus:
        batch.nodes[0].host = HostColumns(ts=[time.time()], cpu_util=[12.5])
        batch.nodes[0].gpus = None
    source.push(batch)
    assert drain_everything() == 1
    push_and_write(source, 3)
    assert len(made) == 3
    assert IngestPosition.objects.get().mark == 3


def test_a_writer_whose_round_failed_is_not_gone_on_with(
    source: Source, asked: list[int], made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    push_and_write(source, 1)
    source.push(make_batch("agent-1", "n1", 2))
    with monkeypatch.context() as patch:
        patch.setattr(sql, "note_agents", raise_error)
        with pytest.raises(OperationalError):
            tasks.write(0)
    tasks.write(0)
    assert len(made) == 2
    assert stored_rows() == 16


def raise_error(*_given: Any) -> None:
    raise OperationalError("the server closed the connection")


def test_no_writer_is_kept_for_good(
    source: Source, asked: list[int], made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    push_and_write(source, 1)
    monkeypatch.setattr(writer, "_LIFE_S", 0.0)
    push_and_write(source, 2)
    assert len(made) == 2


def test_a_redis_that_was_emptied_meanwhile_costs_no_reading_of_the_frame(
    source: Source, stranger: Source, asked: list[int], made: list[int]
) -> None:
    push_and_write(source, 1)
    stranger.push(make_batch("agent-2", "n2", 1))
    tasks.write(0)
    stream.connection().flushall()
    push_and_write(source, 2)
    assert len(made) == 1
    assert np.count_nonzero(frame.read().gpu["ts"]) == 16


def test_an_agent_that_was_deleted_meanwhile_costs_its_own_batches_alone(
    source: Source, stranger: Source, asked: list[int]
) -> None:
    push_and_write(source, 1)
    stranger.push(make_batch("agent-2", "n2", 1))
    source.push(make_batch("agent-1", "n1", 2))
    source.agent.delete()
    with suppress(PositionsMoved):
        tasks.write(0)
    tasks.write(0)
    assert stream.backlog(0) == 0
    assert IngestPosition.objects.get().agent == stranger.agent


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
