"""What is drawn together counts where somebody asks for less, and nowhere else."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest

from policies.controller.control import Budgets, Kind, Units
from policies.controller.together import Together, with_peaks_apart
from tests.unit.policies.controller.plants import STEP_S, Shop, make_fleet, make_units

#: Two units that agreed to nothing, on the first two nodes of the first rack.
UNITS = make_units([[0, 1, 2, 3], [8, 9, 10, 11]])


def make_shop() -> Shop:
    shop = Shop(make_fleet(), np.zeros(0))
    shop.budget_w = np.full(shop.reach.count, np.nan)
    shop.runs[UNITS.gpu] = True
    return shop


def go(
    shop: Shop, together: Together, steps: int, units: Units = UNITS, turns: int = 0
) -> Together:
    """Have both work, and rest in turns of so many steps; return what is known then."""
    for step in range(steps):
        first = not turns or (step // turns) % 2 == 0
        shop.work[UNITS.gpu[:4]] = 1.0 if first else 0.2
        shop.work[UNITS.gpu[4:]] = 1.0 if not turns or not first else 0.2
        found = shop.look(units)
        budgets = Budgets(shop.reach, shop.budget_w, shop.load_w)
        together = together.after(shop.plant(), units, budgets, found)
        shop.at += STEP_S
    return together


@pytest.fixture(scope="module")
def had_turns() -> tuple[Shop, Together]:
    """A shop in which both took turns for an hour, and what is known then."""
    shop = make_shop()
    return shop, go(shop, go(shop, Together(), 60), 1_800, turns=10)


@pytest.fixture
def after_turns(had_turns: tuple[Shop, Together]) -> tuple[Shop, Together]:
    return deepcopy(had_turns)


def test_peaks_at_the_same_time_leave_nothing_over() -> None:
    found = go(make_shop(), Together(), 300)
    # Noise has some room above what was drawn.
    assert 0.0 <= found.spare_w[0] < 0.03 * found.apart_w[0]


def test_peaks_at_different_times_leave_over_what_is_never_drawn_together(
    after_turns: tuple[Shop, Together],
) -> None:
    shop, found = after_turns
    assert found.spare_w[0] > 0.15 * found.apart_w[0]
    assert found.most_w[0] >= float(shop.drawn_w[UNITS.gpu].sum())


def test_nothing_is_left_over_of_what_is_new(after_turns: tuple[Shop, Together]) -> None:
    assert not go(make_shop(), Together(), 1).spare_w.any()
    shop, known = after_turns
    # One ends: what is left over falls by its part, and not below nothing.
    left = make_units([[0, 1, 2, 3]])
    after = go(shop, known, 1, left)
    assert 0.0 <= after.spare_w[0] <= known.spare_w[0]


def test_a_peak_together_counts_at_once(after_turns: tuple[Shop, Together]) -> None:
    shop, known = after_turns
    assert go(shop, known, 1).spare_w[0] < 0.1 * known.spare_w[0] + 0.03 * known.apart_w[0]


def test_only_what_agreed_to_nothing_counts() -> None:
    slowed = make_units([[0, 1, 2, 3]], kind=[int(Kind.AGREED)], lowest_speed=[0.5])
    assert not go(make_shop(), Together(), 100, slowed).apart_w.any()


def test_a_budget_that_nobody_asks_for_stays_as_it_is() -> None:
    shop = make_shop()
    shop.budget_w = np.full(shop.reach.count, 30_000.0)
    budgets = Budgets(shop.reach, shop.budget_w, shop.load_w)
    together = go(shop, go(shop, Together(), 60), 1_800, turns=10)
    asked = np.zeros(shop.reach.count, dtype=bool)
    assert (with_peaks_apart(budgets, together, asked).budget_w == budgets.budget_w).all()
    asked[0] = True
    more_w = with_peaks_apart(budgets, together, asked).budget_w - budgets.budget_w
    assert more_w[0] == together.spare_w[0] > 0.0
    assert not more_w[1:].any()
    assert with_peaks_apart(budgets, Together(), asked) is budgets
