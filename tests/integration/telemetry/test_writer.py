"""A round of the writer: what it stores and what it works out meanwhile stand or fall as one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from django.db import connection

from fleet.models import Gpu
from telemetry import frame, samples, stream
from telemetry.sql import array_text
from telemetry.throttle.follower import Follower
from telemetry.writer import Writer
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything
from tests.integration.telemetry.test_ingest import stored

HANGS_S = 60


class Fault(Exception):
    """What went wrong."""


def broken(*_arguments: object) -> Any:
    raise Fault


def test_a_copy_that_fails_is_told_and_the_next_writer_stores_all_once(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.push(make_batch("agent-1", "n1", 1))
    with monkeypatch.context() as patched:
        patched.setattr(samples, "copy", broken)
        with pytest.raises(Fault):
            Writer(0).step()
    assert (len(stored()), stream.backlog(0)) == (0, 1)
    drain_everything()
    assert len(stored()) == 8


def test_what_fails_while_rows_are_written_takes_them_with_it(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    copy = samples.copy

    def slow_copy(cursor: Any, rows: samples.Rows) -> None:
        time.sleep(0.2)
        copy(cursor, rows)
        written.append(rows.table.name)

    source.push(make_batch("agent-1", "n1", 1))
    with monkeypatch.context() as patched:
        patched.setattr(samples, "copy", slow_copy)
        patched.setattr(Follower, "advance", broken)
        with pytest.raises(Fault):
            Writer(0).step()
    # The connection was nobody else's any more when the round was rolled back.
    assert written
    assert (len(stored()), stream.backlog(0)) == (0, 1)
    drain_everything()
    assert len(stored()) == 8


def test_rows_that_wait_for_a_lock_are_given_up_with_the_round(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held_up(cursor: Any, _rows: samples.Rows) -> None:
        cursor.execute(f"SELECT pg_sleep({HANGS_S})")

    source.push(make_batch("agent-1", "n1", 1))
    began = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(samples, "copy", held_up)
        patched.setattr(Follower, "advance", broken)
        with pytest.raises(Fault):
            Writer(0).step()
    assert time.monotonic() - began < HANGS_S
    drain_everything()
    assert len(stored()) == 8


def test_of_several_readings_in_a_round_the_frame_has_the_newest(source: Source) -> None:
    now = time.time()
    for seq, (ago_s, power_w) in enumerate([(20, 200.0), (0, 400.0), (10, 300.0)], start=1):
        source.push(make_batch("agent-1", "n1", seq, ts=[now - ago_s], power_w=[power_w] * 8))
    # Of one moment, the value that came last.
    source.push(make_batch("agent-1", "n1", 4, ts=[now], power_w=[401.0] * 8))
    assert Writer(0).step() == 4
    gpus = np.array(Gpu.objects.values_list("pk", flat=True))
    found = frame.read().fields("gpu", gpus, "power_w")
    assert found["power_w"].tolist() == [401.0] * 8


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("float8", [1.5, None, 1e-300, 0.1, -2.0, float("inf")]),
        ("bigint", [2**63 - 1, None, -(2**63), 0]),
        ("bool", [True, None, False]),
        ("text", ["", "NULL", 'a "b" {c},\\d', "é", None]),
        ("timestamptz", [datetime(2026, 11, 27, 1, 2, 3, 456789, UTC), None]),
        ("int", []),
    ],
)
def test_arrays_come_to_postgres_as_they_are(db: None, kind: str, values: Sequence[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT %s::{kind}[]", [array_text(values)])
        assert cursor.fetchone() == (values,)
