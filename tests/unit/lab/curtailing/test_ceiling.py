"""The most work that anybody could leave under a target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lab.curtailing.ceiling import Moment, least_w, most_work
from physics.power import gpu_power_w

FULL_W, STATIC_W, STILL_W, EXPONENT, LINEAR = 550.0, 160.0, 100.0, 7.0, 0.6


def make_moment(lowest: list[float], may_pause: list[bool], **given: Any) -> Moment:
    """Return jobs of eight GPUs each, beside which 1 kW is drawn."""
    count = len(lowest)
    fields: dict[str, Any] = {
        "other_w": 1_000.0,
        "gpus": np.full(count, 8.0),
        "full_w": np.full(count, FULL_W),
        "static_w": np.full(count, STATIC_W),
        "still_w": np.full(count, STILL_W),
        "exponent": np.full(count, EXPONENT),
        "linear_share": np.full(count, LINEAR),
        "lowest_speed": np.array(lowest),
        "may_pause": np.array(may_pause),
    }
    return Moment(**{**fields, **given})


def drawn_w(moment: Moment, speeds: list[float]) -> float:
    watts = gpu_power_w(
        static_w=STATIC_W, dynamic_w=FULL_W - STATIC_W, relative_throughput=np.array(speeds),
        exponent=EXPONENT, linear_share=LINEAR,
    )  # fmt: skip
    return moment.other_w + 8.0 * float(np.sum(watts))


def test_where_all_fits_nothing_is_lost() -> None:
    moment = make_moment([1.0, 0.5], [False, True])
    assert most_work(moment, drawn_w(moment, [1.0, 1.0])) == 16.0
    assert most_work(make_moment([], []), 0.0) == 0.0


def test_jobs_are_slowed_as_far_as_they_agreed() -> None:
    moment = make_moment([1.0, 0.8], [False, False])
    target_w = drawn_w(moment, [1.0, 0.9])
    assert most_work(moment, target_w) == pytest.approx(8.0 + 7.2, rel=1e-6)
    assert most_work(moment, drawn_w(moment, [1.0, 0.8])) == pytest.approx(8.0 + 6.4, rel=1e-6)
    # Nobody agreed to more than that, so it is what is left.
    assert most_work(moment, 0.0) == pytest.approx(14.4)


def test_what_may_stand_still_does_so_for_a_part_of_the_time() -> None:
    moment = make_moment([1.0, 1.0], [False, True])
    half_w = 0.5 * 8.0 * (FULL_W - STILL_W)
    assert most_work(moment, drawn_w(moment, [1.0, 1.0]) - half_w) == pytest.approx(12.0)


def test_no_mixture_of_speeds_and_stops_does_more() -> None:
    rng = np.random.default_rng(7)
    moment = make_moment([0.5, 0.5, 0.9], [True, True, False])
    target_w = drawn_w(moment, [0.7, 0.7, 0.95])
    most = most_work(moment, target_w)
    for _ in range(300):
        speeds = np.append(rng.uniform(0.5, 1.0, 2), rng.uniform(0.9, 1.0))
        stops = np.append(rng.random(2) < 0.4, False)
        watts = gpu_power_w(
            static_w=STATIC_W, dynamic_w=FULL_W - STATIC_W, relative_throughput=speeds,
            exponent=EXPONENT, linear_share=LINEAR,
        )  # fmt: skip
        total_w = moment.other_w + 8.0 * float(np.where(stops, STILL_W, watts).sum())
        if total_w <= target_w:
            # Speeds are looked at in steps of a hundredth.
            assert 8.0 * float(np.where(stops, 0.0, speeds).sum()) <= most + 0.02


def test_at_will_no_less_is_left_than_as_agreed() -> None:
    moment = make_moment([1.0, 0.9, 0.5], [False, False, True])
    target_w = drawn_w(moment, [1.0, 0.8, 0.5])
    assert most_work(moment.at_will(), target_w) > most_work(moment, target_w)


def test_the_least_that_jobs_agreed_to_is_as_slow_as_may_be_or_at_rest() -> None:
    moment = make_moment([1.0, 0.8, 0.5], [False, False, True])
    still_w = 8.0 * STILL_W
    assert least_w(moment) == pytest.approx(drawn_w(moment, [1.0, 0.8]) + still_w)
    assert least_w(make_moment([], [])) == 1_000.0
