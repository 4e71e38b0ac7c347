"""What the controller would do for a target, and what that takes of jobs as they draw now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from admission.core.curtailment.cost import BEYOND, PAUSE, SHRINK, Asked, Estimate
from admission.core.curtailment.foreseen import estimate_held, obeyed
from policies.controller.control import Budgets, Controlled, Kind, Tuning, Units
from policies.controller.pausing import Paused
from policies.controller.together import Together
from tests.unit.policies.controller.plants import RATED_W, Shop, make_fleet, make_units

IDLE_W = 70.0
#: Two gangs on a rack each.
GANGS = [list(range(16)), list(range(16, 32))]


def make_gangs(lowest_speed: float, second: Kind = Kind.AGREED) -> Units:
    """Return two gangs of which the first agreed to a slowdown, and the second as is said."""
    return make_units(
        GANGS, kind=[Kind.AGREED, second], lowest_speed=[lowest_speed] * 2,
        lowest_cap_w=[150.0] * 2,
    )  # fmt: skip


def make_shop(units: Units, then: float = 1.0) -> tuple[Shop, Controlled]:
    """Return a site on which both worked at full, and the second does so much of that by now."""
    shop = Shop(make_fleet(racks=3), np.zeros(0))
    shop.budget_w = np.full(shop.reach.count, np.nan)
    shop.budget_w[-1] = 60_000.0
    shop.runs[units.gpu], shop.work[units.gpu] = True, 1.0
    for _ in range(100):
        shop.step(units)
    shop.work[GANGS[1]] = then
    return shop, shop.step(units)


def said(
    shop: Shop,
    units: Units,
    found: Controlled,
    less_w: float,
    *,
    lasts_s: float = 90.0,
    walltime_s: float = 1e6,
    may_pause: tuple[int, ...] = (),
    obeys: float = 1.0,
) -> Estimate:
    """Return what is said of so many W less than are drawn."""
    request = SimpleNamespace(project="nlp", job_class="training", walltime_s=walltime_s)
    attempts = [
        SimpleNamespace(id=each, key=f"j{each}", request=request, started_at=shop.at)
        for each in units.id.tolist()
    ]
    count = len(shop.fleet.gpus)
    headroom = SimpleNamespace(
        at=shop.at,
        fleet=SimpleNamespace(gpus=SimpleNamespace(idle_w=np.full(count, IDLE_W))),
        summary=SimpleNamespace(gpus=SimpleNamespace(rated_w=np.full(count, RATED_W))),
    )
    holding: Any = SimpleNamespace(
        plant=shop.plant(), units=units, budgets=Budgets(shop.reach, shop.budget_w, shop.load_w),
        asked=np.zeros(shop.reach.count, dtype=bool), together=Together(), found=found,
        paused=Paused(), headroom=headroom, rest_share=0.0, held=SimpleNamespace(attempts=attempts),
    )  # fmt: skip
    target_w = float(shop.load_w[-1]) - less_w
    return estimate_held(
        holding, str(shop.fleet.sites.names[0]),
        Asked(target_w=target_w, spread_w=0.0, lasts_s=lasts_s),
        may_pause=dict.fromkeys(may_pause, 0.5), tuning=Tuning(), obeys=obeys,
    )  # fmt: skip


@pytest.mark.parametrize("then", [0.0, 0.2])
def test_what_is_not_certain_may_be_expected_at_what_jobs_draw_now(then: float) -> None:
    """One that agreed to nothing rests: it is capped above what it draws, and loses nothing."""
    units = make_gangs(0.5, Kind.FIRM)
    shop, found = make_shop(units, then)
    answer = said(shop, units, found, 3_000.0)
    assert not answer.is_possible
    assert answer.is_expected
    assert answer.sure == 0.5
    assert [(each.key, each.what) for each in answer.measures] == [("j1", SHRINK)]
    # It may come to draw all that it can.
    assert answer.lost_high_gpu_h > 1.05 * answer.lost_gpu_h


def test_who_works_and_agreed_to_nothing_is_not_expected_to_be_left_alone() -> None:
    units = make_gangs(0.5, Kind.FIRM)
    shop, found = make_shop(units)
    answer = said(shop, units, found, 9_000.0)
    assert (answer.is_possible, answer.is_expected) == (False, False)
    assert answer.sure < 0.1
    assert {each.key: each.what for each in answer.measures}["j2"] == BEYOND


def test_what_is_certain_stays_so_and_costs_what_full_load_loses() -> None:
    units = make_gangs(0.5)
    shop, found = make_shop(units)
    answer = said(shop, units, found, 4_000.0)
    assert answer.is_possible
    assert answer.sure > 0.9
    assert 0.0 < answer.lost_low_gpu_h < answer.lost_gpu_h <= answer.lost_high_gpu_h


def test_over_hours_ends_give_back_what_those_that_stand_still_need() -> None:
    units = make_gangs(0.8)
    shop, found = make_shop(units)
    asks: dict[str, Any] = {"may_pause": (1,), "lasts_s": 10_800.0}
    endless = said(shop, units, found, 12_000.0, **asks)
    ending = said(shop, units, found, 12_000.0, walltime_s=10_800.0, **asks)
    assert endless.measures[0].what == PAUSE
    assert ending.lost_gpu_h < 0.85 * endless.lost_gpu_h
    assert ending.lost_low_gpu_h < ending.lost_gpu_h
    # Nobody may end before that, as well.
    assert ending.lost_high_gpu_h == pytest.approx(endless.lost_high_gpu_h)
    brief = said(shop, units, found, 12_000.0, may_pause=(1,), lasts_s=90.0)
    assert brief.lost_gpu_h == pytest.approx(endless.lost_gpu_h * 84.0 / 10_794.0, rel=0.01)


def test_jobs_that_may_not_come_to_rest_make_it_less_sure_and_its_band_wider() -> None:
    units = make_gangs(0.8)
    shop, found = make_shop(units)
    known = said(shop, units, found, 12_000.0, may_pause=(1,))
    unknown = said(shop, units, found, 12_000.0, may_pause=(1,), obeys=obeyed(0, 0))
    assert unknown.sure < 0.5 < known.sure
    assert unknown.lost_low_gpu_h < known.lost_low_gpu_h
    assert unknown.lost_gpu_h < known.lost_gpu_h <= unknown.lost_high_gpu_h


def test_who_came_to_rest_before_says_how_likely_the_next_one_does() -> None:
    assert obeyed(0, 0) == 0.5
    assert obeyed(13, 7) == pytest.approx(8 / 15)
    assert 0.9 < obeyed(50, 50) < 1.0
