"""Budgets in one row: what their loads can reach, and when claims about them are possible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.snapshot import FleetArrays
from policies.headroom import budgets
from policies.headroom.claims import Claims
from policies.headroom.evaluate import evaluate
from policies.headroom.inputs import Outlook, Past, Reservations, Steps
from policies.headroom.outlook import AHEAD, Forecast, Record
from policies.scopes import ScopeKind
from tests.builders.arrays import make_arrays
from tests.unit.policies.headroom.scenes import NOW, all_read, column, headroom_of

RACK, DOMAIN, SITE, ZONE = (
    ScopeKind.RACK, ScopeKind.POWER_DOMAIN, ScopeKind.SITE, ScopeKind.ZONE,
)  # fmt: skip


def small() -> FleetArrays:
    return make_arrays(racks=4, nodes=2, budget_w=20_000.0)


def count_of(fleet: FleetArrays) -> int:
    return len(budgets.keys(fleet))


def test_a_load_can_rise_by_what_limits_leave_to_gpus_and_their_hosts() -> None:
    fleet = small()
    headroom = headroom_of(fleet, all_read(fleet, power_w=400.0, power_limit_w=500.0))
    most, drawn = budgets.reachable_w(headroom), budgets.drawn_w(headroom)
    host = 1 + 3200 / (8 * 700)
    assert most[RACK] - drawn[RACK] == pytest.approx([16 * 100 * host] * 4)
    assert most[SITE] - drawn[SITE] == pytest.approx([64 * 100 * host])
    assert most[ZONE] - drawn[ZONE] == pytest.approx([64 * 100 * host])


def test_a_gpu_that_is_not_read_may_rise_by_all_of_its_rating() -> None:
    fleet = small()
    ts = np.where(np.arange(len(fleet.gpus)) < 1, NOW - 99.0, NOW)
    headroom = headroom_of(fleet, all_read(fleet, ts=ts, power_w=400.0, power_limit_w=400.0))
    most, drawn = budgets.reachable_w(headroom), budgets.drawn_w(headroom)
    host = 1 + 3200 / (8 * 700)
    assert most[RACK] - drawn[RACK] == pytest.approx([700 * host, 0, 0, 0])


def test_a_budget_out_of_reach_is_never_used_up_whatever_the_slope() -> None:
    fleet = small()
    past = replace(Past.none(fleet), slopes={RACK: np.full(4, 100.0)})
    free = headroom_of(fleet, all_read(fleet, power_w=400.0), past=past)
    assert (np.array(column(free, RACK, "power_exhausted_in_s")) < 600.0).all()
    held = headroom_of(fleet, all_read(fleet, power_w=400.0, power_limit_w=410.0), past=past)
    assert np.isinf(column(held, RACK, "power_exhausted_in_s")).all()


@pytest.mark.parametrize(
    ("share", "hot_w", "is_used_up"),
    [(1.01, 400.0, False), (0.99, 400.0, True), (1.01, 700.0, True)],
)
def test_a_zone_is_used_up_only_if_its_racks_may_draw_as_much_or_one_does(
    share: float, hot_w: float, is_used_up: bool
) -> None:
    fleet = make_arrays(racks=4, nodes=2, budget_w=18_000.0)
    capacity_w = np.array([share * fleet.racks.budget_w.sum()])
    fleet = replace(fleet, zones=replace(fleet.zones, capacity_w=capacity_w))
    power_w = np.where(fleet.nodes.rack[fleet.gpus.node] == 0, hot_w, 400.0)
    past = replace(Past.none(fleet), slopes={ZONE: np.full(1, 1000.0)})
    now = headroom_of(fleet, all_read(fleet, power_w=power_w), past=past)
    assert now.zone_load_w < capacity_w
    assert np.isfinite(column(now, ZONE, "cooling_exhausted_in_s")).all() == is_used_up


def claimed_of_all(fleet: FleetArrays, record: Record | None = None) -> Outlook:
    count = count_of(fleet)
    claims = Claims.none(count)
    claims.from_[:], claims.upto[:], claims.sure[:] = NOW + 60, NOW + 900, 0.8
    return Outlook(NOW, record or Record.none(count), claims, np.zeros(count))


def sure_record(rng: np.random.Generator, count: int) -> Record:
    """A record that shows every forecast, with any method and any band."""
    record = Record.none(count)
    shape = record.method.shape
    return replace(
        record,
        method=rng.integers(1, 10, shape).astype(np.float64),
        shown=np.ones(shape),
        compared=np.full(shape, 1e3),
        covered=np.full(shape, 0.8),
        high_w=rng.uniform(0, 1e5, shape),
        low_w=-rng.uniform(0, 10, shape),
        fresh=np.full(count, 99.0),
        levels_w=rng.uniform(0, 1e5, record.levels_w.shape),
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_is_ever_claimed_of_a_budget_that_limits_in_force_keep(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fleet = make_arrays(racks=4, nodes=2, budget_w=rng.uniform(1e4, 2.5e4))
    count = count_of(fleet)
    limit_w = rng.uniform(300, 700)
    frame = all_read(
        fleet, power_w=rng.uniform(100, limit_w, len(fleet.gpus)), power_limit_w=limit_w
    )
    slopes = {kind: np.full(len(getattr(fleet, of)), 50.0) for kind, of in budgets.KINDS.items()}
    steps = Steps(np.array([0]), np.array([NOW + 30.0]), np.array([rng.uniform(0, 2e4)]))
    before = claimed_of_all(fleet, sure_record(rng, count))
    headroom = headroom_of(
        fleet, frame, past=replace(Past.none(fleet), slopes=slopes, outlook=before),
        reservations=replace(Reservations.none(fleet), steps=steps),
    )  # fmt: skip
    after = budgets.updated(headroom, before, {})
    most = budgets.reachable_w(headroom)
    for kind, rows in budgets.places(fleet).items():
        kept = most[kind] <= budgets.budget_w(headroom)[kind]
        assert not after.outlook.claims.standing[rows][kept].any()
        quantity = "cooling" if kind is ZONE else "power"
        claimed = np.isfinite(column(headroom, kind, f"{quantity}_over_from_s"))
        assert not claimed[kept].any()
        for name in ("5m", "15m", "60m"):
            load_w = np.array(column(headroom, kind, f"{quantity}_load_{name}_w"))
            assert (load_w <= np.maximum(most[kind], budgets.drawn_w(headroom)[kind]) + 1e-6).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), never=st.booleans())
def test_where_readings_go_missing_nothing_is_claimed(seed: int, never: bool) -> None:
    rng = np.random.default_rng(seed)
    fleet = make_arrays(racks=4, nodes=2, budget_w=18_000.0)
    gone = rng.random(len(fleet.gpus)) < rng.choice([0.02, 0.5])
    ts = np.where(gone, 0.0 if never else NOW - 99.0, NOW)
    before = claimed_of_all(fleet, sure_record(rng, count_of(fleet)))
    headroom = headroom_of(
        fleet, all_read(fleet, ts=ts), past=replace(Past.none(fleet), outlook=before)
    )
    after = budgets.updated(headroom, before, {})
    fewer = np.unique(fleet.nodes.rack[fleet.gpus.node[gone]])
    assert not np.isfinite(column(headroom, RACK, "power_over_from_s"))[fewer].any()
    racks = budgets.places(fleet)[RACK]
    assert np.isnan(after.came_w[racks][fewer]).all()
    assert not after.outlook.claims.standing[racks][fewer].any()
    assert (after.outlook.record.fresh[racks][fewer] == 0).all()
    assert not after.made.shown[:, racks][:, fewer].any()


def test_a_steady_rise_is_claimed_in_time_and_comes_true() -> None:
    """A rack gains 20 W a minute for hours: the trend is better than "as now", and it is passed."""
    fleet = make_arrays(racks=1, nodes=2, budget_w=19_000.0)
    known, made = Outlook.none(count_of(fleet)), list[Forecast]()
    rng = np.random.default_rng(5)
    racks = budgets.places(fleet)[RACK]
    told_at = passed_at = None
    for minute in range(1_000):
        at = NOW + 60.0 * minute
        power_w = 250.0 + 0.5 * minute + rng.normal(0.0, 1.0)
        past = replace(Past.none(fleet), slopes=all_slopes(fleet, power_w_per_min=0.5))
        frame = all_read(fleet, power_w=power_w, ts=at)
        headroom = evaluate(fleet, frame, now=at, past=past)
        due = {place: made[-ahead] for place, ahead in enumerate(AHEAD) if len(made) >= ahead}
        update = budgets.updated(headroom, known, due)
        known, made = update.outlook, [*made[-60:], update.made]
        if told_at is None and known.claims.standing[racks].all():
            told_at = minute
        if column(headroom, RACK, "power_headroom_w")[0] < 0:
            passed_at = minute
            break
    assert told_at is not None
    assert passed_at is not None
    assert 2 <= passed_at - told_at <= 60
    assert known.claims.came_true[racks] == [1.0]


def all_slopes(fleet: FleetArrays, power_w_per_min: float) -> dict[ScopeKind, Any]:
    host = 1 + 3200 / (8 * 700)
    slope = len(fleet.gpus) * power_w_per_min * host / 60.0
    return {kind: np.full(len(getattr(fleet, of)), slope) for kind, of in budgets.KINDS.items()}
