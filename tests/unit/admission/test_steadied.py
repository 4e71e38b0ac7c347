"""What budgets carry beside GPUs, read of meters that lag behind them by seconds."""

from __future__ import annotations

import numpy as np

from admission.core.controlling import Excess


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
