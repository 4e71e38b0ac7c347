"""What budgets carry beside GPUs, read of meters that lag behind them by seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from admission.core.controlling import Excess, steadied
from policies.controller.control import Budgets
from tests.unit.policies.controller.plants import RATED_W, Shop, make_fleet


def test_a_step_of_gpus_that_meters_have_not_seen_yet_is_no_other_load() -> None:
    # Load has gone up by 20 kW, and the meter has not seen it; then caps took 60 kW away, and the
    # meter still has them.
    seen = [2_000.0, 2_010.0, -18_000.0, -18_000.0, 1_990.0, 62_000.0, 61_000.0]
    excess = Excess()
    for step, watts in enumerate(seen):
        excess = excess.noted(np.array([watts]), 2.0 * step)
    assert excess.usual_w.tolist() == [2_000.0]


def test_a_meter_that_was_behind_again_and_again_raises_nothing() -> None:
    # Again and again, for 6 s each time, it still has what GPUs do not draw any more.
    excess, told = Excess(), []
    for at in range(0, 120, 2):
        late = at % 32 in (16, 18, 20, 24, 26, 28)
        excess = excess.noted(np.array([9_000.0 if late else 2_000.0]), float(at))
        told.append(float(excess.usual_w[0]))
    assert set(told) == {2_000.0}


def test_another_load_that_stays_counts_once_it_was_read_for_long_enough() -> None:
    excess = Excess()
    for at in range(0, 26, 2):
        excess = excess.noted(np.array([2_000.0 if at < 18 else 9_000.0]), float(at))
    assert excess.usual_w.tolist() == [9_000.0]


def test_what_was_read_of_other_budgets_or_after_now_does_not_count() -> None:
    excess = Excess().noted(np.array([1.0, 2.0]), 0.0)
    assert Excess((5.0,), (np.array([0.0]),)).noted(np.array([3.0]), 4.0).times == (4.0,)
    assert [len(each) for each in excess.noted(np.array([3.0]), 1.0).watts] == [1]


def test_once_hosts_are_known_better_what_was_beside_gpus_before_does_not_count() -> None:
    excess = Excess().noted(np.array([9_000.0]), 0.0, host_share=0.57)
    assert excess.noted(np.array([9_010.0]), 2.0, host_share=0.575).times == (0.0, 2.0)
    assert excess.noted(np.array([7_000.0]), 2.0, host_share=0.23).usual_w.tolist() == [7_000.0]


def test_what_budgets_carry_counts_at_once_where_gpus_are_heard_again() -> None:
    # While they were silent their ratings were assumed, and the meter of the first budget has less.
    excess = Excess()
    for at in range(0, 40, 2):
        excess = excess.noted(np.array([17_000.0, 2_000.0]), float(at))
    excess = excess.noted(np.array([20_500.0, 2_500.0]), 40.0)
    assert excess.usual_w.tolist() == [17_000.0, 2_000.0]
    assert excess.known_now(np.array([True, False])).usual_w.tolist() == [20_500.0, 2_000.0]


def test_the_load_of_a_metered_site_is_not_told_too_low_when_a_silent_node_is_heard_again() -> None:
    shop = Shop(make_fleet(), np.zeros(0))
    read, node = shop.plant(), np.arange(8)
    assumed_w = read.drawn_w.copy()
    assumed_w[node] = RATED_W
    silent, nobody = replace(read, drawn_w=assumed_w), np.zeros(0, dtype=np.int64)
    budgets, excess = Budgets(shop.reach, shop.load_w, shop.load_w), Excess()
    for at in range(0, 40, 2):
        _, excess = steadied(budgets, silent, excess, float(at), nobody)
    found, _ = steadied(budgets, read, excess, 40.0, node)
    assert found.load_w == pytest.approx(shop.load_w)
