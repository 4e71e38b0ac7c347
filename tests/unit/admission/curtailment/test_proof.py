"""What meters say of a curtailment: in words of its seconds."""

from __future__ import annotations

import numpy as np
import pytest

from admission.core.curtailment import Kept, kept

TIMES = np.arange(2.0, 400.0, 2.0)


def of(watts: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Kept:
    return kept(
        TIMES, watts, target_w=750.0, baseline_w=1000.0, start=100.0, end=300.0, every_s=2.0
    )


def test_a_target_that_is_kept_all_the_time_is_held() -> None:
    found = of(np.where(TIMES > 100.0, 740.0, 1000.0))
    assert (found.verdict, found.is_in_time, found.held_share) == ("held", True, 1.0)
    assert (found.seconds, found.read_s, found.coverage) == (200.0, 200.0, 1.0)
    assert found.not_drawn_j == pytest.approx(200.0 * 260.0)
    assert (found.mean_w, found.worst_over_w) == (740.0, 0.0)


def test_one_that_is_met_a_step_too_late_is_not_in_time() -> None:
    found = of(np.where(TIMES > 102.0, 740.0, 1000.0))
    assert (found.verdict, found.met_after_s) == ("late", 2.0)
    assert found.held_share == pytest.approx(0.99)


def test_one_that_is_not_kept_for_long_enough_is_missed() -> None:
    found = of(np.where((TIMES > 100.0) & (TIMES <= 294.0), 740.0, 800.0))
    assert (found.verdict, found.worst_over_w) == ("missed", 50.0)
    assert found.held_share == pytest.approx(0.97)


def test_what_was_not_read_is_not_held() -> None:
    watts = np.where(TIMES > 100.0, 740.0, 1000.0)
    watts[(TIMES > 150.0) & (TIMES <= 170.0)] = np.nan
    found = of(watts)
    assert (found.verdict, found.coverage) == ("unproven", 0.9)
    assert found.held_s == 180.0
    assert of(np.full(len(TIMES), np.nan)).verdict == "unproven"


def test_one_that_was_never_met_says_so() -> None:
    found = of(np.full(len(TIMES), 900.0))
    assert (found.met_after_s, found.held_s, found.verdict) == (None, 0.0, "missed")
