"""The readings that stores are compared on: repeatable, in order, with the grain of sensors."""

from __future__ import annotations

import numpy as np
import pytest

from bench.feed import RemoteWrites
from bench.readings import STEP_S, Array, Readings, Step

GPUS = 512


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return list(Readings(GPUS, start_s=1_795_000_000).steps(12))


def test_they_are_the_same_each_time(steps: list[Step]) -> None:
    again = list(Readings(GPUS, start_s=1_795_000_000).steps(12))
    for one, other in zip(steps, again, strict=True):
        np.testing.assert_array_equal(one.ts, other.ts)
        for name, values in one.values.items():
            np.testing.assert_array_equal(values, other.values[name], err_msg=name)


def test_each_gpu_is_read_every_ten_seconds_at_whole_milliseconds(steps: list[Step]) -> None:
    ts = np.stack([step.ts for step in steps])
    np.testing.assert_allclose(np.diff(ts, axis=0), STEP_S, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ts * 1000, np.round(ts * 1000), rtol=0, atol=1e-3)
    assert ts.min() >= 1_795_000_000
    assert ts.max() < 1_795_000_000 + 12 * STEP_S


@pytest.mark.parametrize(
    ("name", "grain"),
    [("power_w", 1e-3), ("energy_j", 1e-3), ("temp_c", 1), ("temp_mem_c", 1), ("sm_mhz", 1)],
)
def test_values_are_multiples_of_what_the_sensor_resolves(
    steps: list[Step], name: str, grain: float
) -> None:
    counts = _known(steps, name) / grain
    np.testing.assert_allclose(counts, np.round(counts), rtol=0, atol=1e-3)


def test_readings_of_busy_parts_change_and_counters_only_grow(steps: list[Step]) -> None:
    power = np.stack([step.values["power_w"] for step in steps])
    rates = np.stack([step.values["nvlink_tx"] for step in steps])
    busy = power.min(axis=0) > 300
    assert busy.sum() > GPUS / 4
    # What its limit holds back draws the same all the time.
    free = busy & (power.max(axis=0) < 0.98 * 700.0)
    assert free.sum() > GPUS / 8
    assert (np.diff(power[:, free], axis=0) != 0).mean() > 0.99
    moving = np.nanmin(rates, axis=0) > 0
    assert (np.diff(rates[:, moving], axis=0) != 0).mean() > 0.99
    energy = np.stack([step.values["energy_j"] for step in steps])
    assert (np.diff(energy, axis=0) > 0).all()


def test_a_narrow_float_keeps_rates_whole(steps: list[Step]) -> None:
    rates = _known(steps, "nvlink_rx")
    # The shortest decimal of the narrow float is the rate itself.
    assert [float(str(value)) for value in rates[:500].astype(np.float32)] == rates[:500].tolist()


def test_remote_writes_carry_each_value_that_there_is(steps: list[Step]) -> None:
    readings = Readings(GPUS, start_s=1_795_000_000)
    writes = RemoteWrites(readings, steps[0])
    assert len(writes.encoded(steps[0])) == GPUS / 64
    assert writes.series == steps[0].count


def _known(steps: list[Step], name: str) -> Array:
    values = np.stack([step.values[name] for step in steps])
    known: Array = values[~np.isnan(values)]
    return known
