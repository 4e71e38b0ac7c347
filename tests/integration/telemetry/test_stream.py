"""The stream between the web processes and the writer: its bounds, and other releases' messages."""

from __future__ import annotations

import msgspec
import pytest
from pytest_django import Settings

from telemetry import stream
from telemetry.sql import PositionsMoved
from telemetry.writer import Writer
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything
from tests.integration.telemetry.test_ingest import stored


def waiting_bytes() -> int:
    return int(stream.connection().get("telemetry:0:bytes") or 0)


def test_a_backlog_of_too_many_bytes_asks_to_come_back(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_BACKLOG_MB = 1
    ts = [float(n) for n in range(700)]  # some 900 kB
    now = make_batch("agent-1", "n1").sent_at
    for seq, status in ((1, 202), (2, 202), (3, 503)):
        batch = make_batch("agent-1", "n1", seq, ts=[now - t for t in ts])
        assert source.push(batch).status_code == status
    drain_everything()
    assert source.push(make_batch("agent-1", "n1", 3)).status_code == 202


def test_the_bytes_that_wait_are_those_of_the_messages_that_wait(source: Source) -> None:
    for seq in (1, 2, 3):
        source.push(make_batch("agent-1", "n1", seq))
    each = waiting_bytes() // 3
    assert each > 1000
    work = Writer(0)
    work.step(limit=1)
    assert waiting_bytes() == pytest.approx(2 * each, abs=3)
    drain_everything()
    assert waiting_bytes() == 0


def test_an_empty_stream_has_no_bytes_whatever_was_lost(source: Source) -> None:
    source.push(make_batch("agent-1", "n1", 1))
    stream.connection().incrby("telemetry:0:bytes", 10**12)
    drain_everything()
    assert waiting_bytes() == 0


def test_messages_that_another_release_wrote_are_dropped_and_hold_up_nobody(
    source: Source,
) -> None:
    source.push(make_batch("agent-1", "n1", 1))
    (entry,) = stream.read(0, 10, 10**6)
    assert entry.message is not None
    entry.message.layout += 1
    for strange in (msgspec.msgpack.encode(entry.message), b"\x93\x01\x02\x03", b"\xc1"):
        stream.connection().xadd("telemetry:0", {"m": strange})
    source.push(make_batch("agent-1", "n1", 2))
    assert drain_everything() == 5
    assert len(stored()) == 16
    assert stream.backlog(0) == 0


def test_a_round_takes_no_more_bytes_than_it_may(source: Source) -> None:
    for seq in range(1, 251):
        source.push(make_batch("agent-1", "n1", seq))
    size = waiting_bytes() // 250
    # Read a hundred at a time, and no more once there are enough bytes.
    assert len(stream.read(0, 1000, 99 * size)) == 100
    assert len(stream.read(0, 1000, 10**9)) == 250
    assert len(stream.read(0, 120, 10**9)) == 120


def test_a_drain_whose_positions_are_not_the_last_word_stores_nothing(source: Source) -> None:
    first, second = Writer(0), Writer(0)
    source.push(make_batch("agent-1", "n1", 1))
    first.step()
    source.push(make_batch("agent-1", "n1", 2))
    second.step()
    source.push(make_batch("agent-1", "n1", 3))
    with pytest.raises(PositionsMoved):
        first.step()
    assert len(stored()) == 16
    assert drain_everything() == 1
    assert len(stored()) == 24


def test_durable_seqs_of_another_life_are_not_given_to_this_one(source: Source) -> None:
    source.push(make_batch("agent-1", "n1", 5, oldest_seq=5, boot_id="first"))
    drain_everything()
    assert source.push(make_batch("agent-1", "n1", 1, boot_id="second")).json()["durable_seq"] == 0
    drain_everything()
    assert source.push(make_batch("agent-1", "n1", 2, boot_id="second")).json()["durable_seq"] == 1
    again = source.push(make_batch("agent-1", "n1", 6, oldest_seq=6, boot_id="first"))
    assert again.json()["durable_seq"] == 5
