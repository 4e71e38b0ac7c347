"""What was answered is stored once, whatever dies in between."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pytest_django import Settings

from fleet.models import Gpu
from telemetry import stream
from telemetry.ingest import inbox
from telemetry.ingest.rows import Place, Rows
from telemetry.models import Agent, IngestPosition, PushedRequest
from tests.integration.telemetry.conftest import (
    Source,
    drain_everything,
    forward_everything,
    make_node,
)
from tests.integration.telemetry.test_ingest import stored

NOW = time.time()


def put(agent: Agent, digest: bytes, rows: Rows | None = None, *, at: float = NOW) -> bool:
    return inbox.put(agent.pk, digest, rows or one_row(), at)


def one_row(power_w: float = 400.0, *, ts: float = NOW, node: str = "n1") -> Rows:
    return {(Place(node, 0), ts): {"power_w": power_w}}


def powers() -> list[float]:
    return [row[2] for row in stored()]


def test_a_request_is_kept_until_it_is_stored_and_known_after(source: Source) -> None:
    assert put(source.agent, b"a")
    assert not put(source.agent, b"a")
    inbox.forward(NOW + 10)
    assert PushedRequest.objects.get().body is not None
    drain_everything()
    inbox.forward(NOW + 11)
    assert PushedRequest.objects.get().body is None
    assert not put(source.agent, b"a")
    forward_everything()
    assert powers() == [400.0]


def test_the_same_request_of_two_agents_is_two(source: Source, stranger: Source) -> None:
    assert put(source.agent, b"a")
    assert put(stranger.agent, b"a", one_row(node="n2"))


def test_it_waits_for_the_rest_of_a_row(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_ASSEMBLY_S = 2.0
    put(source.agent, b"a")
    assert inbox.forward(NOW + 1.9).batches == 0
    put(source.agent, b"b", one_row(500.0, ts=NOW + 1), at=NOW + 1.9)
    # With the oldest of an agent goes all that has come since.
    assert inbox.forward(NOW + 2).batches == 1
    drain_everything()
    assert powers() == [400.0, 500.0]


def test_agents_do_not_wait_for_each_other(source: Source, stranger: Source) -> None:
    put(source.agent, b"a")
    put(stranger.agent, b"a", one_row(node="n2"), at=NOW + 60)
    assert inbox.forward(NOW + 10).batches == 1


def test_what_redis_lost_is_sent_again(source: Source) -> None:
    put(source.agent, b"a")
    put(source.agent, b"b", one_row(500.0, ts=NOW + 1))
    inbox.forward(NOW + 10)
    stream.connection().flushall()
    assert inbox.forward(NOW + 11).batches == 0
    assert inbox.forward(NOW + 30).batches == 1
    drain_everything()
    assert powers() == [400.0, 500.0]


def test_what_was_only_late_is_not_stored_twice(source: Source) -> None:
    put(source.agent, b"a")
    inbox.forward(NOW + 10)
    inbox.forward(NOW + 30)
    assert stream.backlog(0) == 2
    drain_everything()
    assert powers() == [400.0]


def test_what_stays_unstored_is_sent_ever_more_seldom(source: Source) -> None:
    put(source.agent, b"a")
    sent = [at for at in range(10, 400, 10) if inbox.forward(NOW + at).batches]
    assert sent == [10, 30, 70, 150, 310]


def test_a_forwarder_that_dies_before_it_has_sent_costs_nothing(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*args: object, **kwargs: object) -> None:
        raise SystemExit

    put(source.agent, b"a")
    with monkeypatch.context() as dying:
        dying.setattr(stream, "append", dies)
        with pytest.raises(SystemExit):
            inbox.forward(NOW + 10)
    put(source.agent, b"b", one_row(500.0, ts=NOW + 1))
    forward_everything()
    assert powers() == [400.0, 500.0]


def test_a_forwarder_that_dies_after_it_has_sent_stores_nothing_twice(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = stream.append

    def dies_after(*args: object, **kwargs: object) -> None:
        real(*args, **kwargs)  # type: ignore[arg-type]
        raise SystemExit

    put(source.agent, b"a")
    with monkeypatch.context() as dying:
        dying.setattr(stream, "append", dies_after)
        with pytest.raises(SystemExit):
            inbox.forward(NOW + 10)
    forward_everything()
    assert powers() == [400.0]


def test_a_full_stream_is_tried_again(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_BACKLOG = 1
    put(source.agent, b"a")
    inbox.forward(NOW + 10)
    put(source.agent, b"b", one_row(500.0, ts=NOW + 1))
    assert inbox.forward(NOW + 20).batches == 0
    drain_everything()
    assert inbox.forward(NOW + 21).batches == 1
    drain_everything()
    assert powers() == [400.0, 500.0]


def test_batches_go_on_counting_where_the_digests_are_gone(source: Source) -> None:
    put(source.agent, b"a")
    forward_everything()
    PushedRequest.objects.all().delete()
    put(source.agent, b"b", one_row(500.0, ts=NOW + 1))
    forward_everything()
    assert powers() == [400.0, 500.0]
    assert IngestPosition.objects.get(boot_id=inbox.BOOT_ID).mark == 2


def test_many_rows_are_spread_over_batches(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "_ROWS_PER_BATCH", 2)
    for number in range(5):
        put(source.agent, bytes([number]), one_row(ts=NOW - number))
    assert inbox.forward(NOW + 10).batches == 3
    drain_everything()
    assert len(powers()) == 5


def test_an_agent_of_its_own_boots_may_push_beside(source: Source) -> None:
    from tests.builders.batches import make_batch

    source.push(make_batch("agent-1", "n1", 1, gpus=1))
    put(source.agent, b"a", one_row(ts=NOW - 5))
    forward_everything()
    source.push(make_batch("agent-1", "n1", 2, gpus=1))
    drain_everything()
    assert len(powers()) == 3


def test_a_gpu_that_was_added_a_moment_ago_is_known(source: Source) -> None:
    put(source.agent, b"a")
    forward_everything()
    node = make_node("n7", source.node.rack, Gpu.objects.all()[0].model)
    source.agent.nodes.add(node)
    put(source.agent, b"b", one_row(500.0, node="n7"))
    forward_everything()
    assert sorted(powers()) == [400.0, 500.0]


def test_digests_are_forgotten_but_the_newest(
    source: Source, stranger: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_KNOWN_BATCHES", 2)
    for number in range(4):
        put(source.agent, bytes([number]))
        forward_everything()
    put(stranger.agent, b"a", one_row(node="n2"))
    inbox.forward(NOW + 7200)
    inbox.prune(NOW)
    known = PushedRequest.objects.filter(agent=source.agent).order_by("seq")
    assert [bytes(each.digest) for each in known] == [b"\x02", b"\x03"]
    assert PushedRequest.objects.filter(agent=stranger.agent).exists()


def test_what_cannot_be_stored_for_as_long_as_samples_are_kept_is_given_up(
    source: Source, settings: Settings
) -> None:
    settings.TELEMETRY_RETENTION_H = 1.0
    put(source.agent, b"a")
    inbox.prune(NOW + 3599)
    assert PushedRequest.objects.get().body is not None
    inbox.prune(NOW + 3601)
    assert PushedRequest.objects.get().body is None


@pytest.fixture
def other_session(django_db_blocker: object) -> Iterator[object]:
    """A session of Postgres that is not the test's."""
    import psycopg
    from django.db import connection

    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as session:
        yield session


def test_there_is_one_forwarder_at_a_time(source: Source, other_session: object) -> None:
    import psycopg

    assert isinstance(other_session, psycopg.Connection)
    other_session.execute("SELECT pg_advisory_lock(%s, %s)", inbox._LOCK)
    with inbox.only_one() as held:
        assert not held
    other_session.execute("SELECT pg_advisory_unlock(%s, %s)", inbox._LOCK)
    with inbox.only_one() as held:
        assert held


def test_the_task_forwards_and_asks_for_a_drain(
    source: Source, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from telemetry import tasks

    settings.TELEMETRY_ASSEMBLY_S = 0.0
    asked: list[int] = []
    monkeypatch.setattr("telemetry.tasks.write.delay", asked.append)
    put(source.agent, b"a", at=time.time() - 1)
    tasks.forward_pushed()
    assert asked == [0]
    drain_everything()
    assert powers() == [400.0]


def test_the_inbox_is_asked_to_be_forwarded_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from telemetry import tasks

    asked: list[dict[str, float]] = []
    monkeypatch.setattr(
        "telemetry.tasks.forward_pushed.apply_async", lambda **options: asked.append(options)
    )
    for _ in range(3):
        tasks.ask_for_forward()
    assert asked == [{"countdown": 2.0}]
