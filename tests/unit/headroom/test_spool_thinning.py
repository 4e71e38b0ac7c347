"""What a spool does when it is full, and with batches that are too large."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from headroom.agent.spool import Spool
from headroom.contracts import (
    GpuColumns,
    NodeReport,
    TelemetryBatch,
    encode_batch,
    row_count,
)
from tests.unit.headroom.builders import Clock, make_batch, mark_of

READINGS = 8


def make_readings(mark: int, *, gpus: int = 4) -> TelemetryBatch:
    """A batch of readings that do not compress, as real ones hardly do."""
    chance = random.Random(mark)
    steps = [(mark + i / 10, gpu) for i in range(READINGS) for gpu in range(gpus)]
    block = GpuColumns(
        ts=[t for t, _ in steps],
        gpu=[gpu for _, gpu in steps],
        power_w=[chance.uniform(0, 700) for _ in steps],
        temp_c=[chance.uniform(20, 90) for _ in steps],
    )
    return TelemetryBatch(
        agent="a",
        boot_id="b",
        seq=1,
        oldest_seq=1,
        sent_at=0.0,
        nodes=[NodeReport(node="n1", gpus=block)],
    )


def size_of(batch: TelemetryBatch) -> int:
    return len(zstandard.compress(encode_batch(batch)))


def held(spool: Spool) -> dict[int, int]:
    """Rows by seq."""
    batches = {seq: spool.get(seq) for seq in spool.after(0, 10_000)}
    return {seq: row_count(batch) for seq, batch in batches.items() if batch is not None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.sqlite"


@pytest.fixture
def small(path: Path) -> Iterator[Spool]:
    """A spool with room for ten batches."""
    made = Spool(path, max_bytes=10 * size_of(make_readings(1)))
    yield made
    made.close()


def fill(spool: Spool, count: int) -> int:
    """Put so many batches, and return their rows."""
    return sum(row_count(batch) for i in range(count) if spool.put(batch := make_readings(i)))


def test_a_full_spool_thins_its_oldest_batches_before_it_drops_any(small: Spool) -> None:
    fill(small, 13)
    rows = held(small)
    assert (len(rows), small.dropped) == (13, 0)
    assert rows[1] < 32
    assert rows[13] == 32
    assert small.thinned_rows == 13 * 32 - sum(rows.values())


def test_readings_lie_the_further_apart_the_older_they_are(small: Spool) -> None:
    fill(small, 60)
    rows = list(held(small).values())
    assert rows == sorted(rows)
    assert rows[0] == 4  # one reading of each GPU
    assert rows[-2:] == [32, 32]
    assert sorted(set(rows)) == [4, 8, 16, 32]


def test_a_full_spool_reaches_back_further_than_one_that_only_drops(small: Spool) -> None:
    fill(small, 60)
    assert len(held(small)) > 20
    assert small.dropped == 60 - len(held(small))
    assert small.oldest_seq == small.dropped + 1  # it is the oldest that went


def test_every_row_is_held_thinned_or_in_a_dropped_batch(small: Spool) -> None:
    rows = fill(small, 40)
    # A batch that was dropped in the end had been thinned down to 4 rows before.
    assert rows == sum(held(small).values()) + small.thinned_rows + 4 * small.dropped


def test_a_thinned_batch_keeps_its_seq_and_its_first_readings(small: Spool) -> None:
    fill(small, 15)
    first, whole = small.get(1), make_readings(0)
    assert first is not None
    block, before = first.nodes[0].gpus, whole.nodes[0].gpus
    assert block is not None
    assert before is not None
    assert (first.seq, first.boot_id) == (1, small.boot_id)
    assert (block.ts[:4], block.power_w) != (before.ts, before.power_w)
    assert block.ts[:4] == before.ts[:4]


def test_the_counts_outlive_the_process(path: Path, small: Spool) -> None:
    fill(small, 40)
    counts = (small.thinned_rows, small.dropped, held(small))
    small.close()
    again = Spool(path, max_bytes=10**9)
    assert (again.thinned_rows, again.dropped, held(again)) == counts
    again.close()


def test_a_full_spool_stays_within_its_bytes(small: Spool) -> None:
    for i in range(40):
        small.put(make_readings(i))
        assert small._bytes <= small._max_bytes
    stored = small._db.execute("SELECT sum(length(body)), sum(bytes) FROM batch").fetchone()
    assert stored == (small._bytes, small._bytes)


def test_batches_of_single_readings_are_dropped_from_the_oldest(path: Path) -> None:
    one = size_of(make_batch(1))
    spool = Spool(path, max_bytes=int(10.5 * one))
    for mark in range(30):
        spool.put(make_batch(mark))
    assert (spool.thinned_rows, spool.dropped) == (0, 20)
    assert spool.after(0, 100) == list(range(21, 31))
    spool.close()


def test_what_is_too_old_goes_however_much_room_there_is(path: Path) -> None:
    clock = Clock()
    spool = Spool(path, max_age_s=100, clock=clock)
    spool.put(make_readings(1))
    clock.now += 200
    spool.put(make_readings(2))
    assert (list(held(spool)), spool.dropped, spool.thinned_rows) == ([2], 1, 0)
    spool.close()


def test_the_spool_of_an_older_agent_is_brought_up_to_date(path: Path) -> None:
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE life (boot_id TEXT NOT NULL, dropped INTEGER NOT NULL);"
        "CREATE TABLE batch (seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL,"
        " bytes INTEGER NOT NULL, body BLOB NOT NULL);"
        "INSERT INTO life VALUES ('an-old-life', 5);"
    )
    body = zstandard.compress(encode_batch(make_batch(7)))
    db.execute("INSERT INTO batch (at, bytes, body) VALUES (?, ?, ?)", (1e12, len(body), body))
    db.commit()
    db.close()

    for _ in range(2):
        spool = Spool(path)
        batch = spool.get(1)
        assert batch is not None
        assert mark_of(batch) == 7
        assert (spool.boot_id, spool.dropped, spool.thinned_rows) == ("an-old-life", 5, 0)
        spool.close()


def test_a_batch_that_is_too_large_is_cut_and_nothing_of_it_lost(path: Path) -> None:
    spool = Spool(path)
    spool.put(make_readings(1))
    spool.put(make_readings(2))
    assert spool.split(1)
    assert held(spool) == {1: 16, 2: 32, 3: 16}
    first, second, whole = spool.get(1), spool.get(3), make_readings(1).nodes[0].gpus
    assert first is not None
    assert second is not None
    halves = first.nodes[0].gpus, second.nodes[0].gpus
    assert whole is not None
    watts = [w for half in halves if half is not None for w in half.power_w or []]
    assert watts == whole.power_w
    stored = spool._db.execute("SELECT sum(length(body)), sum(bytes) FROM batch").fetchone()
    assert stored == (spool._bytes, spool._bytes)
    spool.close()


def test_the_second_half_is_as_old_as_the_first(path: Path) -> None:
    clock = Clock()
    spool = Spool(path, max_age_s=100, clock=clock)
    spool.put(make_readings(1))
    clock.now += 60
    spool.split(1)
    clock.now += 60
    spool.put(make_readings(2))
    assert list(held(spool)) == [3]
    spool.close()


def test_a_batch_of_one_row_and_one_that_is_gone_cannot_be_cut(path: Path) -> None:
    spool = Spool(path)
    spool.put(make_batch())
    assert not spool.split(1)
    assert not spool.split(99)
    assert held(spool) == {1: 1}
    spool.close()
