from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.fleet import Fleet, make_fleet
from lab.matrix.reading import read
from lab.matrix.scenario import LEVELS, QUANTITIES, FaultKind, Scenario
from lab.scenarios.faults import Faults, TargetError, cannot_do, spans
from lab.twin import Conditions

FLEET = make_fleet(gpus=256)


def scenario(*faults: str) -> Scenario:
    listed = "\n".join(f"  - {{{each}}}" for each in faults)
    return read(f"name: a\ntitle: t\nduration: 20m\nfaults:\n{listed}\n".encode())


def conditions_at(now_s: float, given: Scenario, *, seed: int = 1) -> Conditions:
    conditions = Conditions(FLEET)
    Faults(given, FLEET, seed=seed)(now_s, conditions)
    return conditions


def wrong(conditions: Conditions, fleet: Fleet = FLEET) -> dict[str, int]:
    """Return the arrays that are not neutral, with how many values are not."""
    neutral = vars(Conditions(fleet))
    changed = {
        name: int((values != neutral[name]).sum())
        for name, values in vars(conditions).items()
        if not name.startswith("_")
    }
    return {name: count for name, count in changed.items() if count}


#: A fault of each kind as it is written, and the conditions that it changes on a fleet of two
#: sites with two racks of eight nodes each.
WRITTEN = {
    "power_limit": ("share: 0.5, target: {level: rack, count: 1}", {"power_limit_share": 64}),
    "power_budget": ("share: 0.8, target: {names: [oslo/utility]}", {"domain_budget_share": 1}),
    "supply_temperature": ("offset_c: 8, target: {count: 1}", {"supply_offset_c": 1}),
    "cooling_loss": (
        "share: 0.5, target: {level: site, names: [oslo]}",
        {"zone_capacity_share": 1},
    ),
    "clock_limit": ("share: 0.6, target: {count: 2}", {"clock_share": 16}),
    "link_bandwidth": ("share: 0.1, target: {names: ['*/spine']}", {"link_capacity_share": 2}),
    "link_latency": (
        "latency_s: 0.1, target: {names: ['*/wan-*']}",
        {"link_extra_latency_s": 2},
    ),
    "link_loss": ("loss_share: 0.02, target: {level: storage}", {"storage_loss": 2}),
    "link_jitter": ("jitter_s: 0.05, target: {names: ['*/wan-*']}", {"link_jitter_s": 2}),
    "site_isolated": ("target: {names: [oslo]}", {"site_isolated": 1}),
    "storage_slow": ("bytes_per_s: 2.0e+10", {"storage_share": 2}),
    "node_loss": ("target: {level: rack, names: [oslo/A01]}", {"node_down": 8}),
    "feed_loss": ("target: {names: [oslo/feed-a]}", {"domain_lost": 1}),
    "stale_telemetry": ("target: {count: 3}", {"node_silent": 3}),
    "lying_sensor": ("factor: 0.5, target: {count: 3}", {"power_bias": 3}),
    "clock_skew": ("skew_s: 60, target: {count: 3}", {"clock_skew_s": 3}),
    "kill": ("target: {count: 1}", {"node_down": 1}),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_fault_changes_its_conditions_while_it_acts_and_none_after(kind: str) -> None:
    amounts, expected = WRITTEN[kind]
    length = "" if kind == "kill" else "for: 5m, "
    given = scenario(f"kind: {kind}, at: 5m, {length}{amounts}")
    assert wrong(conditions_at(299.0, given)) == {}
    assert wrong(conditions_at(300.0, given)) == expected
    assert wrong(conditions_at(600.0, given)) == {}


def test_every_kind_is_tried_or_told_that_it_cannot_be() -> None:
    untried = set(FaultKind) - {FaultKind(kind) for kind in WRITTEN}
    told = {FaultKind.SHRINK_BATCH, FaultKind.PAUSE, FaultKind.MOVE}
    assert untried == {FaultKind.CPU_QUOTA, *told}
    assert "jobs of the twin are told" in cannot_do(scenario("kind: move, at: 1m"))
    given = scenario("kind: cpu_quota, at: 1m, share: 0.5")
    assert cannot_do(given) == "cpu_quota: the twin has no CPUs: run this on a real command"
    assert cannot_do(scenario("kind: node_loss, at: 1m")) == ""


def test_sensors_lie_in_one_of_three_ways() -> None:
    for amount, array in (
        ("factor: 0.5", "power_bias"),
        ("offset_c: -10", "temp_bias_c"),
        ("stuck: true", "stuck"),
    ):
        given = scenario(f"kind: lying_sensor, at: 1m, {amount}, target: {{count: 2}}")
        assert wrong(conditions_at(60.0, given)) == {array: 2}


def test_limits_in_watts_and_megahertz_become_shares() -> None:
    given = scenario(
        "kind: power_limit, at: 1m, limit_w: 350", "kind: clock_limit, at: 1m, limit_mhz: 1000000"
    )
    conditions = conditions_at(60.0, given)
    limits = np.array([rack.power_limit_w for rack in FLEET.racks])[FLEET.rack_of_node].repeat(8)
    assert conditions.power_limit_share == pytest.approx(np.minimum(350.0 / limits, 1.0))
    assert (conditions.clock_share == 1.0).all()  # no limit raises a clock


def test_of_two_faults_on_one_thing_the_worse_counts() -> None:
    given = scenario(
        "kind: clock_limit, at: 1m, share: 0.5, for: 2m", "kind: clock_limit, at: 2m, share: 0.8"
    )
    shares = [float(conditions_at(at, given).clock_share.max()) for at in (60.0, 130.0, 200.0)]
    assert shares == [0.5, 0.5, 0.8]
    warmer = scenario(*["kind: supply_temperature, at: 1m, offset_c: 3"] * 2)
    assert (conditions_at(60.0, warmer).supply_offset_c == 6.0).all()


def test_what_is_drawn_is_drawn_by_the_seed() -> None:
    given = scenario("kind: node_loss, at: 1m, target: {count: 4}")
    first, again, other = (conditions_at(60.0, given, seed=seed) for seed in (1, 1, 2))
    assert (first.node_down == again.node_down).all()
    assert (first.node_down != other.node_down).any()


def test_a_name_that_the_fleet_does_not_have_is_told_with_those_that_it_has() -> None:
    given = scenario("kind: feed_loss, at: 1m, target: {names: [paris/feed-a]}")
    told = r"faults\[0\]\.target\.names: no domain .* is called paris/feed-a: .*oslo/feed-a"
    with pytest.raises(TargetError, match=told):
        Faults(given, FLEET, seed=1)


def test_faults_are_shown_as_spans() -> None:
    given = scenario("kind: clock_limit, at: 5m, share: 0.5, target: {count: 2}")
    (span,) = spans(given)
    assert (span.name, span.from_s, span.to_s) == ("clock_limit", 300.0, 1200.0)
    assert span.said == "share 0.5; node: 2 drawn"


@settings(max_examples=30)
@given(
    order=st.lists(st.floats(0, 1200), min_size=2, max_size=6),
    kinds=st.lists(st.sampled_from(sorted(WRITTEN)), min_size=1, max_size=5),
)
def test_what_is_wrong_depends_on_the_clock_alone(order: list[float], kinds: list[str]) -> None:
    """Also with moments left out: so no end of a run leaves a fault behind."""
    listed = [
        f"kind: {kind}, at: {60 * (place + 1)}s, {'' if kind == 'kill' else 'for: 3m, '}"
        f"{WRITTEN[kind][0]}"
        for place, kind in enumerate(kinds)
    ]
    given = scenario(*listed)
    faults, conditions = Faults(given, FLEET, seed=3), Conditions(FLEET)
    for now_s in order:
        faults(now_s, conditions)
    fresh = conditions_at(order[-1], given, seed=3)
    assert wrong(conditions) == wrong(fresh)
    faults(1200.0, conditions)
    assert wrong(conditions) == {}


def test_kinds_know_their_levels() -> None:
    assert all(LEVELS[kind] and kind in QUANTITIES for kind in FaultKind)
