"""The meters that the twin is read with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.calibration import rig
from lab.calibration.swings import GRID_S, at_moments

STEPS = 400


def read(drawn_w: rig.Array, *, seed: int = 3) -> rig.Metered:
    return rig._read(drawn_w, np.random.default_rng(seed))


@given(st.integers(0, 2**32), st.floats(0.0, 1e4))
def test_a_power_that_stays_is_read_as_it_is(seed: int, power_w: float) -> None:
    metered = read(np.full((STEPS, 3), power_w), seed=seed)
    np.testing.assert_allclose(metered.power_w, power_w, rtol=1e-9, atol=1e-6)


def test_a_reading_is_the_mean_of_what_was_drawn_until_then() -> None:
    # Step by step 1 W more: a reading is the power in the middle of its span.
    rising_w = np.arange(STEPS, dtype=np.float64)[:, None] * np.ones(4)
    metered = read(rising_w)
    middle_s = metered.t_s - rig.METER_S / 2.0
    np.testing.assert_allclose(metered.power_w, middle_s / rig.STEP_S - 0.5, atol=0.3)


def test_every_meter_reads_at_instants_of_its_own() -> None:
    metered = read(np.ones((STEPS, 16)))
    assert len(set(metered.t_s[0].tolist())) == 16
    assert np.ptp(metered.t_s[0]) > rig.METER_S / 2.0
    np.testing.assert_allclose(np.diff(metered.t_s, axis=0), rig.READ_EVERY_S)
    assert metered.t_s.max() <= STEPS * rig.STEP_S


def test_the_twin_is_read_only_when_all_meters_of_a_run_are() -> None:
    metered = read(np.arange(STEPS, dtype=np.float64)[:, None] * np.ones(5))
    moments = np.arange(40.0, 1000.0, GRID_S)
    power_w = at_moments(metered, moments)
    seen = moments[: len(power_w)]
    assert seen[-1] == pytest.approx(metered.t_s[-1].min(), abs=GRID_S)
    assert power_w[0] == pytest.approx(np.full(5, 40.0 / rig.STEP_S), abs=3.0)
