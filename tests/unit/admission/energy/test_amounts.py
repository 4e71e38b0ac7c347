"""Energy is counted in whole millijoules, and shared out without losing any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.energy.amounts import apportion, read, total_by

NAN = float("nan")


@given(
    st.lists(
        st.tuples(
            st.integers(-(10**15), 10**15),
            st.lists(st.floats(0.0, 1e9), min_size=1, max_size=6),
        ),
        max_size=6,
    )
)
def test_parts_add_up_to_their_totals_and_are_near_their_shares(
    groups: list[tuple[int, list[float]]],
) -> None:
    totals = np.array([total for total, _ in groups], dtype=np.int64)
    weights = np.array([each for _, given in groups for each in given])
    group = np.repeat(np.arange(len(groups)), [len(given) for _, given in groups])
    found = apportion(totals, weights, group)
    assert total_by(found, group, len(groups)).tolist() == totals.tolist()
    for number, (total, given_weights) in enumerate(groups):
        mine, whole = found[group == number], sum(given_weights)
        assert (np.sign(mine) * np.sign(total) >= 0).all()
        if whole > 1e-3:
            # Floats of sums of weights carry some 1e-7 of a weight in a billion.
            exact = total * np.array(given_weights) / whole
            assert np.abs(mine - exact).max() <= 1.5 + 1e-5 * abs(total)


def test_members_without_weight_share_equally() -> None:
    found = apportion(np.array([10]), np.zeros(4), np.zeros(4, dtype=np.int64))
    assert sorted(found.tolist()) == [2, 2, 3, 3]


def test_a_gap_is_bridged_by_the_mean_of_the_rest_and_told() -> None:
    found = read(np.array([1800.0]), np.array([2700.0]), 3600.0)
    assert (found.mj.tolist(), found.bridged_mj.tolist()) == ([2_400_000], [600_000])
    assert found.covered_ms.tolist() == [2_700_000]


def test_what_was_not_read_for_half_of_the_time_is_not_made_up() -> None:
    found = read(np.array([100.0, NAN, 100.0]), np.array([1700.0, NAN, 0.0]), 3600.0)
    assert found.mj.tolist() == [100_000, 0, 0]
    assert found.bridged_mj.tolist() == [0, 0, 0]
    assert found.known.tolist() == [True, False, False]


def test_what_neither_readings_nor_bridging_tell_is_missing() -> None:
    used_j, covered_s = np.array([10.0, 10.0, 10.0, NAN]), np.array([3600.0, 1800.0, 900.0, 0.0])
    assert read(used_j, covered_s, 3600.0).missing(3600.0).tolist() == [0.0, 0.0, 0.75, 1.0]


def test_the_ends_of_an_hour_are_not_a_gap() -> None:
    found = read(np.array([1000.0, 1000.0]), np.array([3590.0, 3605.0]), 3600.0)
    assert found.mj.tolist() == [1_000_000, 1_000_000]
    assert found.covered_ms.tolist() == [3_590_000, 3_600_000]


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_shared_out_among_nobody(count: int) -> None:
    empty = np.zeros(0, dtype=np.int64)
    assert apportion(np.zeros(count, dtype=np.int64), np.zeros(0), empty).tolist() == []
