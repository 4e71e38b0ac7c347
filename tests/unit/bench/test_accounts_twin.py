"""The account of a fleet of the twin is what the twin knows that its GPUs did."""

from __future__ import annotations

import pytest

from admission.core.account import Cause
from bench.accounts_fleet import Played
from bench.accounts_twin import compare, played


@pytest.fixture(scope="module")
def play() -> Played:
    return played(256, 0.5)


def test_the_truth_itself_adds_up(play: Played) -> None:
    assert sum(play.truth.values()) == pytest.approx(256 * 1800.0)


def test_with_reports_each_cause_is_within_one_percent_of_all_time(play: Played) -> None:
    found = compare(play)
    errors = {each: found.error(each) for each in {*found.account, *found.truth}}
    assert max(errors.values()) < 0.01, errors
    # It is no fleet in which nothing happens.
    assert {Cause.STARTING, Cause.OUTSIDE_STEPS, Cause.SYNCHRONIZATION} <= found.truth.keys()
    assert any(each.startswith("throttled_") for each in found.truth)


def test_without_reports_work_is_told_within_five_percent(play: Played) -> None:
    found = compare(play, are_told=False)
    held = [cause for cause in Cause if cause in {*found.account, *found.truth}]
    throttled = [each for each in {*found.account, *found.truth} if each.startswith("throttled_")]
    assert found.error(*held, *throttled) < 0.01
    assert Cause.PRODUCTIVE not in found.account
    assert abs(found.account[Cause.BUSY] - found.truth[Cause.PRODUCTIVE]) < 0.05 * found.whole
    # Most of the loading is seen as such.
    assert found.account[Cause.LOW_DRAW] > 0.5 * found.truth[Cause.STARTING]


@pytest.mark.slow
def test_four_hours_in_which_nodes_are_lost_and_jobs_are_capped_and_paused() -> None:
    play = played(2_048, 4.0, seed=2)
    found = compare(play)
    errors = {each: found.error(each) for each in {*found.account, *found.truth}}
    assert max(errors.values()) < 0.01, errors
    for cause in (Cause.REPEATED, Cause.CAPPED, Cause.PAUSED):
        assert found.truth[cause] > 0.0
    silent = compare(play, are_told=False)
    assert abs(silent.account[Cause.BUSY] - silent.truth[Cause.PRODUCTIVE]) < 0.05 * silent.whole
