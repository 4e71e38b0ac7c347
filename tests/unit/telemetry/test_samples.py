"""COPY's binary form, and partitions by time."""

from __future__ import annotations

import struct
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.samples import (
    JOB,
    METER,
    NULL_INT,
    Rows,
    as_array,
    encode,
    partitions_for,
    width_for,
)


def decode(data: bytes) -> list[tuple[bytes | None, ...]]:
    """Read COPY rows as Postgres does: a count of fields, then the size and bytes of each."""
    rows, at = [], 0
    while at < len(data):
        (fields,) = struct.unpack_from(">h", data, at)
        at += 2
        row: list[bytes | None] = []
        for _ in range(fields):
            (size,) = struct.unpack_from(">i", data, at)
            at += 4
            row.append(None if size < 0 else data[at : at + size])
            at += max(size, 0)
        rows.append(tuple(row))
    return rows


def make_meter_rows(values: list[tuple[float | None, float | None]]) -> Rows:
    columns = [[*column] for column in zip(*values, strict=True)] or [[], []]
    count = len(values)
    return Rows(
        METER,
        {
            "ts": np.arange(count) + 946_684_800.0,
            "meter_id": np.arange(count),
            "power_w": np.array(columns[0], dtype="f8"),
            "energy_j": np.array(columns[1], dtype="f8"),
            "temp_c": np.full(count, np.nan),
        },
    )


_READING = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(_READING, _READING)))
def test_every_row_is_encoded_once_with_its_nulls(
    values: list[tuple[float | None, float | None]],
) -> None:
    found = decode(b"".join(encode(make_meter_rows(values))))
    assert len(found) == len(values)
    by_id = {struct.unpack(">i", row[1] or b"")[0]: row for row in found}
    for i, (power_w, energy_j) in enumerate(values):
        ts, _, *readings = by_id[i]
        assert struct.unpack(">q", ts or b"")[0] == i * 1_000_000
        for given_value, sent in zip((power_w, energy_j, None), readings, strict=True):
            assert (None if sent is None else struct.unpack(">d", sent)[0]) == given_value


def test_rows_of_many_patterns_are_all_encoded() -> None:
    rng = np.random.default_rng(3)
    count = 10_000
    columns = {
        name: np.where(rng.random(count) < 0.3, np.nan, rng.random(count))
        for name in ("power_w", "energy_j", "temp_c")
    }
    columns |= {"ts": np.full(count, 946_684_800.0), "meter_id": np.arange(count)}
    found = decode(b"".join(encode(Rows(METER, columns))))
    by_id = {struct.unpack(">i", row[1] or b"")[0]: row for row in found}
    assert len(found) == len(by_id) == count
    for i in range(count):
        sent = [np.nan if v is None else struct.unpack(">d", v)[0] for v in by_id[i][2:4]]
        assert np.array_equal(sent, [columns["power_w"][i], columns["energy_j"][i]], equal_nan=True)
        assert (by_id[i][4] is None) == np.isnan(columns["temp_c"][i])


def test_large_counters_keep_every_digit() -> None:
    column = next(c for c in JOB.columns if c.name == "step")
    values = [2**62 + 1, None, 0]
    assert as_array(column.dtype, values).tolist() == [2**62 + 1, NULL_INT, 0]


def test_times_fall_into_the_partition_that_holds_them() -> None:
    ts = np.array([0.0, 599.999, 600.0, 3_599.0])
    found = partitions_for(METER, ts, timedelta(minutes=10))
    assert [p.name for p in found] == [
        "meter_sample_19700101_0000",
        "meter_sample_19700101_0010",
        "meter_sample_19700101_0050",
    ]
    assert all(p.end - p.start == timedelta(minutes=10) for p in found)


@pytest.mark.parametrize(
    ("gpus", "minutes"),
    [(0, 60), (1_536, 60), (16_667, 30), (50_000, 20), (100_000, 10), (10**6, 10)],
)
def test_partitions_grow_narrow_with_the_fleet(gpus: int, minutes: int) -> None:
    assert width_for(gpus) == timedelta(minutes=minutes)
