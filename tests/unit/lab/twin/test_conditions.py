"""What is stated to be wrong acts on the twin at its next step, and ends with its statement."""

from collections.abc import Callable

import numpy as np
import pytest

from headroom.contracts import ThrottleCause
from lab.fleet import make_fleet, wan_pairs
from lab.training import JOB_KINDS
from lab.twin import NO_FAILURES, Conditions, Twin
from lab.twin.state import BOOT_S


def make_twin(*, gpus: int = 512, warm_up_s: float = 600.0, substep_s: float = 2.0) -> Twin:
    twin = Twin(make_fleet(gpus=gpus), seed=7, failures=NO_FAILURES, substep_s=substep_s)
    # Zones with room for any draw of jobs: what is seen comes of what is stated.
    twin.parts.zone_capacity_w[:] *= 1.4
    twin.advance(warm_up_s)
    return twin


def test_conditions_are_neutral_at_first_and_after_a_reset() -> None:
    fleet = make_fleet(gpus=512)
    conditions, fresh = Conditions(fleet), vars(Conditions(fleet))
    arrays = {name: values for name, values in vars(conditions).items() if name != "_neutral"}
    for values in arrays.values():
        values[:] = 1 if values.dtype == np.bool_ else 0.37
    conditions.reset()
    for name, values in arrays.items():
        assert np.array_equal(values, fresh[name]), name
    assert len(conditions.link_loss) == len(fleet.racks) + len(fleet.sites) + len(wan_pairs(fleet))


def test_neutral_conditions_change_nothing() -> None:
    plain, reset = make_twin(), make_twin()
    for _ in range(20):
        reset.conditions.power_limit_share[:] = 0.5
        reset.conditions.reset()
        plain.advance(2.0)
        reset.advance(2.0)
    assert np.array_equal(plain.power_w, reset.power_w)


Acts = Callable[[Conditions], None]


def set_to(name: str, value: float) -> Acts:
    def act(conditions: Conditions) -> None:
        getattr(conditions, name)[:] = value

    return act


#: What is stated, and what must then be lower or higher than without it after some minutes.
EFFECTS: dict[str, tuple[Acts, Callable[[Twin], float], int]] = {
    "lower limits": (set_to("power_limit_share", 0.6), lambda t: t.power_w.max(), -1),
    "lower clocks": (set_to("clock_share", 0.5), lambda t: t.clock.max(), -1),
    "warmer supply": (set_to("supply_offset_c", 8.0), lambda t: t.inlet_c.mean(), 1),
    "lost chillers": (set_to("zone_capacity_share", 0.4), lambda t: t.inlet_c.mean(), 1),
    "more draw": (set_to("gpu_draw_factor", 1.1), lambda t: t.power_w.mean(), 1),
    "bad seats": (set_to("gpu_resistance_factor", 1.3), lambda t: t.temp_c.mean(), 1),
    "lost nodes": (set_to("node_down", 1.0), lambda t: t.node_w.max(), -1),
    "a lower budget of racks": (set_to("rack_budget_share", 0.5), lambda t: t.rack_w.max(), -1),
    "a lower budget above": (set_to("domain_budget_share", 0.4), lambda t: t.site_w.sum(), -1),
    "silent nodes": (set_to("node_silent", 1.0), lambda t: t.silent.mean(), 1),
}


@pytest.mark.parametrize("what", EFFECTS)
def test_what_is_stated_acts_and_ends(what: str) -> None:
    act, measure, sign = EFFECTS[what]
    plain, faulty = make_twin(substep_s=8.0), make_twin(substep_s=8.0)
    act(faulty.conditions)
    plain.advance(240.0)
    faulty.advance(240.0)
    assert sign * (measure(faulty) - measure(plain)) > 0.02 * abs(measure(plain))
    faulty.conditions.reset()
    # Brakes keep caps lowered for a while; the rest is over within minutes.
    faulty.advance(7 * 1200.0 if "budget" in what else 1800.0)
    assert not faulty.braked.any()
    assert np.array_equal(faulty.power_limit_w, faulty.parts.power_limit_w)
    assert not faulty.down.any()
    assert faulty.inlet_c == pytest.approx(plain.inlet_c, abs=6.0)
    assert faulty.rack_w.sum() == pytest.approx(plain.rack_w.sum(), rel=0.25)


def test_measurements_that_lie_do_not_change_what_is_true() -> None:
    plain, faulty = make_twin(), make_twin()
    for name, value in (("power_bias", 0.5), ("temp_bias_c", -20.0), ("clock_skew_s", 90.0)):
        getattr(faulty.conditions, name)[:] = value
    faulty.conditions.stuck[:] = True
    plain.advance(60.0)
    faulty.advance(60.0)
    assert np.array_equal(plain.power_w, faulty.power_w)
    assert np.array_equal(plain.temp_c, faulty.temp_c)


