from __future__ import annotations

import numpy as np
import pytest

from admission.core.curtailment import baseline_of

TIMES = np.arange(0.0, 7200.0, 10.0)


def test_it_is_the_mean_of_the_last_ten_minutes() -> None:
    watts = np.where(TIMES > 6590.0, 900.0, 100.0)
    found = baseline_of(TIMES, watts, until=7190.0, every_s=10.0)
    assert found is not None
    assert (found.watts, found.spread_w, found.seconds) == (900.0, 0.0, 600.0)


def test_what_was_drawn_under_another_curtailment_does_not_count() -> None:
    watts = np.where((TIMES >= 6000.0) & (TIMES < 7000.0), 500.0, 1000.0)
    spans = [(6000.0, 7000.0)]
    found = baseline_of(TIMES, watts, until=7190.0, every_s=10.0, without=spans)
    assert found is not None
    assert found.watts == 1000.0


def test_what_comes_later_or_was_not_read_does_not_count() -> None:
    watts = np.where(TIMES > 3600.0, 5000.0, 1000.0)
    watts[:300] = np.nan
    found = baseline_of(TIMES, watts, until=3600.0, every_s=10.0)
    assert found is not None
    assert found.watts == pytest.approx(1000.0)


def test_without_a_minute_of_readings_there_is_none() -> None:
    watts = np.full(len(TIMES), np.nan)
    watts[-5:] = 1000.0
    assert baseline_of(TIMES, watts, until=7190.0, every_s=10.0) is None
    assert baseline_of(TIMES, np.ones(len(TIMES)), until=2e4, every_s=10.0) is None
