"""The closed loop: what must never happen, and what policies do about what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.cycle.decide import Decisions
from admission.core.response.respond import Throttling
from admission.core.snapshot import Snapshot
from lab.training import make_spec
from lab.twin import NO_FAILURES, Conditions
from lab.world import EPOCH_S, Arrival, Headroom, Policy, Record, World
from lab.world.record import drawn_w
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.rules import document
from policies.scopes import Scope, ScopeKind
from tests.unit.lab.world.builders import make_arrival, make_arrivals, tight_fleet

REPOSITORY = Path(__file__).resolve().parents[4]
Fault = Callable[[Conditions], None]


MOVING: dict[str, Any] = {
    "moves": True,
    "sites": ("oslo",),
    "preemptible": True,
    "checkpoint_interval_s": 100.0,
    "cross_site_checkpoint": True,
}
DRAIN_WHEN_HOT = """
name: drain-when-hot
scope: site
severity: critical
summary: "The air at {name} is at {inlet_c}."
when: inlet_c > 26.0
for: 10s
clear: inlet_c < 25.5
clear_for: 60s
effects:
  - restrict: {kind: drain, lease: 10m, most_of_site: 1.0}
"""


def make_world(arrivals: list[Arrival], **values: Any) -> World:
    given = {"fleet": tight_fleet(), "seed": 1, "failures": NO_FAILURES, **values}
    return World(given.pop("fleet"), arrivals, given.pop("policy", None), **given)


def during(begin_s: float, end_s: float, fault: Fault) -> Callable[[float, Conditions], None]:
    def state(now_s: float, conditions: Conditions) -> None:
        if begin_s <= now_s < end_s:
            fault(conditions)

    return state


def whats(record: Record, what: str) -> list[str]:
    return [each.whom for each in record.decisions if each.what == what]


# --- The same again -------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second, other = (
        make_world(make_arrivals(8, seed=seed, within_s=50.0), seed=seed).run(120.0)
        for seed in (1, 1, 2)
    )
    assert first.digest == second.digest
    assert first.decisions == second.decisions
    assert first.digest != other.digest


def test_going_on_later_is_the_same_as_going_on() -> None:
    arrivals = make_arrivals(12, seed=1, within_s=100.0)
    world = make_world(arrivals)
    world.run(100.0)
    assert world.run(200.0).digest == make_world(arrivals).run(200.0).digest


@pytest.mark.slow
def test_the_order_of_hashes_changes_nothing() -> None:
    script = (
        "from tests.unit.lab.world.test_world import *\n"
        "def fault(c): c.domain_budget_share[:] = 0.6; c.node_silent[:2] = True\n"
        "world = make_world(make_arrivals(20, seed=1, within_s=200.0),"
        " conditions_at=during(300.0, 400.0, fault))\n"
        "print(world.run(500.0).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


# --- What must never happen -----------------------------------------------------------------------


class Checked(Headroom):
    """Takes every budget anew for whoever starts."""

    def decide(self, snapshot: Snapshot) -> Decisions:
        decisions = super().decide(snapshot)
        cluster = snapshot.cluster.copy()
        for each in decisions.admitted:
            assert cluster.admits(each.placement, each.request)
            cluster.allocate(each.placement, each.request)
        return decisions


@settings(max_examples=2, deadline=None)
@given(
    seed=st.integers(0, 1000),
    power_share=st.floats(0.55, 1.0),
    feed_share=st.floats(0.6, 1.0),
)
def test_nothing_is_ever_over_a_budget(seed: int, power_share: float, feed_share: float) -> None:
    fleet = tight_fleet(power_share=power_share, feed_share=feed_share)
    record = make_world(make_arrivals(24, seed=seed, within_s=200.0), fleet=fleet, seed=seed).run(
        600.0
    )
    assert record.over_budget_s["any"] == 0.0
    assert record.unexpected_throttle_gpu_s == 0.0


def test_gangs_are_whole_or_absent() -> None:
    world = make_world(
        make_arrivals(20, seed=3, within_s=100.0),
        conditions_at=during(150.0, 200.0, lambda c: c.node_down.__setitem__(slice(0, 2), True)),
    )
    for until_s in np.arange(20.0, 320.0, 20.0).tolist():
        world.run(until_s)
        held: defaultdict[int, int] = defaultdict(int)
        for gang in world.gangs:
            assert len(gang.gpus) == gang.request.gpus
            for gpu in gang.gpus.tolist():
                held[gpu] += 1
        assert set(held.values()) <= {1}
        assert int(world.twin.busy.sum()) == len(held)
        running = {job.key for job in world.open.values() if job.state == "running"}
        assert running == set(world.gangs.by_key)


def test_a_single_queue_that_knows_no_watts_does_go_over() -> None:
    fleet = tight_fleet(power_share=0.7)
    arrivals = [make_arrival(f"j{i}", runs_s=3600.0, activity=1.0) for i in range(8)]
    blind = Headroom(
        name="blind", enforces_budgets=False, follows_rules=False, responds=False, sheds=False,
        moves=False, caps=False, controls=False,
    )  # fmt: skip
    record = make_world(arrivals, fleet=fleet, policy=Policy(approach=blind)).run(300.0)
    assert record.over_budget_s["any"] > 0.0
    assert record.unexpected_throttle_gpu_s > 0.0
    careful = make_world(arrivals, fleet=fleet).run(300.0)
    assert careful.over_budget_s["any"] == 0.0


def lower_budgets(conditions: Conditions) -> None:
    conditions.domain_budget_share[:] = 0.6


def warm_up(conditions: Conditions) -> None:
    conditions.supply_offset_c[:] = 20.0


def cut_off(conditions: Conditions) -> None:
    conditions.site_isolated[0] = True


def lose_feed(conditions: Conditions) -> None:
    conditions.domain_lost[1] = True


def fall_silent(conditions: Conditions) -> None:
    conditions.node_silent[:] = True


@pytest.mark.parametrize(
    ("fault", "until_s"),
    [
        pytest.param(warm_up, 4000.0, marks=pytest.mark.slow),
        pytest.param(lower_budgets, 4000.0, marks=pytest.mark.slow),
        pytest.param(cut_off, 4000.0, marks=pytest.mark.slow),
        pytest.param(lose_feed, 4000.0, marks=pytest.mark.slow),
        pytest.param(fall_silent, 4000.0, marks=pytest.mark.slow),
    ],
)
def test_every_effect_is_undone_when_its_cause_ends(fault: Fault, until_s: float) -> None:
    world = make_world(
        [replace(each, runs_s=20_000.0) for each in make_arrivals(16, seed=5, within_s=100.0)],
        # Air warms up slowly.
        conditions_at=during(250.0, 700.0, fault),
        rack_inlets=True,
    )
    world.run(695.0)
    acted = {each.what for each in world.ledger.decisions} - {"start"}
    assert acted
    world.run(until_s)
    assert not world.in_force.restrictions
    assert np.isinf(world._agents.restricted_w).all()
    assert np.isinf(world.twin.cap_mhz).all()
    assert all(gang.is_at_ease and gang.scale == 1.0 for gang in world.gangs)


# --- What policies do -----------------------------------------------------------------------------


def giving_way(count: int = 4) -> list[Arrival]:
    terms = Throttling(0.05, 0.02, 0.5)
    return [make_arrival(f"j{i}", runs_s=9000.0, throttling=terms) for i in range(count)]


def test_caps_keep_lowered_budgets_and_nobody_shrinks() -> None:
    world = make_world(giving_way(), conditions_at=during(200.0, 400.0, lower_budgets))
    world.run(190.0)
    before_w = drawn_w(world.twin)["domain"]
    world.run(380.0)
    budgets_w = world._budgets["domain"]
    assert (before_w > budgets_w).any()
    assert (drawn_w(world.twin)["domain"] <= budgets_w).all()
    record = world.run(460.0)
    assert not {*whats(record, "shrunk"), *whats(record, "paused"), *whats(record, "stop")}
    assert 0.0 < record.over_budget_s["any"] <= 10.0
    assert record.lost_gpu_s == 0.0
    assert (world.twin.clock[world.twin.busy] > 0.99).all(), "all run at full speed again"


def test_where_no_agent_acts_jobs_give_way_when_budgets_are_lowered_and_go_back() -> None:
    fault = during(200.0, 400.0, lower_budgets)
    world = make_world(giving_way(), conditions_at=fault, acting_share=0.0)
    record = world.run(900.0)
    assert np.isinf(world.twin.cap_w).all()
    assert whats(record, "shrunk") or whats(record, "paused")
    assert set(whats(record, "full")) >= set(whats(record, "shrunk"))
    over = record.over_budget_s["any"]
    assert 0.0 < over <= 150.0
    assert record.lost_gpu_s == 0.0


def test_what_loses_its_node_goes_on_from_its_checkpoint() -> None:
    arrival = make_arrival(runs_s=600.0, checkpoint_interval_s=100.0)
    world = make_world(
        [arrival], conditions_at=during(350.0, 420.0, lambda c: c.node_down.fill(True))
    )
    (job,) = world.run(900.0).jobs
    assert (job.state, job.restarts) == ("done", 1)
    assert 0.0 < job.lost_gpu_s <= 8 * 110.0
    assert job.work_gpu_s == 8 * 600.0
    assert job.held_gpu_s >= job.work_gpu_s + job.lost_gpu_s


def test_what_trains_goes_by_its_steps_and_resumes_whole() -> None:
    spec = make_spec("train", gpus=8, runs_s=600.0, key="job")
    spec = replace(spec, checkpoint_interval_s=60.0, checkpoint_bytes=1e9)
    world = make_world(
        [make_arrival(runs_s=600.0, training=spec, checkpoint_interval_s=60.0)],
        conditions_at=during(300.0, 350.0, lambda c: c.node_down.fill(True)),
    )
    (job,) = world.run(900.0).jobs
    assert job.state == "done"
    assert job.restarts == 1
    assert job.checkpoint_ok is True
    assert job.final_loss is not None
    assert 0.0 < job.lost_gpu_s < 8 * 120.0


def test_what_fails_again_and_again_ends_as_failed() -> None:
    arrival = make_arrival(runs_s=900.0, max_restarts=1)

    def down_and_up(now_s: float, conditions: Conditions) -> None:
        conditions.node_down[:] = now_s % 200.0 < 20.0

    (job,) = make_world([arrival], conditions_at=down_and_up).run(450.0).jobs
    assert job.state == "failed"
    assert job.restarts == 2


def test_what_cannot_be_reached_ends_late_and_begins_nowhere_else() -> None:
    drain_when_silent = DRAIN_WHEN_HOT.replace("inlet_c > 26.0", "stale_share > 0.9")
    rule = document.read(drain_when_silent.replace("inlet_c < 25.5", "stale_share < 0.5"))
    arrivals = [make_arrival(f"j{i}", runs_s=4000.0, **MOVING) for i in range(2)]
    world = make_world(
        arrivals,
        policy=Policy(rules=(rule,), playbooks={}, approach=Headroom(sheds=False)),
        conditions_at=during(150.0, 500.0, cut_off),
    )
    record = world.run(490.0)
    assert len(whats(record, "stop")) == 2
    assert all(gang.leaves_s is not None and gang.leaves_s < 480.0 for gang in world.gangs)
    assert [job.state for job in record.jobs] == ["running", "running"]
    assert len(whats(record, "start")) == 2
    assert {job.restarts for job in world.run(560.0).jobs} == {1}


def test_jobs_that_may_move_leave_a_site_that_is_drained() -> None:
    arrivals = [make_arrival("mover", runs_s=4000.0, **MOVING)]
    policy = Policy(rules=(document.read(DRAIN_WHEN_HOT),), playbooks={})
    hot = during(300.0, 800.0, lambda c: c.supply_offset_c.__setitem__(0, 25.0))
    world = make_world(arrivals, policy=policy, conditions_at=hot)
    record = world.run(780.0)
    (job,) = record.jobs
    assert job.restarts == 1
    assert job.lost_gpu_s == 0.0
    assert {gang.placement.sites for gang in world.gangs} == {("bergen",)}
    assert any("regional-fallback" in each.how for each in record.decisions)
    record = world.run(1500.0)
    assert any(each.how.startswith("primary-site") for each in record.decisions)
    assert not world.in_force.restrictions


def test_a_series_has_a_row_for_each_sample() -> None:
    record = make_world(make_arrivals(4, seed=1, within_s=50.0), sample_s=20.0).run(200.0)
    assert record.times_s[0] <= 2.0
    assert (np.diff(record.times_s[1:]) == 20.0).all()
    assert record.series.site_w.shape == (len(record.times_s), len(record.sites))
    assert set(record.series.throttled) == set(record.throttle_gpu_s)


@pytest.mark.parametrize("name", ["step_s", "sample_s", "cycle_s"])
def test_steps_have_to_be_above_0(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        make_world([], **{name: 0.0})


def test_an_arrival_has_to_run_for_some_time() -> None:
    with pytest.raises(ValueError, match="job/train: runs_s must be above 0"):
        make_arrival(runs_s=0.0, walltime_s=1.0)


# --- What a grid asks for -------------------------------------------------------------------------


def budget_of_the_site(share: float, begin_s: float, end_s: float) -> Wanted:
    site_w = World(tight_fleet(), [], seed=1)._inventory.sites.budget_w[0]
    starts_at, ends_at = (datetime.fromtimestamp(EPOCH_S + at, UTC) for at in (begin_s, end_s))
    return Wanted(
        RestrictionKind.POWER_BUDGET_W, Scope(ScopeKind.SITE, "oslo"), share * site_w, "the grid",
        "user:ada", "cut-1", ends_at, starts_at=starts_at,
    )  # fmt: skip


def test_an_announced_budget_is_seen_beforehand_and_counts_from_when_it_has_to_be_met() -> None:
    budget = budget_of_the_site(0.4, 400.0, 700.0)
    world = make_world(giving_way())
    world.run(200.0)
    world.restrict(budget)
    world.run(300.0)
    assert [each.value for each in world.in_force.announced] == [budget.value]
    assert not world.in_force.of(RestrictionKind.POWER_BUDGET_W)
    whole_w = world._budgets["site"][0]
    world.run(380.0)
    held = world.in_force.of(RestrictionKind.POWER_BUDGET_W)
    assert [each.value for each in held] == [budget.value]
    assert world._budgets["site"][0] == whole_w
    world.run(410.0)
    assert world._budgets["site"][0] == budget.value
    world.run(500.0)
    assert drawn_w(world.twin)["site"][0] <= budget.value
    assert all(gang.is_paused for gang in world.gangs) or world.twin.clock.min() < 0.999
    world.run(760.0)
    assert world._budgets["site"][0] == whole_w
    world.run(800.0)
    assert (world.twin.clock[world.twin.busy] > 0.99).all()
