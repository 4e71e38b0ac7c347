"""A limit that somebody asks for counts peaks together, as long as nobody firm is slowed by it."""

from __future__ import annotations

import numpy as np
import pytest

from policies.controller.asking import held_as_asked
from policies.controller.control import Budgets, Controlled
from policies.controller.pausing import Paused
from policies.controller.together import Together
from policies.headroom.columns import Floats
from tests.unit.policies.controller.plants import Shop, rack_budgets
from tests.unit.policies.controller.test_together import UNITS, after_turns, go, had_turns

__all__ = ["after_turns", "had_turns"]


def held(shop: Shop, together: Together, budget_w: float) -> Controlled:
    asked = np.arange(shop.reach.count) == 0
    found, _ = held_as_asked(
        shop.plant(), UNITS, Budgets(shop.reach, np.where(asked, budget_w, np.nan), shop.load_w),
        shop.memory, Paused(), together=together, asked=asked, now=shop.at, tuning=shop.tuning,
        may_pause={}, rest_w=np.full(len(shop.runs), 70.0), is_in_time=False,
    )  # fmt: skip
    return found


def caps_w(found: Controlled) -> float:
    cap_w: Floats = np.minimum(found.cap_w, found.full_w)
    return float(cap_w[UNITS.unit].sum())


def test_nobody_firm_is_slowed_for_peaks_that_are_apart(
    after_turns: tuple[Shop, Together],
) -> None:
    shop, together = after_turns
    beside_w = held(shop, together, 1e6).other_w[0]
    found = held(shop, together, beside_w + 1.05 * float(together.most_w[0]))
    assert caps_w(found) > 1.1 * together.most_w[0], "it is what the scene is about"
    assert caps_w(found) == pytest.approx(float(found.full_w[UNITS.unit].sum()))


def test_once_firm_jobs_are_slowed_their_caps_add_up(after_turns: tuple[Shop, Together]) -> None:
    shop, together = after_turns
    beside_w = held(shop, together, 1e6).other_w[0]
    budget_w = beside_w + 0.9 * float(together.most_w[0])
    assert caps_w(held(shop, together, budget_w)) <= budget_w - beside_w


def test_what_is_held_back_says_nothing_of_peaks(after_turns: tuple[Shop, Together]) -> None:
    shop, known = after_turns
    shop.cap_w[UNITS.gpu] = 300.0
    shop.budget_w = rack_budgets(shop.reach, 0.9 * float(shop.load_w[0]))
    after = go(shop, known, 300)
    assert float(shop.drawn_w[UNITS.gpu].sum()) < 0.7 * known.most_w[0], "they are held back"
    assert after.most_w[0] == pytest.approx(known.most_w[0])
