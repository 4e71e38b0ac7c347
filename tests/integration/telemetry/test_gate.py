"""Good batches are taken before Django, together; whatever else they may be is handed on."""

from __future__ import annotations

import time

import msgspec
import pytest
import zstandard
from pytest_django import Settings

from headroom.contracts import encode_batch
from telemetry import gate, stream
from telemetry.gate import Post
from telemetry.metrics import BATCHES
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything


def make_post(source: Source, body: bytes, *, encoding: str = "", token: str = "") -> Post:
    return Post(f"Bearer {token or source.token}", "application/msgpack", encoding, body)


def good(source: Source, seq: int) -> Post:
    return make_post(source, encode_batch(make_batch("agent-1", "n1", seq)))


def test_a_good_batch_is_taken(source: Source) -> None:
    body = zstandard.compress(encode_batch(make_batch("agent-1", "n1")))
    (answer,) = gate.take_all([make_post(source, body, encoding="zstd")])
    assert answer is not None
    ack = msgspec.json.decode(answer)
    assert ack["durable_seq"] == 0
    assert ack["received_at"] == pytest.approx(time.time(), abs=60)
    assert drain_everything() == 1


def test_good_batches_of_one_moment_are_taken_together_and_bad_ones_are_handed_on(
    source: Source,
) -> None:
    accepted = BATCHES.labels("accepted")
    before = accepted._value.get()
    answers = gate.take_all(
        [
            good(source, 1),
            make_post(source, b"no batch"),
            good(source, 2),
            make_post(source, encode_batch(make_batch("agent-1", "n9"))),
            make_post(source, encode_batch(make_batch("agent-1", "n1")), token="hra_unknown"),
            make_post(source, b"", encoding="br"),
            good(source, 3),
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
    answers = gate.take_all([good(source, seq) for seq in (1, 2, 3)])
    assert [answer is not None for answer in answers] == [True, True, False]
    assert stream.backlog(0) == 2


def test_a_redis_that_was_started_anew_costs_no_answer(source: Source) -> None:
    gate.take_all([good(source, 1)])
    connection = stream.connection()
    connection.script_flush()
    connection.client_kill_filter(_type="normal", skipme=True)
    answers = gate.take_all([good(source, 2), good(source, 3)])
    assert None not in answers
    assert stream.backlog(0) == 3
