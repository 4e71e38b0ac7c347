"""The price of a curtailment, worked out by hand for a few jobs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.curtailment.cost import (
    PAUSE,
    SHRINK,
    STOP,
    Asked,
    Candidate,
    Estimate,
    Measure,
    answered,
    estimate,
)


def step(key: str, what: str, saves_w: float, gpus_lost: float, **more: Any) -> Candidate:
    return Candidate(key, "nlp", "training", what, 8, saves_w, gpus_lost, **more)


JOBS = [
    step("a/train", SHRINK, 1000.0, 1.0, is_divisible=True),
    step("a/train", PAUSE, 2000.0, 7.0),
    step("b/train", SHRINK, 1000.0, 2.0),
    step("c/train", STOP, 4000.0, 8.0, again_gpu_s=3600.0),
]


def cost(target_w: float, spread_w: float = 0.0) -> Estimate:
    asked = Asked(target_w=target_w, spread_w=spread_w, lasts_s=7200.0)
    return estimate(JOBS, asked, load_w=10_000.0)


def test_what_loses_the_least_gives_way_first_and_a_cap_only_in_part() -> None:
    found = cost(9_500.0)
    assert [(each.key, each.what, each.saves_w) for each in found.measures] == [
        ("a/train", SHRINK, 500.0)
    ]
    assert found.lost_gpu_h == pytest.approx(0.5 * 1.0 * 2.0)
    assert found.lost_low_gpu_h < found.lost_gpu_h < found.lost_high_gpu_h


def test_pauses_come_after_smaller_batches_and_ends_last() -> None:
    found = cost(6_500.0)
    assert {each.key: each.what for each in found.measures} == {"a/train": PAUSE, "b/train": SHRINK}
    assert found.lost_gpu_h == pytest.approx(2.0 * (8.0 + 2.0))
    ended = cost(4_000.0)
    assert {each.key: each.what for each in ended.measures}["c/train"] == STOP
    assert ended.lost_gpu_h == pytest.approx(2.0 * (8.0 + 2.0 + 8.0) + 1.0)
    assert ended.lost_by("project") == {"nlp": pytest.approx(37.0)}


def test_what_cannot_be_met_says_what_can_be() -> None:
    found = cost(1_000.0)
    assert not found.is_possible
    assert (found.possible_w, found.least_target_w) == (8_000.0, 2_000.0)
    assert found.sure < 0.2


def test_what_is_drawn_already_costs_nothing() -> None:
    found = cost(11_000.0)
    assert (found.need_w, found.lost_gpu_h, found.sure, found.measures) == (0.0, 0.0, 1.0, ())


def test_a_load_that_moves_makes_it_less_sure() -> None:
    calm, moving = cost(3_000.0, spread_w=100.0), cost(3_000.0, spread_w=2_000.0)
    assert 0.5 < moving.sure < calm.sure < 1.0
    assert moving.lost_high_gpu_h - moving.lost_low_gpu_h >= (
        calm.lost_high_gpu_h - calm.lost_low_gpu_h
    )


def test_where_more_is_known_of_who_does_it_the_answer_is_surer() -> None:
    asked = Asked(target_w=3_000.0, spread_w=1_000.0, lasts_s=7200.0)

    def said(doubt: float) -> Estimate:
        def measures(target_w: float) -> tuple[Measure, ...]:
            return (Measure("a/train", "nlp", "training", PAUSE, 8, 1.0, 10.0 - target_w / 1e3),)

        return answered(asked, measures, load_w=10_000.0, possible_w=8_000.0, doubt=doubt)

    known, unknown = said(0.5), said(1.0)
    assert known.lost_gpu_h == unknown.lost_gpu_h == 7.0
    assert known.lost_high_gpu_h - 7.0 == pytest.approx(0.5 * (unknown.lost_high_gpu_h - 7.0))
    assert 0.5 < unknown.sure < known.sure < 1.0
    assert known.is_within(7.0)
    assert not known.is_within(unknown.lost_high_gpu_h)


@given(target_w=st.floats(0.0, 12_000.0), more_w=st.floats(0.0, 5_000.0))
def test_a_lower_target_never_costs_less(target_w: float, more_w: float) -> None:
    assert cost(max(target_w - more_w, 0.0)).lost_gpu_h >= cost(target_w).lost_gpu_h - 1e-9
