"""What budgets carry beside what is held, as jobs begin and end."""

from __future__ import annotations

import numpy as np

from admission.core.controlling import LastHeld, without_ended, without_new
from policies.controller.control import Budgets
from tests.unit.policies.controller.plants import HOST_W, RATED_W, Shop, make_fleet, make_units

_FLEET = make_fleet()
_FIRST_RACK = list(range(16))
_NOBODY = np.zeros(0, dtype=np.int64)


def _shop() -> Shop:
    shop = Shop(_FLEET, np.zeros(0))
    shop.budget_w = np.full(shop.reach.count, 20_000.0)
    return shop


def test_a_job_that_has_just_ended_is_no_other_load_beyond_what_its_gpus_draw_at_rest() -> None:
    shop = _shop()
    shop.runs[:16], shop.work[:16] = True, 1.0
    budgets = Budgets(shop.reach, shop.budget_w, shop.load_w)
    comes_to_rest = np.zeros(len(_FLEET.gpus), dtype=bool)
    comes_to_rest[:16] = True
    idle_w = np.full(len(_FLEET.gpus), 70.0)

    found = without_ended(budgets, shop.plant(), comes_to_rest, idle_w)

    assert found.load_w[0] == 2 * HOST_W + 16 * 70.0
    assert found.load_w[1] == budgets.load_w[1], "of another rack"
    shop.runs[:16] = False
    budgets = Budgets(shop.reach, shop.budget_w, shop.load_w)
    again = without_ended(budgets, shop.plant(), comes_to_rest, idle_w)
    assert again.load_w.tolist() == budgets.load_w.tolist(), "they rest already"


def test_gpus_are_about_to_rest_for_some_seconds_after_their_attempt() -> None:
    held = np.array([True, False])
    known = LastHeld().after(held, 100.0)
    assert known.comes_to_rest.tolist() == [False, False]

    ended = [known := known.after(~held & False, 100.0 + at) for at in (2.0, 10.0, 12.0)]

    assert [each.comes_to_rest.tolist()[0] for each in ended] == [True, True, False]
    assert not any(each.comes_to_rest[1] for each in ended), "no attempt is known to have held it"
    assert not known.after(held, 114.0).comes_to_rest.any()
    assert not known.after(np.zeros(3, dtype=bool), 114.0).comes_to_rest.any(), "another fleet"


def test_gpus_that_rested_count_once_when_a_job_takes_them() -> None:
    shop = _shop()
    before = shop.look(make_units([[16]]))
    units = make_units([[16], _FIRST_RACK], is_starting=[False, True])

    memory = without_new(before.memory, shop.plant(), units, shop.reach, _NOBODY)

    assert before.memory.other_w[0] - memory.other_w[0] == 16 * 70.0
    found = shop.look(units)
    again = without_new(found.memory, shop.plant(), units, shop.reach, _NOBODY)
    assert again.other_w.tolist() == found.memory.other_w.tolist(), "it is a unit already"


def test_what_was_assumed_of_silent_gpus_is_forgotten_once_they_are_heard() -> None:
    shop = _shop()
    before = shop.look(make_units([[0]]))
    heard = np.array([16, 17])

    memory = without_new(before.memory, shop.plant(), make_units([[0]]), shop.reach, heard)

    assert before.memory.other_w[1] - memory.other_w[1] == 2 * RATED_W
    assert memory.other_w[0] == before.memory.other_w[0], "of another rack"


def test_a_limit_that_gpus_come_with_is_their_own_at_once() -> None:
    shop = _shop()
    units = make_units([[16, 17]])
    before = shop.look(make_units([[0]]))
    shop.own_limit_w[16:18] = 500.0

    shop.memory = without_new(before.memory, shop.plant(), units, shop.reach, np.array([16, 17]))

    assert 500.0 < shop.look(units).cap_w[0] < 510.0


def test_what_hosts_draw_at_work_is_known_on_when_gpus_are_heard_again() -> None:
    shop = _shop()
    before = shop.look(make_units([[0]]))
    units = make_units([[0], [16, 17]])

    memory = without_new(before.memory, shop.plant(), units, shop.reach, np.array([16, 17]))

    hosts_w = before.memory.other_w[1] - 2 * RATED_W
    assert memory.other_w[1] == hosts_w, "what they draw now was never a part of it"
