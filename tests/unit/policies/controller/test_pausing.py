"""What agreed to stand still does so before what agreed to nothing is slowed, and no sooner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.controller.control import Budgets, Controlled, Kind, Units
from policies.controller.pausing import Paused, held_with_pauses, paused_after
from tests.unit.policies.controller.plants import (
    RATED_W,
    Shop,
    make_fleet,
    make_units,
    rack_budgets,
)

#: Three units on the first node of the first rack: two that agreed to slowdown, one to nothing.
UNITS = make_units(
    [[0, 1], [2, 3], [4, 5]],
    kind=[int(Kind.AGREED), int(Kind.AGREED), int(Kind.FIRM)],
    lowest_speed=[0.9, 0.9, 1.0],
)
MAY = {1: 0.9, 2: 0.9}
CAPS = {1: 450.0, 2: 450.0}


def make_shop(watts: float) -> Shop:
    shop = Shop(make_fleet(), np.zeros(0))
    shop.budget_w = rack_budgets(shop.reach, watts)
    shop.work[:6], shop.runs[:6] = 1.0, True
    return shop


def look(shop: Shop, units: Units = UNITS, before: Paused | None = None, **given: Any) -> Paused:
    found = shop.look(units)
    budgets = Budgets(shop.reach, shop.budget_w, shop.load_w)
    asked = {"may_pause": MAY, "rest_w": np.full(len(shop.runs), 70.0), **given}
    return paused_after(shop.plant(), units, budgets, found, before or Paused(), **asked)


def full_w() -> float:
    """Return what the first rack draws at full speed."""
    return float(make_shop(1e6).load_w[0])


def test_where_slowing_is_enough_nothing_stands_still() -> None:
    assert not look(make_shop(full_w() + 100.0)).saves_w
    assert not look(make_shop(full_w() - 300.0)).saves_w


def test_as_few_stand_still_as_are_needed() -> None:
    assert list(look(make_shop(full_w() - 1_200.0)).saves_w) == [1]
    assert list(look(make_shop(full_w() - 2_200.0)).saves_w) == [1, 2]


def test_who_loses_the_least_work_for_the_watts_goes_first() -> None:
    found = look(make_shop(full_w() - 1_200.0), may_pause={1: 0.9, 2: 0.5})
    assert list(found.saves_w) == [2]


def test_what_agreed_to_nothing_never_stands_still() -> None:
    assert 3 not in look(make_shop(1_000.0)).saves_w


def test_what_is_elsewhere_does_not_help() -> None:
    shop = make_shop(full_w() - 1_200.0)
    units = make_units(
        [[0, 1], [40, 41]], kind=[int(Kind.FIRM), int(Kind.AGREED)], lowest_speed=[1.0, 0.9]
    )
    assert not look(shop, units, may_pause={2: 0.9}).saves_w


def test_what_is_to_start_makes_nobody_stand_still() -> None:
    units = make_units(
        [[0, 1], [2, 3], [4, 5], [6, 7]],
        kind=[int(Kind.AGREED)] * 4,
        lowest_speed=[0.9] * 4,
        is_starting=[False, False, False, True],
        told_w=[RATED_W] * 4,
    )
    assert not look(make_shop(full_w() + 100.0), units).saves_w


def test_the_last_goes_on_first_once_there_is_room_beside() -> None:
    before = look(make_shop(full_w() - 2_200.0))
    shop = make_shop(full_w() - 2_200.0)
    shop.runs[:4] = False  # they rest, and are no units any more
    left = make_units([[4, 5]], id=[3])
    assert list(look(shop, left, before).saves_w) == [1, 2]
    shop.budget_w = rack_budgets(shop.reach, full_w() - 900.0)
    assert list(look(shop, left, before).saves_w) == [1]
    shop.budget_w = rack_budgets(shop.reach, full_w() + 500.0)
    assert not look(shop, left, before).saves_w


def test_what_has_ended_is_forgotten() -> None:
    before = look(make_shop(full_w() - 2_200.0))
    assert list(look(make_shop(1_000.0), UNITS, before, may_pause={2: 0.9}).saves_w) == [2]


@pytest.mark.parametrize("less_w", [0.0, 1_200.0, 2_200.0])
def test_deciding_again_changes_nothing(less_w: float) -> None:
    shop = make_shop(full_w() - less_w)
    first = look(shop)
    assert list(look(shop, UNITS, first).saves_w) == list(first.saves_w)


def test_a_small_one_is_not_kept_still_where_a_large_one_alone_is_enough() -> None:
    units = make_units(
        [[0], [1, 2, 3, 4, 5, 6, 7]], kind=[int(Kind.AGREED)] * 2, lowest_speed=[0.9, 0.9]
    )
    shop = make_shop(full_w() - 2_000.0)
    # The small one is the cheapest by its watts.
    found = look(shop, units, may_pause={1: 0.5, 2: 0.9})
    assert list(found.saves_w) == [2]


def test_one_goes_on_where_the_last_that_stood_still_finds_no_room() -> None:
    shop = make_shop(full_w() - 2_200.0)
    shop.runs[:4] = False
    small = np.zeros(shop.reach.count)
    small[0], large = 100.0, small.copy()
    large[0] = 5_000.0
    shop.budget_w = rack_budgets(shop.reach, full_w() - 1_100.0)
    found = look(shop, make_units([[4, 5]], id=[3]), Paused({1: small, 2: large}, cap_w=CAPS))
    assert list(found.saves_w) == [2]
    assert list(found.goes_w) == [1]


def test_room_is_given_once_to_what_is_told_to_go_on_and_has_not_begun() -> None:
    shop = make_shop(full_w() - 2_200.0)
    shop.runs[:4] = False
    each_w = np.zeros(shop.reach.count)
    each_w[0] = 600.0
    shop.budget_w = rack_budgets(shop.reach, full_w() - 1_100.0)
    left = make_units([[4, 5]], id=[3])
    first = look(shop, left, Paused({1: each_w, 2: each_w}, cap_w=CAPS))
    assert list(first.saves_w) == [1]
    second = look(shop, left, first)
    assert (list(second.saves_w), list(second.goes_w)) == ([1], [2])
    assert second.cap_w == CAPS
    # At work again, it counts with what it draws.
    shop.runs[2:4] = True
    assert not look(shop, make_units([[2, 3], [4, 5]], id=[2, 3]), second).goes_w


def hold(
    shop: Shop, before: Paused, *, is_in_time: bool, units: Units = UNITS
) -> tuple[Controlled, Paused]:
    return held_with_pauses(
        shop.plant(), units, Budgets(shop.reach, shop.budget_w, shop.load_w), shop.memory, before,
        now=shop.at, tuning=shop.tuning, may_pause=MAY, rest_w=np.full(len(shop.runs), 100.0),
        is_in_time=is_in_time,
    )  # fmt: skip


def test_nobody_is_slowed_while_there_is_time_for_others_to_come_to_rest() -> None:
    shop = make_shop(1e6)
    shop.look(UNITS)
    shop.budget_w = rack_budgets(shop.reach, full_w() - 1_200.0)
    in_time, paused = hold(shop, Paused(), is_in_time=True)
    too_late, same = hold(shop, Paused(), is_in_time=False)
    assert list(paused.saves_w) == list(same.saves_w) == [1]
    assert in_time.cap_w[2] >= 650.0
    assert too_late.cap_w[2] < 650.0


def test_what_stands_still_is_remembered_as_it_was_at_work() -> None:
    shop = make_shop(full_w() - 1_200.0)
    shop.look(UNITS)
    _, paused = hold(shop, Paused(), is_in_time=True)
    known_w = shop.memory.full_w[1]
    shop.runs[:2] = False
    left = make_units([[2, 3], [4, 5]], id=[2, 3], kind=[int(Kind.AGREED), int(Kind.FIRM)])
    found, paused = hold(shop, paused, is_in_time=True, units=left)
    assert 1 in paused
    assert found.memory.full_w[1] == known_w
    assert found.memory.since[1] == shop.memory.since[1]
