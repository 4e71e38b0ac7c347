"""The controller: budgets hold whatever load does, and each gives way as it agreed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.controller.control import Budgets, Kind, Memory, control
from policies.controller.levels import FULL
from tests.unit.policies.controller.plants import (
    DYNAMIC_W,
    RATED_W,
    STATIC_W,
    STEP_S,
    Shop,
    make_fleet,
    make_units,
    rack_budgets,
)

_FLEET = make_fleet()
_ALL = list(range(len(_FLEET.gpus)))
#: The GPUs of each rack.
_RACKS = [_ALL[at : at + 16] for at in range(0, len(_ALL), 16)]


def _shop(watts: float, **given_: Any) -> Shop:
    shop = Shop(_FLEET, np.zeros(0), **given_)
    shop.budget_w = rack_budgets(shop.reach, watts)
    return shop


def _run_all(shop: Shop, work: float = 1.0) -> None:
    shop.runs[:], shop.work[:] = True, work


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), delay=st.integers(1, 3), share=st.floats(0.75, 1.0))
def test_no_budget_is_exceeded_however_load_jumps(seed: int, delay: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    shop = _shop(4_000.0 + share * 16 * 600.0, delay=delay)
    units = make_units(
        [_ALL[at : at + 4] for at in range(0, len(_ALL), 4)],
        kind=np.where(rng.random(12) < 0.6, Kind.AGREED, Kind.FIRM),
        lowest_speed=rng.uniform(0.5, 0.9, 12),
    )
    # It finds everything running, as after its own start: at rest, so that there is room.
    shop.runs[:] = True
    for _ in range(10):
        shop.step(units)
    for _ in range(120):
        jumps = rng.random(12) < 0.2
        shop.work = np.where(np.repeat(jumps, 4), np.repeat(rng.random(12), 4), shop.work)
        shop.step(units)
        assert shop.over_w <= 1e-6


def test_with_room_nobody_is_capped() -> None:
    shop = _shop(20_000.0)
    _run_all(shop)
    units = make_units(_RACKS)

    for _ in range(30):
        found = shop.step(units)

    assert np.isinf(found.cap_w).all()
    assert (shop.clock == 1.0).all()


def test_what_agreed_to_nothing_keeps_its_speed_where_others_agreed_to_less() -> None:
    shop = _shop(4_000.0 + 16 * 560.0)
    _run_all(shop)
    kinds = [Kind.AGREED if at % 2 else Kind.FIRM for at in range(6)]
    units = make_units(
        [_ALL[at : at + 8] for at in range(0, 48, 8)],
        kind=np.array(kinds),
        lowest_speed=np.full(6, 0.5),
    )

    for _ in range(60):
        shop.step(units)

    speed = shop.clock[::8]
    assert (speed[0::2] > 0.99).all()
    assert (speed[1::2] < 0.95).all()
    assert (speed[1::2] > 0.5).all()
    assert shop.over_w <= 0.0


def test_nobody_is_slowed_more_than_agreed_while_that_is_enough() -> None:
    agreed = np.array([0.9, 0.75, 0.5, 0.9, 0.75, 0.5])
    shop = _shop(4_000.0 + 16 * 500.0)
    _run_all(shop)
    units = make_units(
        [_ALL[at : at + 8] for at in range(0, 48, 8)],
        kind=np.full(6, int(Kind.AGREED)),
        lowest_speed=agreed,
    )

    for _ in range(60):
        shop.step(units)

    assert (shop.clock[::8] >= agreed - 0.01).all()
    assert shop.over_w <= 0.0


def test_where_caps_are_not_enough_it_says_what_is_lacking_and_goes_on_holding() -> None:
    shop = _shop(4_000.0 + 16 * 200.0)
    _run_all(shop)
    units = make_units(_RACKS)

    for _ in range(20):
        found = shop.step(units)

    racks = len(_FLEET.racks)
    assert not found.holds[:racks].any()
    assert (found.filled.short_w[:racks] > 0.0).all()
    assert (found.cap_w < STATIC_W + 0.2 * DYNAMIC_W).all()


def test_room_is_given_away_only_once_the_caps_that_make_it_are_reported() -> None:
    shop = _shop(4_000.0 + 16 * 500.0, delay=0)
    shop.runs[:16], shop.work[:16] = True, 1.0
    two = [_ALL[:8], _ALL[8:16]]
    units = make_units(two, kind=np.full(2, int(Kind.AGREED)), lowest_speed=np.full(2, 0.5))
    for _ in range(40):
        shop.step(units)
    deaf = shop.cap_w[:8].copy()
    # One of them is to give way to the other, but its GPUs go on under their old limit.
    units = make_units(two, kind=np.array([Kind.AGREED, Kind.FIRM]), lowest_speed=np.full(2, 0.3))
    for _ in range(10):
        found = shop.step(units)
        shop.cap_w[:8] = deaf
        assert shop.over_w <= 1e-6
    assert found.cap_w[0] < deaf[0]


def test_what_starts_waits_until_room_for_it_is_made() -> None:
    shop = _shop(4_000.0 + 16 * 450.0, delay=2)
    shop.runs[:12], shop.work[:12] = True, 1.0
    gangs = [_ALL[:12], _ALL[12:16]]
    agreed = {"kind": np.full(2, int(Kind.AGREED)), "lowest_speed": np.full(2, 0.5)}
    units = make_units(gangs, is_starting=[False, True], **agreed)
    # The first has all the room.
    for _ in range(40):
        shop.step(make_units(gangs[:1], kind=agreed["kind"][:1], lowest_speed=[0.5]))
    waited = 0
    while not (found := shop.step(units)).may_start[1]:
        waited += 1
        assert waited < 10
    shop.cap_w[12:16] = found.cap_w[1]
    shop.runs[12:16], shop.work[12:16] = True, 1.0
    units = make_units(gangs, **agreed)
    for _ in range(20):
        assert shop.over_w <= 1e-6
        shop.step(units)
    assert waited >= 1


def test_load_without_an_owner_is_slowed_as_far_as_its_policy_says() -> None:
    shop = _shop(4_000.0 + 16 * 590.0)
    _run_all(shop)
    units = make_units(
        [_ALL[at : at + 8] for at in range(0, 48, 8)],
        kind=np.array([Kind.UNMANAGED, Kind.FIRM] * 3),
        lowest_speed=np.array([0.8, 1.0] * 3),
    )

    for _ in range(60):
        shop.step(units)

    assert (shop.clock[::16] < 1.0).all()
    assert (shop.clock[::16] >= 0.79).all()
    assert (shop.clock[8::16] > 0.99).all()


def test_a_surge_of_what_cannot_be_capped_is_made_up_for_by_the_others() -> None:
    shop = _shop(4_000.0 + 16 * 500.0, delay=2)
    shop.runs[:16] = True
    shop.work[:8] = 1.0
    units = make_units([_ALL[:8]], kind=[Kind.AGREED], lowest_speed=[0.5])
    for _ in range(30):
        shop.step(units)
    shop.work[8:16] = 1.0
    for _ in range(4):
        shop.step(units)

    assert shop.over_w <= 0.0


def test_a_controller_that_lost_its_memory_exceeds_nothing() -> None:
    shop = _shop(4_000.0 + 16 * 500.0)
    _run_all(shop)
    units = make_units(_RACKS, kind=np.full(3, int(Kind.AGREED)), lowest_speed=np.full(3, 0.5))
    for _ in range(60):
        shop.step(units)
    shop.memory = Memory()
    for _ in range(20):
        shop.step(units)
        assert shop.over_w <= 1e-6


def test_gpus_that_somebody_else_limits_count_with_that_and_slow_nobody() -> None:
    # All fit below that limit, and not at what they would draw without it.
    shop = _shop(4_000.0 + 16 * 600.0)
    _run_all(shop)
    shop.own_limit_w[:8] = 500.0
    units = make_units([_ALL[:8], _ALL[8:16]], kind=np.full(2, int(Kind.UNMANAGED)))

    for _ in range(60):
        found = shop.step(units)
        assert 500.0 < found.cap_w[0] < 510.0

    assert found.filled.budget_level[0] > FULL
    assert (shop.clock[8:16] == 1.0).all()


def test_a_limit_of_somebody_else_that_is_lifted_meets_a_cap_first() -> None:
    shop = _shop(4_000.0 + 16 * 560.0)
    shop.runs[:16], shop.work[:16], shop.own_limit_w[:16] = True, 1.0, 500.0
    units = make_units([_ALL[:8], _ALL[8:16]], kind=np.full(2, int(Kind.UNMANAGED)))
    for _ in range(30):
        shop.step(units)

    shop.own_limit_w[:] = RATED_W
    for _ in range(60):
        found = shop.step(units)
        assert shop.over_w <= 0.0

    assert (found.cap_w > 530.0).all()


def test_a_limit_below_a_cap_is_somebody_elses_once_it_has_stayed() -> None:
    shop = _shop(20_000.0)
    _run_all(shop)
    units = make_units(_RACKS)
    for _ in range(30):
        shop.step(units)
    shop.own_limit_w[:16] = 500.0

    capped = [bool(np.isfinite(shop.step(units).cap_w[0])) for _ in range(30)]

    assert not any(capped[: int(30.0 / STEP_S)])
    assert all(capped[int(30.0 / STEP_S) + 1 :])


def test_an_empty_fleet_needs_no_caps() -> None:
    found = _shop(10_000.0).look(make_units([]))

    assert not len(found.cap_w)
    assert found.holds.all()


def test_the_same_is_decided_again_from_the_same() -> None:
    first, second = _shop(12_000.0), _shop(12_000.0)
    for shop in (first, second):
        _run_all(shop, 0.9)
        for _ in range(5):
            shop.step(make_units(_RACKS))

    assert (first.cap_w == second.cap_w).all()
    assert first.memory.full_w == second.memory.full_w


def test_what_was_said_of_a_job_stands_until_it_is_seen_at_work() -> None:
    shop = _shop(20_000.0)
    # It stages data for ten minutes, and draws no more than what a clock takes.
    shop.runs[:] = True
    units = make_units(_RACKS, told_w=np.full(3, 600.0))
    for _ in range(300):
        found = shop.step(units)
    assert found.full_w.tolist() == [600.0] * 3
    assert not found.is_learned.any()

    shop.work[:] = 0.4
    for _ in range(300):
        found = shop.step(units)
    assert (found.full_w < 450.0).all()
    assert found.is_learned.all()


def _learned_then_held_deep(seen_work: float, then_work: float) -> tuple[Shop, float]:
    """Return a rack of which a draw was learned, and which was then held to half of its speed."""
    shop = _shop(20_000.0)
    shop.runs[:], shop.work[:] = True, seen_work
    units = make_units(_RACKS, kind=np.full(3, Kind.AGREED), lowest_speed=np.full(3, 0.5))
    for _ in range(300):
        found = shop.step(units)
    learned_w = float(found.full_w[0])
    shop.work[:] = then_work
    # There is no more than what it draws at half of its speed.
    shop.budget_w = rack_budgets(shop.reach, 2 * 2_000.0 + 16 * 270.0)
    for _ in range(60):
        found = shop.step(units)
    assert (shop.clock < 0.7).all()
    return shop, float(found.full_w[0]) - learned_w


def test_what_was_learned_of_a_job_stands_while_it_is_held_far_below_its_full_clock() -> None:
    _, more_w = _learned_then_held_deep(0.4, 0.4)

    assert abs(more_w) <= 5.0


def test_a_job_that_is_slower_than_what_was_learned_of_it_could_draw_anything() -> None:
    _, more_w = _learned_then_held_deep(0.4, 1.0)

    assert more_w >= 200.0


def test_what_is_to_start_slows_nobody_who_agreed_to_nothing() -> None:
    shop = _shop(4_000.0 + 16 * 500.0)
    shop.runs[:8], shop.work[:8] = True, 1.0
    running = make_units([_ALL[:8]])
    for _ in range(60):
        before = shop.step(running)

    both = make_units([_ALL[:8], _ALL[8:16]], is_starting=[False, True])
    for _ in range(10):
        found = shop.step(both)

    assert not found.may_start[1]
    assert found.cap_w[0] >= before.full_w[0]
    assert (shop.clock[:8] == 1.0).all()


def test_what_budgets_carry_besides_is_remembered_longer_while_their_load_rests() -> None:
    def left_w(work: float) -> float:
        """Return what is remembered of 2 kW besides, two minutes after they were there."""
        shop = _shop(20_000.0)
        _run_all(shop)
        units = make_units(_RACKS)
        for _ in range(30):
            shop.step(units)
        budgets = Budgets(shop.reach, shop.budget_w, shop.load_w + 2_000.0)
        found = control(shop.plant(), units, budgets, shop.memory, now=shop.at)
        shop.memory, shop.work[:] = found.memory, work
        for _ in range(60):
            shop.at += STEP_S
            now = Budgets(shop.reach, shop.budget_w, shop.load_w)
            found = control(shop.plant(), units, now, shop.memory, now=shop.at)
            shop.memory = found.memory
        return float(found.other_w[0] - 4_000.0)

    assert 900.0 < left_w(1.0) < 1_100.0
    assert left_w(0.0) > 1_850.0


def test_what_hosts_draw_once_a_slowed_gang_begins_is_kept_free() -> None:
    """A host works for its GPUs however low they are held, and not before they begin."""
    shop = _shop(13_300.0, host_share=0.25, host_works_w=90.0)
    gang, firm = _RACKS[0][:8], _RACKS[0][8:]
    units = make_units(
        [gang, firm], kind=[Kind.AGREED, Kind.FIRM], lowest_speed=[0.4, 1.0],
        lowest_cap_w=[260.0, 0.0],
    )  # fmt: skip
    shop.runs[_RACKS[0]], shop.work[firm] = True, 1.0
    for _ in range(200):
        found = shop.step(units)
    assert found.cap_w[0] < 0.6 * RATED_W
    for _ in range(20):
        shop.work[gang] = 1.0
        assert shop.over_w <= 0.0
        found = shop.step(units)
    assert found.cap_w[1] > STATIC_W + DYNAMIC_W


def test_the_cap_of_what_waits_for_its_room_is_nobody_elses_limit() -> None:
    shop = _shop(4_000.0 + 16 * 500.0)
    shop.runs[:8], shop.work[:8] = True, 1.0
    gangs = {"kind": [Kind.FIRM, Kind.AGREED], "lowest_speed": [1.0, 0.9]}
    waits = make_units([_ALL[:8], _ALL[8:16]], is_starting=[False, True], **gangs)

    for _ in range(25):
        found = shop.step(waits)

    assert not found.may_start[1]
    assert (shop.limit_w[8:16] < 0.9 * RATED_W).all()
    assert found.full_w[1] == RATED_W


def test_caps_of_a_controller_that_lost_its_memory_are_nobody_elses_limits() -> None:
    shop = _shop(4_000.0 + 16 * 500.0)
    _run_all(shop)
    units = make_units(_RACKS, kind=np.full(3, int(Kind.AGREED)), lowest_speed=np.full(3, 0.9))
    for _ in range(60):
        before = shop.step(units)
    assert (before.cap_w < 520.0).all()
    shop.memory = Memory()

    for _ in range(60):
        found = shop.step(units)

    assert (found.full_w > 600.0).all()
    assert (shop.clock >= 0.89).all()


def test_a_limit_of_somebody_else_that_a_cap_of_ours_hides_does_not_count_for_ever() -> None:
    shop = _shop(4_000.0 + 16 * 480.0)
    shop.runs[:16], shop.work[:16], shop.own_limit_w[:8] = True, 1.0, 500.0
    agreed = {"kind": np.full(2, int(Kind.AGREED)), "lowest_speed": np.full(2, 0.5)}
    units = make_units([_ALL[:8], _ALL[8:16]], **agreed)
    for _ in range(30):
        found = shop.step(units)
    assert found.cap_w[0] < 490.0
    assert found.full_w[0] < 560.0

    shop.own_limit_w[:] = RATED_W
    for _ in range(600):
        found = shop.step(units)
        assert shop.over_w <= 1e-6

    assert found.full_w[0] >= STATIC_W + DYNAMIC_W


def test_the_lowest_rise_shows_that_a_limit_of_somebody_else_is_gone() -> None:
    shop = _shop(20_000.0)
    shop.runs[:16], shop.work[:16], shop.own_limit_w[:16] = True, 1.0, 500.0
    units = make_units(_RACKS[:1])
    for _ in range(30):
        shop.step(units)
    # Something has it stay a little above that limit.
    shop.memory = replace(shop.memory, cap_w={1: 501.0})
    shop.own_limit_w[:] = RATED_W
    for _ in range(10):
        found = shop.step(units)
    assert np.isinf(found.cap_w).all()