def test_a_node_that_goes_down_loses_its_job_and_gets_none() -> None:
    twin = make_twin()
    node = int(np.flatnonzero(twin.job_of_node > 0)[0])
    name = twin.workload.names[twin.job_of_node[node]]
    twin.conditions.node_down[node] = True
    twin.advance(2.0)
    assert name not in twin.workload.names
    for _ in range(30):
        twin.advance(20.0)
        assert twin.job_of_node[node] == 0
    gpus = slice(8 * node, 8 * node + 8)
    assert (twin.power_w[gpus] == 0.0).all()
    assert not twin.busy[gpus].any()
    assert twin.node_w[node] == twin.host_w[node] == 0.0
    assert twin.silent[node]
    assert twin.temp_c[gpus] == pytest.approx(twin.ambient_c[gpus], abs=0.5)
    twin.conditions.reset()
    twin.advance(2.0)
    assert not twin.down[node]
    assert (twin.power_w[gpus] > 0.0).all()


def test_a_task_on_a_node_that_is_down_is_lost() -> None:
    fleet = make_fleet(gpus=64)
    twin = Twin(fleet, seed=7, queued=np.ones(8, dtype=np.bool_), failures=NO_FAILURES)
    slot = twin.workload.begin_task("task", JOB_KINDS["train"], 0.0, nodes=1)
    assert slot is not None
    twin.hold(np.arange(8), slot)
    twin.advance(10.0)
    assert slot not in twin.workload.lost
    twin.conditions.node_down[0] = True
    twin.advance(2.0)
    assert slot in twin.workload.lost
    other = twin.workload.begin_task("other", JOB_KINDS["train"], 0.0, nodes=1)
    assert other is not None
    twin.let_go(slot)
    twin.hold(np.arange(8), other)
    assert other in twin.workload.lost


def test_a_lost_feed_loads_the_other_and_a_dark_rack_boots_when_it_is_back() -> None:
    twin = make_twin()
    feeds = twin.domains.of_kind("feed")
    before_w = twin.feed_w
    twin.conditions.domain_lost[feeds[0]] = True
    twin.advance(2.0)
    assert twin.feed_w[0] == 0.0
    assert twin.feed_w[1] > 1.8 * before_w[1]
    assert not twin.down.any()
    twin.conditions.domain_lost[feeds[1]] = True
    twin.advance(4.0)
    first_site = twin.fleet.site_of_rack[twin.fleet.rack_of_node] == 0
    assert (twin.down == first_site).all()
    assert twin.site_w[0] == 0.0
    twin.conditions.reset()
    twin.advance(BOOT_S - 10.0)
    assert twin.down[first_site].all()
    twin.advance(20.0)
    assert not twin.down.any()


def test_a_feed_that_is_too_much_for_brakes_all_racks_below_it() -> None:
    twin = make_twin()
    feed = int(twin.domains.of_kind("feed")[0])
    budget_w = 0.9 * twin.domain_w[feed]
    twin.conditions.domain_budget_share[feed] = budget_w / twin.domains.budget_w[feed]
    seen = 0
    for _ in range(20):
        twin.advance(2.0)
        seen |= int(np.bitwise_or.reduce(twin.throttle))
    assert seen & ThrottleCause.HW_POWER_BRAKE.value
    first_site = twin.fleet.site_of_rack == 0
    limited = twin.power_limit_w < twin.parts.power_limit_w
    assert (limited == np.repeat(first_site[twin.fleet.rack_of_node], 8)).all()
    twin.advance(300.0)
    assert twin.domain_w[feed] < 1.05 * budget_w


def test_a_breaker_trips_only_where_the_brakes_are_out_of_order() -> None:
    trips = []
    for stuck in (False, True):
        twin = make_twin(gpus=64, warm_up_s=60.0)
        twin.conditions.brake_stuck[:] = stuck
        # As in an emergency that leaves half a feed: both its rating and what may be drawn of it.
        twin.domains.capacity_w[:] = twin.domain_w / 1.6
        twin.domains.budget_w[:] = 0.8 * twin.domains.capacity_w
        twin.advance(900.0)
        trips.append(int(twin.trips.sum()))
    assert trips[0] == 0
    assert trips[1] > 0


def test_without_cooling_air_warms_no_faster_than_the_heat_allows() -> None:
    twin = make_twin(substep_s=4.0)
    before_c = twin.inlet_c.copy()
    twin.conditions.zone_capacity_share[:] = 0.0
    twin.advance(8.0)
    # A full rack of 60 kW and 500 kJ/°C: 7 °C a minute at most.
    assert (twin.inlet_c - before_c <= 0.2 * 8.0).all()
    twin.advance(3600.0)
    assert np.isfinite(twin.inlet_c).all()
    assert twin.shutdowns > 0
    assert twin.down.any()


def test_a_rack_warms_its_neighbors_in_the_row_only() -> None:
    a, b = make_twin(), make_twin()
    rack = 1
    nodes = a.fleet.rack_of_node == rack
    for twin, down in ((a, False), (b, True)):
        twin.conditions.node_down[nodes] = down
        twin.advance(600.0)
    cooler_c = a._air._recirculated_c(a.rack_w) - b._air._recirculated_c(b.rack_w)
    assert cooler_c[rack] > cooler_c[0] > 0.05
    assert cooler_c[2] > 0.05
    assert abs(cooler_c[4:]).max() < 0.6 * cooler_c[0]
