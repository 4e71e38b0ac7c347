"""The joint peak of gangs: never under their draw, and their peaks where little is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.allocation.joint import Parts, joint_peak_w, learned
from admission.core.allocation.reservation import BIN_EDGES_W

WATTS = st.floats(0.0, 1000.0)


def parts(count: int = 4, **given: Any) -> Parts:
    """Return gangs of kinds of their own on one budget: 500 W, 600 W at most, of 1,000 W."""
    fields: dict[str, Any] = {
        "budget": np.zeros(count, dtype=np.int64),
        "gang": np.arange(count),
        "kind": np.arange(count),
        "drawn_w": np.full(count, 450.0),
        "mean_w": np.full(count, 500.0),
        "high_w": np.full(count, 600.0),
        "deviation_w": np.full(count, 40.0),
        "peak_w": np.full(count, 1000.0),
        "samples": np.full(count, 1e9),
    }
    return Parts(**fields | {name: np.asarray(value) for name, value in given.items()})


def peak_w(found: Parts) -> float:
    return float(joint_peak_w(found, 1)[0])


@st.composite
def any_parts(draw: st.DrawFn) -> Parts:
    count = draw(st.integers(1, 8))

    def watts() -> Any:
        return np.array(draw(st.lists(WATTS, min_size=count, max_size=count)))

    def codes(most: int) -> Any:
        return np.array(draw(st.lists(st.integers(0, most), min_size=count, max_size=count)))

    mean_w = watts()
    mean_w[codes(3) == 0] = np.nan
    return Parts(
        budget=codes(1),
        gang=codes(3),
        kind=codes(2),
        drawn_w=watts(),
        mean_w=mean_w,
        high_w=mean_w + watts(),
        deviation_w=watts(),
        peak_w=watts(),
        samples=np.array(draw(st.lists(st.floats(0.0, 1e3), min_size=count, max_size=count))),
    )


@given(any_parts())
def test_it_is_never_under_what_is_drawn_nor_over_all_peaks(found: Parts) -> None:
    joint_w = joint_peak_w(found, 2)
    for budget in (0, 1):
        here = found.budget == budget
        drawn_w = found.drawn_w[here].sum()
        assert joint_w[budget] >= drawn_w - 1e-9
        top_w = found.peak_w[here].sum()
        assert joint_w[budget] <= max(top_w, drawn_w) + 1e-9


@settings(max_examples=1_000)
@given(any_parts(), st.floats(0.0, 100.0))
def test_what_is_seen_more_often_reserves_no_more(found: Parts, more: float) -> None:
    again = replace(found, samples=found.samples + more)
    assert (joint_peak_w(again, 2) <= joint_peak_w(found, 2) + 1e-9).all()


@given(any_parts())
def test_what_was_never_seen_reserves_its_peak(found: Parts) -> None:
    joint_w = joint_peak_w(replace(found, samples=np.zeros(len(found.gang))), 2)
    for budget in (0, 1):
        here = found.budget == budget
        top_w = found.peak_w[here].sum()
        assert joint_w[budget] == pytest.approx(max(top_w, found.drawn_w[here].sum()))


@given(any_parts(), WATTS)
def test_who_is_held_under_a_cap_reserves_no_more_than_it(found: Parts, held_w: float) -> None:
    held = replace(found, peak_w=np.minimum(found.peak_w, held_w))
    drawn_w = np.bincount(found.budget, found.drawn_w, 2)
    most_w = np.maximum(held_w * np.bincount(found.budget, minlength=2), drawn_w)
    assert (joint_peak_w(held, 2) <= most_w + 1e-9).all()


def test_gangs_do_not_peak_together_and_the_parts_of_one_do() -> None:
    assert peak_w(parts()) == pytest.approx(2000.0 + 200.0, rel=1e-4)
    assert peak_w(parts(gang=np.zeros(4, dtype=np.int64))) == pytest.approx(2400.0, rel=1e-4)
    assert peak_w(parts(count=1)) == pytest.approx(600.0, rel=1e-4)


def test_what_is_not_known_of_a_kind_is_not_known_of_any_of_its_gangs() -> None:
    few = np.full(4, 9.0)
    apart = peak_w(parts(samples=few))
    together = peak_w(parts(samples=few, kind=np.zeros(4, dtype=np.int64)))
    assert 2200.0 < apart < together <= 4000.0


def test_a_gang_alone_stays_at_its_peak_until_it_was_seen_five_times() -> None:
    seen = [peak_w(parts(count=1, samples=[float(n)])) for n in (0, 1, 4, 6, 20, 1000)]
    assert seen[:3] == [1000.0] * 3
    assert 600.0 < seen[5] < seen[4] < seen[3] < 1000.0


def test_budgets_are_told_apart() -> None:
    found = parts(budget=np.array([0, 1, 1, 3]))
    assert joint_peak_w(found, 4) == pytest.approx([600.0, 1141.4, 0.0, 600.0], rel=1e-3)


@pytest.mark.parametrize("gangs", [1, 4, 16])
def test_it_is_kept_99_of_100_times_by_gangs_that_swing_as_they_did(gangs: int) -> None:
    """Gangs in two phases, as evaluations and steps: what was seen of each is its own past."""
    rng = np.random.default_rng(gangs)
    low_w, high_w = rng.uniform(200.0, 400.0, gangs), rng.uniform(450.0, 700.0, gangs)
    busy = rng.uniform(0.1, 0.9, gangs)
    draws_w = np.where(rng.random((20_000, gangs)) < busy, high_w, low_w)
    seconds = np.zeros((gangs, len(BIN_EDGES_W)))
    for gang in range(gangs):
        bins = np.searchsorted(BIN_EDGES_W, draws_w[:10_000, gang], side="left")
        seconds[gang] = np.bincount(bins, minlength=len(BIN_EDGES_W))
    seen = learned(
        seconds, np.zeros_like(seconds), np.zeros(gangs), at_work_w=np.zeros(gangs),
        edges_w=BIN_EDGES_W, sample_s=20.0,
    )  # fmt: skip
    reserved_w = peak_w(
        parts(
            gangs,
            drawn_w=low_w,
            mean_w=seen.mean_w,
            high_w=seen.high_w,
            deviation_w=seen.deviation_w,
            samples=seen.samples,
        )
    )
    assert (draws_w[10_000:].sum(axis=1) <= reserved_w).mean() >= 0.99
    if gangs == 16:
        assert reserved_w < 0.95 * seen.high_w.sum()


def test_its_own_readings_count_more_the_longer_they_are() -> None:
    own, like = np.zeros((3, len(BIN_EDGES_W))), np.zeros((3, len(BIN_EDGES_W)))
    own[:, 10] = [0.0, 300.0, 30_000.0]
    like[:, 20] = 5e5
    ended = np.array([4.0, 4.0, 4.0])
    seen = learned(own, like, ended, at_work_w=np.zeros(3), edges_w=BIN_EDGES_W)
    assert seen.mean_w == pytest.approx([525.0, 400.0, 275.0 + 250.0 / 101.0])
    assert seen.high_w.tolist() == [525.0, 525.0, 275.0]
    assert seen.samples == pytest.approx([4.0, 5.0, 104.0])
    nothing = learned(0 * own, 0 * like, ended, at_work_w=np.zeros(3), edges_w=BIN_EDGES_W)
    assert np.isnan(nothing.mean_w).all()
    assert nothing.samples.tolist() == [0.0] * 3


def test_readings_of_what_has_only_been_quiet_are_no_samples_of_it() -> None:
    own = np.zeros((3, len(BIN_EDGES_W)))
    own[:, 10], own[1:, 20] = 780.0, [7.0, 20.0]  # quiet, hardly begun, and at work
    nobody = np.zeros_like(own)
    seen = learned(own, nobody, np.zeros(3), at_work_w=np.full(3, 500.0), edges_w=BIN_EDGES_W)
    assert seen.samples == pytest.approx([0.0, 0.0, 800.0 / 300.0])
    quiet = seen.rows(slice(2))
    found = parts(2, mean_w=quiet.mean_w, high_w=quiet.high_w, samples=quiet.samples)
    assert peak_w(replace(found, deviation_w=quiet.deviation_w)) == 2000.0
    # What ended of its kind was seen, whatever it does itself so far.
    like = np.tile(own[2], (3, 1))
    seen = learned(own, like, np.full(3, 4.0), at_work_w=np.full(3, 500.0), edges_w=BIN_EDGES_W)
    assert seen.samples[0] == pytest.approx(4.0)
