"""Heat as a limit: a GPU that loses its air is held below its slowdown, and let go when cool."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from policies.controller.control import Kind, Memory, Units
from policies.controller.heat import MARGIN_C, Warmth, limited_by_heat
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.inputs import Past, ThermalFits
from tests.builders.arrays import make_frame
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
from tests.unit.policies.headroom.scenes import NOW

SLOWDOWN_C = 87.0
RESISTANCE, AIR_C = 0.06, 30.0
_FLEET = make_fleet(racks=1)
_GPUS = len(_FLEET.gpus)
_ALL = list(range(_GPUS))


def _read(temp_c: Any, power_w: Any, at: float, past: Past | None = None, **gpu: Any) -> Headroom:
    read = {"temp_c": temp_c, "power_w": power_w, "temp_limit_c": SLOWDOWN_C, "throttle": 0}
    frame = make_frame(_FLEET, now=at, gpu={"temp_mem_c": 50.0, **read, **gpu})
    return evaluate(_FLEET, frame, now=at, past=past)


@dataclass
class Warm(Shop):
    """A shop whose GPUs get warm, in whole degrees, each in air of its own."""

    resistance: float = RESISTANCE
    #: what the fit says of it, and how long it says that heat takes
    fitted: float = RESISTANCE
    settles_s: float = 60.0
    fitted_settles_s: float = 60.0
    warmth: Warmth = field(default_factory=Warmth)
    units: Units = field(default_factory=lambda: make_units([_ALL[:8], _ALL[8:]]))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.air_c = np.full(_GPUS, AIR_C)
        self.temp_c = np.full(_GPUS, AIR_C)
        ones = np.ones(_GPUS)
        fits = ThermalFits(
            self.fitted * ones, self.fitted_settles_s / self.fitted * ones, AIR_C * ones, ones
        )
        self.past = replace(Past.none(_FLEET), thermal=fits)
        self.at = NOW

    def settle(self) -> None:
        self.temp_c = self.air_c + self.resistance * self.drawn_w

    def go_on(self, units: Any, seconds: float) -> tuple[float, Any]:
        """Return the highest temperature of the time, and the last word."""
        hottest = -np.inf
        for _ in range(int(seconds / STEP_S)):
            seen = _read(np.round(self.temp_c), self.drawn_w, self.at, self.past)
            self.heat_w, self.warmth = limited_by_heat(seen, self.warmth)
            found = self.step(units)
            settled_c = self.air_c + self.resistance * self.drawn_w
            self.temp_c = settled_c + (self.temp_c - settled_c) * np.exp(-STEP_S / self.settles_s)
            hottest = max(hottest, float(self.temp_c.max()))
        return hottest, found


def _warm(**given: Any) -> Warm:
    shop = Warm(_FLEET, np.zeros(0), **given)
    shop.budget_w = rack_budgets(shop.reach, 40_000.0)
    shop.runs[:], shop.work[:] = True, 1.0
    shop.settle()
    return shop


def _one(kind: Kind = Kind.FIRM, **given: Any) -> Any:
    return make_units([_ALL[:8], _ALL[8:]], kind=[kind, kind], **given)


def _blocked(shop: Warm, gpu: int, air_c: float, seconds: float = 360.0) -> None:
    """Have the air of a GPU get warmer, over some minutes, while the controller looks on."""
    steps = int(seconds / STEP_S)
    for _ in range(steps):
        shop.air_c[gpu] += (air_c - AIR_C) / steps
        hottest, _ = shop.go_on(shop.units, STEP_S)
        assert hottest < SLOWDOWN_C


@pytest.mark.parametrize(
    ("settles_s", "fitted_settles_s", "fitted"),
    [
        (60.0, 60.0, RESISTANCE),
        # No fit, and heat sinks that are better and faster than what is assumed, or worse.
        (4.0, 60.0, 0.08),
        (60.0, 60.0, 0.045),
        (4.0, 4.0, 0.045),
    ],
)
def test_a_gpu_with_a_blocked_inlet_stays_below_its_slowdown(
    settles_s: float, fitted_settles_s: float, fitted: float
) -> None:
    shop = _warm(settles_s=settles_s, fitted_settles_s=fitted_settles_s, fitted=fitted)
    _blocked(shop, 3, 55.0)

    hottest, found = shop.go_on(shop.units, 300.0)

    may_w = (SLOWDOWN_C - MARGIN_C - 55.0) / RESISTANCE
    assert hottest < SLOWDOWN_C
    # As much as heat allows, but for whole degrees.
    assert found.cap_w[0] == pytest.approx(may_w, rel=0.03)
    assert np.isinf(found.cap_w[1])


def test_it_is_held_without_a_swing() -> None:
    shop = _warm()
    _blocked(shop, 3, 55.0)
    shop.go_on(shop.units, 200.0)
    caps = [float(shop.go_on(shop.units, STEP_S)[1].cap_w[0]) for _ in range(100)]

    assert max(caps) - min(caps) <= 0.02 * np.mean(caps)
    changes = np.abs(np.diff(caps))
    assert changes.max() <= 10.0
    assert (changes > 0.0).mean() < 0.2


def test_with_a_failed_fan_a_load_that_comes_and_goes_stays_below_its_slowdown() -> None:
    shop = _warm(resistance=0.09, fitted=RESISTANCE)
    shop.work[:] = 0.2
    shop.settle()
    shop.go_on(shop.units, 60.0)
    for at in range(10):
        shop.work[:] = 1.0 if at % 2 else 0.1
        hottest, _ = shop.go_on(shop.units, 60.0)
        if at > 4:
            assert hottest < SLOWDOWN_C


def test_a_gang_is_held_by_its_hottest_gpu_no_further_than_that_has_to_be() -> None:
    shop = _warm()
    shop.units = make_units([_ALL])
    _blocked(shop, 3, 52.0)

    _, found = shop.go_on(shop.units, 240.0)

    slowed = ((found.cap_w[0] - STATIC_W) / DYNAMIC_W) ** 0.2
    may = (((SLOWDOWN_C - MARGIN_C - 52.0) / RESISTANCE - STATIC_W) / DYNAMIC_W) ** 0.2
    assert slowed == pytest.approx(may, abs=0.02)
    assert found.level[0] == found.heat_level[0] < found.filled.level[0]


def test_what_agreed_is_slowed_on_its_own_stretch_of_levels_and_then_as_an_emergency() -> None:
    shop = _warm()
    units = _one(Kind.AGREED, lowest_speed=[0.8, 0.8])
    _, before = shop.go_on(units, 20.0)
    full_w = before.full_w[0]
    agreed_w = before.lowest_w[0]

    shop.heat_w[:8] = 0.5 * (full_w + agreed_w)
    within = shop.look(units)
    shop.heat_w[:8] = 0.8 * agreed_w
    beyond = shop.look(units)

    assert agreed_w < within.cap_w[0] < full_w
    assert beyond.cap_w[0] < agreed_w
    # The stretch on which all are slowed alike, also what agreed to nothing.
    assert beyond.level[0] < 16.0 <= within.level[0]
    assert np.isinf(beyond.cap_w[1])


def test_what_a_hot_gang_leaves_goes_to_the_others_of_its_rack() -> None:
    shop = _warm()
    shop.budget_w = rack_budgets(shop.reach, 4_000.0 + 16 * 560.0)
    units = _one(Kind.AGREED, lowest_speed=[0.5, 0.5])
    for _ in range(60):
        shop.step(units)
    together_w = float(shop.cap_w[8])
    shop.heat_w[:8] = 420.0
    for _ in range(60):
        shop.step(units)
        assert shop.over_w <= 1e-6

    assert shop.cap_w[0] == 420.0
    assert shop.cap_w[8] > together_w + 50.0


def test_it_is_raised_again_when_it_is_cool() -> None:
    shop = _warm()
    _blocked(shop, 3, 55.0)
    _, held = shop.go_on(shop.units, STEP_S)
    shop.air_c[3] = AIR_C
    _, found = shop.go_on(shop.units, 400.0)

    assert np.isfinite(held.cap_w[0])
    assert np.isinf(found.cap_w[0])


def test_a_memory_that_is_lost_lets_nothing_get_too_hot() -> None:
    shop = _warm(resistance=0.09, fitted=RESISTANCE, settles_s=4.0)
    shop.go_on(shop.units, 300.0)
    shop.warmth, shop.memory = Warmth(), Memory()

    hottest, found = shop.go_on(shop.units, 300.0)

    assert hottest < SLOWDOWN_C
    assert (found.cap_w < RATED_W).all()


def test_what_rests_and_cools_is_not_held_for_what_it_did() -> None:
    shop = _warm()
    shop.go_on(shop.units, 100.0)
    for work in (0.0, 1.0, 0.0, 1.0):
        shop.work[:] = work
        _, found = shop.go_on(shop.units, 20.0)
        assert np.isinf(found.cap_w).all()


def test_what_gets_warm_faster_than_the_law_has_it_is_not_held_while_it_is_far_from_hot() -> None:
    # The core shows a part of the heat within seconds, beside what the heat sink takes.
    warmth, before_c = Warmth(), AIR_C + RESISTANCE * 70.0
    for step in range(30):
        power_w = 650.0 if step > 5 else 70.0
        temp_c = before_c if step <= 5 else min(before_c + 14.0 * (step - 5), 64.0)
        past = Warm(_FLEET, np.zeros(0)).past
        seen = _read(np.round(temp_c), power_w, NOW + STEP_S * step, past)
        may_draw_w, warmth = limited_by_heat(seen, warmth)
        assert (may_draw_w > 700.0).all()


def test_the_memory_of_a_gpu_counts_where_it_is_closer_to_its_own_slowdown() -> None:
    fleet_limit_c = float(_FLEET.gpus.slowdown_mem_c[0])
    cool, _ = limited_by_heat(_read(50.0, 600.0, NOW, temp_mem_c=60.0), Warmth())
    hot, _ = limited_by_heat(_read(50.0, 600.0, NOW, temp_mem_c=fleet_limit_c - 2.0), Warmth())

    assert (cool > 600.0).all()
    assert (hot < 600.0).all()


def test_what_is_not_read_is_not_held() -> None:
    _, before = limited_by_heat(_read(86.0, 600.0, NOW), Warmth())
    silent = _read(86.0, 600.0, NOW, ts=NOW - 3_600.0)
    found, after = limited_by_heat(silent, before)

    assert np.isinf(found).all()
    assert np.isnan(after.drawn_w).all()
    assert (limited_by_heat(_read(86.0, 600.0, NOW + 60.0), after)[0] < 600.0).all()
