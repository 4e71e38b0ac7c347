"""Power curves by hardware model, for arrays of GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.power_curves import UNRATED_GPU_W, power_curves_of

CURVES = power_curves_of(
    ["Tesla V100-PCIE-32GB", "NVIDIA A40-48Q", "NVIDIA A4000", "H100-SXM5-80GB", "mystery"],
    np.array([250.0, 300.0, 140.0, 700.0, np.nan]),
)


def test_a_model_that_was_measured_is_found_by_the_words_of_its_name() -> None:
    assert CURVES.measured.tolist() == [True, True, False, False, False]
    assert CURVES.rated_w.tolist() == [250.0, 300.0, 140.0, 700.0, UNRATED_GPU_W]
    assert CURVES.lowest_w[:4].tolist() == pytest.approx([100.0, 100.0, 70.0, 350.0], abs=0.2)


@given(model=st.integers(0, 4), speed=st.floats(0.05, 1.0), peak_share=st.floats(0.4, 1.0))
def test_a_speed_is_that_of_the_power_that_it_needs(
    model: int, speed: float, peak_share: float
) -> None:
    peak_w = peak_share * CURVES.rated_w[model]
    power_w = CURVES.power_w(model, speed, peak_w)
    assert CURVES.static_w[model] <= power_w <= peak_w * (1.0 + 1e-12)
    assert CURVES.speed(model, power_w, peak_w) == pytest.approx(speed, abs=1e-9)


@given(
    model=st.integers(0, 4),
    agreed=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2).map(sorted),
    peak_share=st.floats(0.1, 1.5),
)
def test_who_agrees_to_more_may_be_capped_lower(
    model: int, agreed: list[float], peak_share: float
) -> None:
    peak_w = peak_share * CURVES.rated_w[model]
    less_w, more_w = CURVES.cap_within_w(model, np.array(agreed), peak_w).tolist()
    assert CURVES.lowest_w[model] <= less_w <= CURVES.rated_w[model]
    assert CURVES.cap_within_w(model, 0.0, peak_w) == CURVES.rated_w[model]
    # A margin that falls from one measured slowdown to the next may lift a cap by as much.
    assert more_w <= 1.03 * less_w


def test_arrays_give_what_single_gpus_give() -> None:
    model = np.array([0, 3, 1, 3])
    agreed, peak_w = np.array([0.1, 0.2, 0.3, 0.1]), np.array([250.0, 600.0, 280.0, 700.0])
    together = CURVES.cap_within_w(model, agreed, peak_w)
    alone = [
        float(CURVES.cap_within_w(*each))
        for each in zip(model.tolist(), agreed.tolist(), peak_w.tolist(), strict=True)
    ]
    assert together.tolist() == alone


def test_a_job_is_at_full_speed_under_a_cap_that_it_never_reaches() -> None:
    assert CURVES.speed(3, np.array([400.0, 500.0]), np.array([400.0, 80.0])).tolist() == [1.0, 1.0]
    assert CURVES.speed(3, 50.0, 400.0) == 0.0
