"""Times of which an agent has no readings are noted as its silences, and nothing else is."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from telemetry.models import Agent, AgentSilence
from telemetry.rollups.spec import MAX_GAP_S
from telemetry.silences import merged
from telemetry.writer import Writer
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything

HOUR_S = 3600.0


@pytest.fixture
def now() -> float:
    return time.time()


def push(source: Source, seq: int, *ts: float, boot_id: str = "boot-1") -> None:
    answer = source.push(make_batch("agent-1", "n1", seq, ts=list(ts), boot_id=boot_id))
    assert answer.status_code == 202, answer.content


def silences(now: float) -> list[tuple[int, int]]:
    """Return the silences as seconds before ``now``, the first first."""
    rows = AgentSilence.objects.order_by("since").values_list("since", "until")
    return [(round(now - a.timestamp()), round(now - b.timestamp())) for a, b in rows]


def test_an_agent_that_comes_back_after_an_hour_was_silent_for_it(
    source: Source, now: float
) -> None:
    push(source, 1, now - 2 * HOUR_S)
    drain_everything()
    push(source, 2, now - HOUR_S, now - HOUR_S + 60.0)
    drain_everything()
    assert silences(now) == [(7200, 3600)]
    assert AgentSilence.objects.get().agent == source.agent


def test_readings_no_further_apart_than_they_may_be_leave_no_silence(
    source: Source, now: float
) -> None:
    for seq, ago in enumerate((500.0, 500.0 - MAX_GAP_S, 150.0, 0.0), start=1):
        push(source, seq, now - ago)
        drain_everything()
    assert silences(now) == []


def test_an_agent_that_was_never_heard_before_was_not_silent(source: Source, now: float) -> None:
    Agent.objects.update(created_at=source.agent.created_at - timedelta(days=9))
    push(source, 1, now)
    drain_everything()
    assert silences(now) == []


def test_one_writer_and_a_writer_for_each_batch_find_the_same(source: Source, now: float) -> None:
    writer = Writer(0)
    for seq, ago in enumerate((9000.0, 8990.0, 4000.0, 3990.0, 0.0), start=1):
        push(source, seq, now - ago)
        writer.step()
    found = silences(now)
    assert found == [(8990, 4000), (3990, 0)]


def test_a_silence_between_batches_that_come_together_is_noted(source: Source, now: float) -> None:
    for seq, ago in enumerate((9000.0, 8990.0, 4000.0), start=1):
        push(source, seq, now - ago)
    drain_everything()
    assert silences(now) == [(8990, 4000)]


def test_what_waited_on_the_agents_disk_was_no_silence(source: Source, now: float) -> None:
    push(source, 1, now - HOUR_S)
    drain_everything()
    # An hour later all of it comes, in order.
    for seq in range(2, 26):
        push(source, seq, now - HOUR_S + (seq - 1) * 150.0)
    drain_everything()
    assert silences(now) == []


@pytest.mark.parametrize("is_new_writer", [False, True])
def test_readings_that_come_out_of_order_take_their_time_out_of_a_silence(
    source: Source, now: float, is_new_writer: bool
) -> None:
    writer = Writer(0)
    push(source, 1, now - 7200.0)
    push(source, 4, now)
    writer.step()
    assert silences(now) == [(7200, 0)]
    push(source, 2, now - 5000.0, now - 4900.0, now - 4800.0)
    push(source, 3, now - 300.0)
    (Writer(0) if is_new_writer else writer).step()
    assert silences(now) == [(7200, 5000), (4800, 300), (300, 0)]


def test_a_batch_that_is_sent_twice_changes_nothing(source: Source, now: float) -> None:
    for _ in range(2):
        push(source, 1, now - HOUR_S)
        push(source, 2, now)
        drain_everything()
    assert silences(now) == [(3600, 0)]


def test_spans_are_one_where_they_are_no_further_apart_than_readings_may_be() -> None:
    spans = [(400.0, 500.0), (0.0, 10.0), (5.0, 20.0), (20.0 + MAX_GAP_S, 210.0)]
    assert merged(spans) == [(0.0, 210.0), (400.0, 500.0)]
    assert merged([]) == []
