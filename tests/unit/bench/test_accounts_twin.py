"""The account of a fleet of the twin is what the twin knows that its GPUs did."""

from __future__ import annotations

import pytest

from admission.core.account import Cause
from bench.accounts_twin import Played, compare, played


@pytest.fixture(scope="module")
def play() -> Played:
    return played(256, 0.5)


def test_with_reports_each_cause_is_within_one_percent_of_all_time(play: Played) -> None:
    found = compare(play)
    errors = {each: found.error(each) for each in {*found.account, *found.truth}}
    assert max(errors.values()) < 0.01, errors
    # It is no fleet in which nothing happens.
    assert {Cause.STARTING, Cause.OUTSIDE_STEPS, Cause.SYNCHRONIZATION} <= found.truth.keys()


def test_without_reports_what_nobody_held_is_told_all_the_same(play: Played) -> None:
    found = compare(play, are_told=False)
    held = [cause for cause in Cause if cause in {*found.account, *found.truth}]
    assert found.error(*held) < 0.01
    assert Cause.PRODUCTIVE not in found.account
    assert found.account[Cause.BUSY] > 0.0


@pytest.mark.slow
def test_nodes_that_are_lost_take_their_work_with_them() -> None:
    found = compare(played(2_048, 4.0, seed=2))
    errors = {each: found.error(each) for each in {*found.account, *found.truth}}
    assert max(errors.values()) < 0.01, errors
    assert found.truth[Cause.REPEATED] > 0.0
