"""Levels: as high as budgets allow, and no unit lower than its tightest budget makes it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.controller.filling import Cells, fill
from policies.controller.levels import (
    LEVELS,
    Kind,
    caps_at,
    caps_by_level,
    last_to_give,
    speeds_by_level,
)
from policies.headroom.reach import Reach
from tests.unit.policies.controller.plants import make_fleet

_FLEET = make_fleet(racks=6)
_REACH = Reach.of(_FLEET)


def _cells(rng: np.random.Generator, units: int) -> Cells:
    racks = len(_FLEET.racks)
    pairs = {(unit, int(rng.integers(racks))) for unit in range(units) for _ in range(2)}
    unit, rack = np.array(sorted(pairs)).T
    kind = rng.integers(0, 3, units)
    watts = caps_by_level(
        speeds_by_level(kind, rng.uniform(0.5, 1.0, units)),
        full_w=rng.uniform(300.0, 700.0, units),
        static_w=np.full(units, 250.0),
        exponent=np.full(units, 5.0),
        linear_share=np.zeros(units),
        most_w=np.full(units, 700.0),
    )
    return Cells(unit, rack, rng.integers(1, 9, len(unit))[:, None] * watts[unit])


def _carried(cells: Cells, level: np.ndarray) -> np.ndarray:
    rack_w = np.bincount(cells.rack, caps_at(cells.watts, level[cells.unit]), len(_FLEET.racks))
    return _REACH.of_racks(rack_w.astype(np.float64))


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 10**6), units=st.integers(1, 25), share=st.floats(0.2, 1.5))
def test_no_budget_is_exceeded_unless_the_lowest_level_exceeds_it(
    seed: int, units: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    cells = _cells(rng, units)
    highest_w = _carried(cells, np.full(units, LEVELS - 1.0))
    room_w = share * highest_w * rng.uniform(0.5, 1.5, len(highest_w)) + 1.0

    found = fill(cells, units, _REACH, room_w)

    lacks = found.short_w > 0.0
    over_w = _carried(cells, found.level) - room_w
    assert (over_w[~lacks] <= 1e-6).all()
    lowest_w = _carried(cells, np.zeros(units))
    assert (lacks == (lowest_w > room_w)).all()


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 10**6), units=st.integers(1, 25), share=st.floats(0.3, 1.2))
def test_a_unit_below_the_highest_level_has_a_full_budget_above_it(
    seed: int, units: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    cells = _cells(rng, units)
    room_w = share * _carried(cells, np.full(units, LEVELS - 1.0)) + 1.0

    found = fill(cells, units, _REACH, room_w)

    left_w = np.append(room_w - _carried(cells, found.level), np.inf)
    full = np.zeros(len(left_w), dtype=bool)
    full[:-1] = left_w[:-1] < 1e-3 * room_w
    of_rack = np.any(full[_REACH.place], axis=1)
    below = found.level < LEVELS - 1.0 - 1e-6
    held = np.zeros(units, dtype=bool)
    np.logical_or.at(held, cells.unit, of_rack[cells.rack])
    assert (held | ~below).all()


def test_what_agreed_gives_way_first_and_what_agreed_to_nothing_last() -> None:
    kinds = np.array([Kind.AGREED, Kind.UNMANAGED, Kind.FIRM])
    speeds = speeds_by_level(kinds, np.array([0.6, 0.9, 1.0]))

    slowed = speeds < 1.0 - 1e-9
    # Wherever a later one is slowed at all, all before it are as slow as they agreed, or slower.
    assert (speeds[0][slowed[1]] <= 0.6 + 1e-9).all()
    assert (speeds[1][slowed[2]] <= 0.9 + 1e-9).all()
    assert (np.diff(speeds, axis=1) >= 0.0).all()
    assert slowed.any(axis=1).all()


def test_who_gives_way_last_at_a_level_is_the_last_that_is_slowed() -> None:
    kinds = np.array([Kind.AGREED, Kind.UNMANAGED, Kind.FIRM])
    speeds = speeds_by_level(kinds, np.array([0.6, 0.9, 1.0]))

    for level in range(LEVELS):
        slowed = [kind for kind in Kind if speeds[kind, level] < 1.0 - 1e-9]
        assert last_to_give(level) is (max(slowed) if slowed else None)


def test_without_budgets_nobody_is_capped() -> None:
    cells = _cells(np.random.default_rng(1), 5)

    found = fill(cells, 5, _REACH, np.full(_REACH.count, np.nan))

    assert (found.level == LEVELS - 1).all()
