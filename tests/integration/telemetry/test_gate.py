"""Good batches are taken before Django, together; whatever else they may be is handed on."""

from __future__ import annotations

import time

import msgspec
import pytest
import zstandard
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from headroom.contracts import encode_batch
from telemetry import gate, intake, naming, stream
from telemetry.gate import Post
from telemetry.metrics import BATCHES
from telemetry.ways_in.requests import agent_of
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything


def make_post(source: Source, body: bytes, *, encoding: str = "", token: str = "") -> Post:
    return Post(f"Bearer {token or source.token}", "application/msgpack", encoding, body)


def good(source: Source, seq: int) -> Post:
    return make_post(source, encode_batch(make_batch("agent-1", "n1", seq)))


@pytest.fixture(autouse=True)
def introduced(source: Source) -> None:
    """Have this process know what the agent's batches name."""
    scope = agent_of(f"Bearer {source.token}")
    intake.take(make_batch("agent-1", "n1", 1), scope, time.time())
    assert drain_everything() == 1


def test_a_batch_that_needs_the_database_is_handed_on(source: Source) -> None:
    batch = make_batch("agent-1", "n1", 2, boot_id="another")
    assert gate.take_all([make_post(source, encode_batch(batch))]) == [None]
    naming.forget()
    assert gate.take_all([good(source, 3)]) == [None]
    assert stream.backlog(0) == 0


def test_good_batches_ask_no_database_each(source: Source) -> None:
    with CaptureQueriesContext(connection) as asked:
        answers = gate.take_all([good(source, seq) for seq in range(2, 42)])
    assert None not in answers
    # What is kept for a while may be looked up again.
    assert len(asked) < 5


def test_a_good_batch_is_taken(source: Source) -> None:
    body = zstandard.compress(encode_batch(make_batch("agent-1", "n1", 2)))
    (answer,) = gate.take_all([make_post(source, body, encoding="zstd")])
    assert answer is not None
    ack = msgspec.json.decode(answer)
    assert ack["durable_seq"] == 1
    assert ack["received_at"] == pytest.approx(time.time(), abs=60)
    assert drain_everything() == 1


def test_good_batches_of_one_moment_are_taken_together_and_bad_ones_are_handed_on(
    source: Source,
) -> None:
    accepted = BATCHES.labels("accepted")
    before = accepted._value.get()
    answers = gate.take_all(
        [
            good(source, 2),
            make_post(source, b"no batch"),
            good(source, 3),
            make_post(source, encode_batch(make_batch("agent-1", "n9"))),
            make_post(source, encode_batch(make_batch("agent-1", "n1")), token="hra_unknown"),
            make_post(source, b"", encoding="br"),
            good(source, 4),
        ]
    )
    assert [answer is not None for answer in answers] == [
        True, False, True, False, False, False, True,
    ]  # fmt: skip
    assert accepted._value.get() == before + 3
    assert stream.backlog(0) == 3
    assert drain_everything() == 3


def test_what_finds_its_share_used_up_is_handed_on_and_the_rest_is_taken(
    source: Source, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = 1
    settings.TELEMETRY_BURST_ROWS_PER_AGENT = 16
    answers = gate.take_all([good(source, seq) for seq in (2, 3, 4)])
    assert [answer is not None for answer in answers] == [True, True, False]
    assert stream.backlog(0) == 2


def test_a_redis_that_was_started_anew_costs_no_answer(source: Source) -> None:
    gate.take_all([good(source, 2)])
    valkey = stream.connection()
    valkey.script_flush()
    valkey.client_kill_filter(_type="normal", skipme=True)
    answers = gate.take_all([good(source, 3), good(source, 4)])
    assert None not in answers
    assert stream.backlog(0) == 3
