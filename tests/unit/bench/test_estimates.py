"""How ranges of starts are judged."""

from __future__ import annotations

import numpy as np
import pytest

from bench.estimates_told import Told, baselines, judged, pinball_s
from tests.unit.bench.test_backfill import made_window


def test_losses_are_those_of_quantiles() -> None:
    ranges = np.array([[100.0, 200.0, 300.0]])
    assert pinball_s(ranges, np.array([200.0])) == pytest.approx((0.1 * 100.0 + 0.1 * 100.0) / 3.0)
    assert pinball_s(ranges, np.array([50.0])) == pytest.approx(
        (0.9 * 50.0 + 0.5 * 150.0 + 0.1 * 250.0) / 3.0
    )


def test_baselines_know_only_waits_that_were_over() -> None:
    told = Told(
        at_s=np.array([0.0, 10.0, 200.0, 200.0]),
        waited_s=np.array([100.0, 500.0, 60.0, 60.0]),
        gpus=np.array([1.0, 8.0, 1.0, 8.0]),
        ranges=np.zeros((4, 3)),
    )
    found = baselines(told)
    np.testing.assert_allclose(found["history"], [[0.0] * 3] * 2 + [[100.0] * 3] * 2)
    np.testing.assert_allclose(found["by_class"], [[0.0] * 3] * 2 + [[100.0] * 3, [0.0] * 3])
    assert (found["now"] == 0.0).all()
    assert found["constant"][0, 1] == np.median(told.waited_s)


def test_a_window_is_told_ranges_that_hold_and_are_better_than_baselines() -> None:
    found = judged(made_window(count=120))
    assert found["told"] > 50
    assert 0.6 < found["coverage"] < 1.0
    assert found["loss_ratio"] < 1.0
    assert found["knowable_loss_ratio"] <= found["loss_ratio"]
    assert sum(each["told"] for each in found["classes"].values()) == found["told"]
