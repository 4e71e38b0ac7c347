"""Files of the cold tier give back what was written, to the last bit, and are small."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from pytest_django import Settings

from telemetry import samples
from telemetry.cold import scan
from telemetry.cold.catalog import File
from telemetry.cold.encoding import to_parquet
from telemetry.cold.places import place
from telemetry.samples import Table
from telemetry.store.columns import Columns, Window, columns_of, dtype_of, null_of
from telemetry.store.hot import IdRange

T0_US = 1_800_000_000_000_000
EVER = Window(0, 4e9)

ReadBack = Callable[..., Columns]


@pytest.fixture
def read_back(settings: Settings, tmp_path: Path) -> ReadBack:
    """Writes rows to a file and reads some of them as the cold tier's readers do."""
    settings.TELEMETRY_COLD_URL = str(tmp_path)
    return _written_and_read


def _written_and_read(
    table: Table, rows: Columns, ids: Any = None, window: Window = EVER, columns: Any = None
) -> Columns:
    place().put("t/a.parquet", to_parquet(table, rows))
    names = [column.name for column in table.columns]
    entry = File(1, "t/a.parquet", tuple(columns or names), 0, 2**31 - 1)
    (found,) = scan.fetch([entry], table, names, window, ids)
    return found


def make_rows(table: Table, count: int, **given: Any) -> Columns:
    """Return ``count`` rows of one thing, 10 s apart, all null but for ``given``."""
    rows = {
        c.name: np.full(count, null_of(dtype_of(c)), dtype_of(c))
        for c in columns_of(table, [c.name for c in table.columns])
    }
    rows["ts"] = T0_US + 10_000_000 * np.arange(count)
    rows[table.key] = np.full(count, 1, "i4")
    for name, values in given.items():
        rows[name] = np.broadcast_to(values, count).astype(rows[name].dtype)
    return rows


def assert_same(found: Columns, rows: Columns) -> None:
    for name, values in rows.items():
        assert found[name].dtype == values.dtype, name
        assert found[name].tobytes() == values.tobytes(), name


_DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.just(float("nan"))
_FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.just(float("nan"))
_DECIMALS = st.integers(-(10**6), 10**6).map(lambda whole: whole / 1000)


@effort(max_examples=40, deadline=None)
@given(st.lists(st.tuples(_DOUBLES | _DECIMALS, _DECIMALS, _FLOATS | _DECIMALS), min_size=1))
def test_any_floats_come_back_to_the_last_bit(values: list[tuple[float, float, float]]) -> None:
    power, energy, temp = zip(*values, strict=True)
    rows = make_rows(samples.METER, len(values), power_w=power, energy_j=energy, temp_c=temp)
    data = pl.read_parquet(to_parquet(samples.METER, rows))
    for name in ("power_w", "energy_j", "temp_c"):
        exact = data[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        assert exact.astype(rows[name].dtype).tobytes() == rows[name].tobytes()


@effort(max_examples=15, deadline=None)
@given(st.lists(st.none() | st.integers(0, 2**63 - 1), min_size=1))
def test_any_counters_come_back(values: list[int | None]) -> None:
    null = int(np.iinfo("i8").min)
    given_values = [null if value is None else value for value in values]
    rows = make_rows(samples.JOB, len(values), step=given_values)
    assert pl.read_parquet(to_parquet(samples.JOB, rows))["step"].to_list() == values


def test_a_reader_gets_arrays_of_the_tables_types(read_back: ReadBack) -> None:
    rng = np.random.default_rng(7)
    rows = make_rows(
        samples.GPU,
        5_000,
        power_w=rng.uniform(80, 700, 5_000).round(2),
        energy_j=np.cumsum(rng.uniform(800, 7000, 5_000)).round(3),
        nvlink_tx=rng.uniform(0, 4e11, 5_000),
        temp_c=np.where(rng.random(5_000) < 0.01, np.nan, rng.integers(30, 87, 5_000)),
        throttle=rng.choice([0, 4, 64], 5_000),
        xid=np.where(rng.random(5_000) < 0.999, np.iinfo("i4").min, 79),
        mem_used=rng.integers(0, 80 * 2**30, 5_000),
    )
    assert_same(read_back(samples.GPU, rows), rows)


def test_a_reader_gets_the_things_and_times_it_asks_for(read_back: ReadBack) -> None:
    rows = make_rows(samples.METER, 300, power_w=np.arange(300.0))
    rows["meter_id"] = np.repeat(np.array([1, 2, 3], "i4"), 100)
    rows["ts"] = np.tile(rows["ts"][:100], 3)
    window = Window(T0_US / 1e6 + 10, T0_US / 1e6 + 30)
    for ids, found in ((IdRange(2, 3), [101, 102]), ([1, 3], [1, 2, 201, 202]), ([9], [])):
        assert read_back(samples.METER, rows, ids, window)["power_w"].tolist() == found


def test_a_column_that_is_newer_than_the_file_is_missing(read_back: ReadBack) -> None:
    rows = make_rows(samples.METER, 3, power_w=[1, 2, 3])
    found = read_back(samples.METER, rows, columns=("ts", "meter_id", "power_w"))
    assert np.isnan(found["temp_c"]).all()
    assert found["temp_c"].dtype == "f4"


def test_values_of_a_sensors_resolution_are_written_as_decimals() -> None:
    rows = make_rows(samples.GPU, 100, power_w=np.arange(100) / 100 + 600, temp_c=60)
    schema = pq.read_schema(io.BytesIO(to_parquet(samples.GPU, rows)))
    assert str(schema.field("power_w").type).startswith("decimal")
    rows["power_w"][3] = np.float32(np.pi)
    schema = pq.read_schema(io.BytesIO(to_parquet(samples.GPU, rows)))
    assert str(schema.field("power_w").type) == "float"


def test_noise_is_compressed_by_brotli_and_all_else_by_zstandard(read_back: ReadBack) -> None:
    rng = np.random.default_rng(7)
    count = 20_000
    noisy = (4.5e10 * rng.normal(1, 0.03, count)).astype("f4")
    rows = make_rows(samples.GPU, count, nvlink_tx=noisy, temp_c=np.arange(count) % 7 + 60)
    data = to_parquet(samples.GPU, rows)
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    codecs = {column.path_in_schema: column.compression for column in columns}
    assert codecs.pop("nvlink_tx") == "BROTLI"
    assert set(codecs.values()) == {"ZSTD"}
    assert_same(read_back(samples.GPU, rows), rows)


def test_readings_of_a_steady_gpu_take_a_few_bytes_a_row() -> None:
    rng = np.random.default_rng(7)
    count = 20_000
    rows = make_rows(
        samples.GPU,
        count,
        power_w=(600 + rng.normal(0, 2, count)).round(1),
        temp_c=60 + (np.arange(count) // 500) % 3,
        sm_mhz=1980,
        mem_mhz=2619,
        util=100,
        power_limit_w=700,
        throttle=0,
    )
    assert len(to_parquet(samples.GPU, rows)) / count < 2.5
