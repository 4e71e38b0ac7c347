"""The schedule of faults: repeatable, random, and fair."""

from __future__ import annotations

import pytest

from tests.integration.faults.schedule import VICTIMS, WIPES, How, make_schedule

SEEDS = range(10)


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    drawn = [make_schedule(seed, duration_s=60, blows=20, wipes=WIPES) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_victim_is_hit_within_one_round_and_all_in_time(seed: int) -> None:
    blows = make_schedule(seed, duration_s=16, blows=len(VICTIMS), wipes=[How.FLUSH])
    killed = [blow.victim for blow in blows if blow.how not in WIPES]
    assert sorted(killed) == sorted(VICTIMS)
    assert [blow.at_s for blow in blows] == sorted(blow.at_s for blow in blows)
    assert 0 <= blows[0].at_s <= blows[-1].at_s <= 16


@pytest.mark.parametrize("seed", SEEDS)
def test_every_wipe_comes_once_and_in_the_first_half(seed: int) -> None:
    blows = make_schedule(seed, duration_s=300, blows=60, wipes=WIPES)
    wipes = [blow for blow in blows if blow.how in WIPES]
    assert sorted(blow.how for blow in wipes) == sorted(WIPES)
    assert all(blow.victim == "valkey" and blow.at_s <= 150 for blow in wipes)


def test_kills_hit_whole_services_and_single_processes() -> None:
    blows = make_schedule(3, duration_s=300, blows=60, wipes=[])
    assert {blow.how for blow in blows} == {How.ALL, How.ONE}


def test_more_blows_than_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        make_schedule(1, duration_s=3, blows=60, wipes=[])
