"""A gang that draws less than where it works is not taken to work for all of that time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.account import PPM, Cause, GpuSpans
from admission.goodput.draws import STANDS, GangDraws, draw, holders, is_at_limit
from admission.goodput.steps import times_us

US = 1_000_000


def shares(
    draws: list[float], *, at_limit: tuple[int, ...] = (), is_quiet: bool = True
) -> dict[int, float]:
    """Return what of each minute of a gang of one GPU was below its level, without what is 0."""
    found = GangDraws(1, 0.0, 60.0, len(draws))
    at = 60.0 * np.arange(len(draws), dtype=np.float64)
    limited = np.isin(np.arange(len(draws)), at_limit)
    found.add(np.zeros(len(draws), dtype=np.int64), at, np.array(draws), limited)
    low = found.shares(np.array([is_quiet]))
    assert low.cause == Cause.LOW_DRAW
    assert (low.end_us - low.start_us == 60 * US).all()
    return dict(zip((low.start_us // (60 * US)).tolist(), (low.ppm / PPM).tolist(), strict=True))


def test_a_minute_at_what_stands_still_is_all_below_the_level_and_one_between_in_part() -> None:
    assert shares([0.9] * 8 + [STANDS, 0.6, 0.1]) == {8: 1.0, 9: 0.5, 10: 1.0}


def test_minutes_above_the_level_of_a_gang_are_all_work() -> None:
    assert shares([0.5, 0.6, 0.6, 0.6, 0.9]) == {0: pytest.approx(1 / 3)}


def test_a_gang_that_never_draws_more_than_what_stands_tells_nothing() -> None:
    assert shares([0.1, 0.2, 0.05]) == {}


def test_what_its_power_limit_holds_back_works_however_little_it_draws() -> None:
    assert shares([0.9] * 8 + [0.4, 0.4], at_limit=(8,)) == {9: pytest.approx(5 / 6)}


def test_of_a_gang_whose_loop_tells_nothing_is_said() -> None:
    assert shares([0.9, 0.9, 0.9, 0.1], is_quiet=False) == {}


def test_a_minute_that_was_not_read_and_a_draw_that_is_not_known_say_nothing() -> None:
    assert shares([0.9, np.nan, 0.9, 0.9]) == {}


def test_gpus_of_a_gang_count_together_and_those_of_none_do_not() -> None:
    found = GangDraws(2, 0.0, 60.0, 2)
    gang = np.array([1, 1, 1, 1, -1, 1])
    at = np.array([0.0, 0.0, 60.0, 60.0, 60.0, 120.0])
    found.add(gang, at, np.array([0.9, 0.9, 0.9, 0.3, 0.0, 0.0]), np.zeros(6, dtype=np.bool_))
    low = found.shares(np.ones(2, dtype=np.bool_))
    assert (low.gpu.tolist(), low.ppm.tolist()) == ([1], [PPM // 2])


@given(st.lists(st.floats(-0.5, 2.0), min_size=1, max_size=60))
def test_shares_are_shares_and_a_quarter_of_the_minutes_at_least_is_all_work(
    draws: list[float],
) -> None:
    found = shares(draws)
    assert all(0.0 < each <= 1.0 for each in found.values())
    assert len(draws) - len(found) >= len(draws) // 4


def test_the_draw_is_the_way_from_idle_to_rated() -> None:
    found = draw(np.array([70.0, 700.0, 385.0, 400.0]), np.array([70.0, 70.0, 70.0, np.nan]),
                 np.array([700.0, 700.0, 700.0, np.nan]))  # fmt: skip
    assert found[:3].tolist() == [0.0, 1.0, 0.5]
    assert np.isnan(found[3])


def test_a_gpu_without_a_known_limit_is_not_at_it() -> None:
    power_w, limit_w = np.array([690.0, 400.0, 700.0]), np.array([700.0, 700.0, np.nan])
    assert is_at_limit(power_w, limit_w).tolist() == [True, False, False]


def held(*spans: tuple[int, float, float]) -> GpuSpans:
    part, start, end = zip(*spans, strict=True) if spans else ((), (), ())
    return GpuSpans(**times_us(part, start, end))


def whose(spans: GpuSpans, gang: list[int], *moments: tuple[int, float]) -> list[int]:
    part = np.array([part for part, _ in moments], dtype=np.int64)
    at_us = np.array([int(at * US) for _, at in moments], dtype=np.int64)
    found: list[int] = holders(part, at_us, spans, np.array(gang, dtype=np.int64)).tolist()
    return found


def test_a_part_is_held_from_the_start_of_a_span_up_to_its_end() -> None:
    spans = held((3, 10.0, 20.0))
    assert whose(spans, [7], (3, 9.0), (3, 10.0), (3, 19.0), (3, 20.0), (2, 15.0)) == [
        -1, 7, 7, -1, -1,
    ]  # fmt: skip


def test_of_two_that_hold_a_part_the_one_that_began_last_does() -> None:
    spans = held((0, 0.0, 50.0), (0, 30.0, 90.0), (1, 0.0, 90.0))
    assert whose(spans, [4, 5, 6], (0, 29.0), (0, 40.0), (1, 40.0)) == [4, 5, 6]


def test_nobody_holds_anything_where_there_is_nothing() -> None:
    assert whose(held(), [], (0, 1.0)) == [-1]
    assert whose(held((0, 0.0, 1.0)), [0]) == []
