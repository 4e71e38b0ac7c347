"""Forecasts of loads: bounded, shown only where their record is good, with a band that is kept."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.headroom.outlook import AHEAD, COVERAGE, METHODS, Basis, Forecast, Record, learned

Values = Any


def basis(now_w: Values, slope_w: Values = 0.0, **given: Any) -> Basis:
    now = np.asarray(now_w, dtype=np.float64)
    values = {
        "slope_w": np.broadcast_to(np.float64(slope_w), now.shape),
        "levels_w": np.full((3, len(now)), np.nan),
        "changes_w": np.zeros((len(AHEAD), len(now))),
        "most_w": np.full(len(now), np.inf),
    }
    return Basis(now_w=now, **{**values, **given})


def followed(loads: Values, **given: Any) -> tuple[Record, list[Forecast]]:
    """Return the record after a series of loads (updates, budgets), and all that was said."""
    loads = np.asarray(loads, dtype=np.float64)
    record, made = Record.none(loads.shape[1]), deque[Forecast](maxlen=AHEAD[-1])
    said = []
    for update, came in enumerate(loads):
        due = {place: made[-ahead] for place, ahead in enumerate(AHEAD) if len(made) >= ahead}
        record = learned(record, due, came)
        slope = came - loads[max(update - 1, 0)]
        made.append(
            Forecast.of(record, basis(came, slope_w=slope, levels_w=record.levels_w, **given))
        )
        said.append(made[-1])
    return record, said


def noise(updates: int = 400, budgets: int = 8, seed: int = 1) -> Values:
    """Loads that go up and down around a level: the level is better than "as now"."""
    return 1_000.0 + np.random.default_rng(seed).normal(0.0, 50.0, (updates, budgets))


def walk(updates: int = 400, budgets: int = 8, seed: int = 1) -> Values:
    """Loads of which nothing is known but that they are as now."""
    steps = np.random.default_rng(seed).normal(0.0, 50.0, (updates, budgets))
    return 50_000.0 + np.cumsum(steps, axis=0)


def test_a_load_that_returns_to_its_level_is_forecast_to_do_so() -> None:
    record, said = followed(noise())
    assert record.shown[:4].all()
    assert (record.ratio[:4] < 0.85).all()
    assert said[-1].load_w == pytest.approx(np.full((len(AHEAD), 8), 1_000.0), rel=0.1)


def test_a_forecast_that_is_no_better_than_as_now_is_hidden() -> None:
    _record, said = followed(walk())
    assert not any(each.shown.any() for each in said)


def test_one_that_gets_worse_is_hidden_again() -> None:
    record, said = followed(np.vstack([noise(300), walk(120)]))
    assert said[299].shown[:3].all()
    assert not record.shown[:3].any()


def test_nothing_is_shown_before_enough_was_compared() -> None:
    _record, said = followed(noise())
    for place, ahead in enumerate(AHEAD):
        first = ahead + 30 + 3 * ahead
        assert not any(each.shown[place].any() for each in said[: first - 1])
        assert not any(each.banded[place].any() for each in said[: first - 1])


@pytest.mark.parametrize("series", [noise, walk])
def test_four_of_five_loads_fall_into_the_band(series: Any) -> None:
    loads = series(1_200)
    _record, said = followed(loads)
    # A walk strays for as long as a horizon, and then all comparisons miss: far ahead, bands lag.
    for place, (ahead, slack) in enumerate(zip(AHEAD, (0.06, 0.06, 0.08, 0.12), strict=False)):
        within = [
            (made.low_w[place] <= came) & (came <= made.high_w[place])
            for made, came in zip(said, loads[ahead:], strict=False)
            if made.banded[place].all()
        ]
        assert np.mean(within) == pytest.approx(COVERAGE, abs=slack)


def test_known_changes_are_weighed() -> None:
    """A job of 5 kW starts and ends again and again, and each change is known beforehand."""
    loads = np.where(np.arange(400) // 7 % 2, 15_000.0, 10_000.0)[:, None]
    record, made = Record.none(1), deque[Forecast](maxlen=AHEAD[-1])
    for update, came in enumerate(loads):
        due = {place: made[-ahead] for place, ahead in enumerate(AHEAD) if len(made) >= ahead}
        record = learned(record, due, came)
        later = [loads[min(update + ahead, 399)] - came for ahead in AHEAD]
        made.append(Forecast.of(record, basis(came, changes_w=np.stack(later))))
    assert {METHODS[int(each)] for each in record.method[:4, 0]} == {"known changes"}
    assert record.shown[:4].all()
    assert record.own_loss_w[1, 0] < 0.5 * record.loss_w[0, 1, 0]


def test_a_load_that_was_not_read_is_not_compared_and_nothing_is_said_of_it_for_a_while() -> None:
    loads = noise(300)
    loads[200:203] = np.nan
    _record, said = followed(loads)
    assert said[199].shown[0].all()
    assert not any(each.shown.any() or each.banded.any() for each in said[200:207])
    assert said[208].shown[0].all()


floats = st.floats(0.0, 1e6)


@settings(max_examples=60, deadline=None)
@given(
    now_w=floats, slope_w=st.floats(-1e5, 1e5), most_w=floats, change_w=st.floats(-1e6, 1e6),
    method=st.integers(0, len(METHODS) - 1), off_w=floats,
)  # fmt: skip
def test_no_forecast_and_no_band_leaves_what_is_enforced(
    now_w: float, slope_w: float, most_w: float, change_w: float, method: int, off_w: float
) -> None:
    record = Record.none(1)
    record = replace(
        record,
        method=np.full_like(record.method, float(method)),
        high_w=record.high_w + off_w,
        low_w=record.low_w - off_w,
        levels_w=np.full((3, 1), 2.0 * now_w),
    )
    changes_w = np.full((len(AHEAD), 1), change_w)
    given = {"levels_w": record.levels_w, "most_w": np.array([most_w]), "changes_w": changes_w}
    made = Forecast.of(record, basis([now_w], slope_w=slope_w, **given))
    for each in (made.load_w, made.low_w, made.high_w, made.said_w):
        assert (each <= max(most_w, now_w)).all()
        assert (each >= 0.0).all()
    assert (made.low_w <= made.load_w).all()
    assert (made.load_w <= made.high_w).all()


def test_budgets_do_not_sway_each_other() -> None:
    loads = np.hstack([noise(150, 2), walk(150, 2)])
    together, _ = followed(loads)
    alone, _ = followed(loads[:, 2:3])
    assert together.packed()[:, 2] == pytest.approx(alone.packed()[:, 0], nan_ok=True)


def test_a_record_is_packed_and_unpacked() -> None:
    record, _ = followed(noise(80, 3))
    again = Record.unpacked(record.packed())
    np.testing.assert_array_equal(again.packed(), record.packed())
    with pytest.raises(ValueError, match="numbers for each budget"):
        Record.unpacked(record.packed()[:-1])


def test_what_was_said_is_packed_and_unpacked() -> None:
    _, said = followed(noise(80, 3), most_w=np.full(3, np.inf))
    again = Forecast.unpacked(said[-1].packed())
    np.testing.assert_array_equal(again.packed(), said[-1].packed())
    np.testing.assert_allclose(again.basis.by_method, said[-1].basis.by_method, rtol=1e-5)
    with pytest.raises(ValueError, match="numbers for each budget"):
        Forecast.unpacked(said[-1].packed()[1:])


def test_while_hidden_the_load_is_said_to_be_as_now_with_what_is_known_to_come() -> None:
    changes_w = np.full((len(AHEAD), 1), 500.0)
    made = Forecast.of(Record.none(1), basis([1_000.0], slope_w=90.0, changes_w=changes_w))
    assert made.said_w[:, 0].tolist() == [1_500.0] * len(AHEAD)
    record = Record.none(1)
    record.loss_w[1] = 1.0  # what was known to come did not come
    made = Forecast.of(record, basis([1_000.0], slope_w=90.0, changes_w=changes_w))
    assert made.said_w[:, 0].tolist() == [1_000.0] * len(AHEAD)
