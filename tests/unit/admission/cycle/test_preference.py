"""Phases that prefer cheap or clean power wait as long as they agreed to, and keep nobody back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.whatif import dry_run, explain
from admission.core.energy.ahead import Ahead
from admission.core.reasons import ReasonToken
from admission.core.request import Request
from admission.core.snapshot import Pending, Snapshot, Tuning
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, World, make_request

HOUR = 3600.0
#: A whole hour, and twenty minutes later: when these cycles decide.
START = NOW // HOUR * HOUR
CALM = Tuning(stagger_above=2.0)


def ahead(*price: list[float], carbon: list[list[float]] | None = None) -> Ahead:
    """Return rates by site and hour; each list goes on with its last for two days."""

    def long(rates: list[list[float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([row + [row[-1]] * (48 - len(row)) for row in rates])

    rows = [*price]
    names = tuple(f"site{row}" for row in range(len(rows)))
    return Ahead(
        start=START, sites=names, price=long(rows), carbon=long(carbon or rows), currency="EUR"
    )


def fleet_world(sites: int = 1) -> World:
    return World(make_arrays(racks=2 * sites, nodes=1, sites=sites), tuning=CALM)


def asks(key: str = "a/train", **values: Any) -> Request:
    return make_request(key, **{"gpus": 8, "prefers": "price", "submitted_at": NOW, **values})


def decided(world: World, rates: Ahead) -> Decisions:
    return decide(replace(world.snapshot(), ahead=rates))


def why(decisions: Decisions, job: str = "a") -> ReasonToken:
    return decisions.waiting[f"{job}/train"].dominant.token


def named(rates: Ahead, world: World) -> Ahead:
    """Return rates of the sites that a world has."""
    names = world.snapshot().cluster.fleet.sites.names.tolist()
    return replace(rates, sites=tuple(names[: len(rates.sites)]))


def test_who_agreed_to_wait_waits_for_the_cheaper_hour_and_says_what_that_saves() -> None:
    world = fleet_world()
    world.submit(asks(may_wait_s=6 * HOUR))
    found = decided(world, named(ahead([0.2, 0.2, 0.2, 0.05, 0.2]), world))
    assert why(found) is ReasonToken.POWER_PREFERENCE
    reason = found.waiting["a/train"].dominant
    assert reason.evidence["until"] == START + 3 * HOUR
    assert (reason.evidence["rate_now"], reason.evidence["rate_then"]) == (0.2, 0.05)
    kwh = reason.evidence["energy_kwh"]
    assert reason.evidence["saves"] == pytest.approx(0.15 * kwh)
    assert "0.05 beside 0.2 EUR/kWh now, cheaper by" in reason.sentence


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"may_wait_s": 2 * HOUR},
        {"may_wait_s": 6 * HOUR, "submitted_at": NOW - 6 * HOUR},
        {"may_wait_s": 6 * HOUR, "deadline_at": NOW + HOUR},
        {"may_wait_s": 6 * HOUR, "prefers": ""},
    ],
)
def test_nobody_waits_longer_than_they_agreed_to(values: dict[str, Any]) -> None:
    world = fleet_world()
    world.submit(asks(**values))
    found = decided(world, named(ahead([0.2, 0.2, 0.2, 0.05, 0.2]), world))
    assert [each.request.job for each in found.admitted] == ["a"]


def test_what_is_not_known_or_saves_next_to_nothing_is_not_waited_for() -> None:
    for rates in ([0.2, 0.2, 0.195], [float("nan")], [0.2, float("nan")]):
        world = fleet_world()
        world.submit(asks(may_wait_s=6 * HOUR))
        assert decided(world, named(ahead(rates), world)).admitted


def test_carbon_goes_by_its_own_figures() -> None:
    world = fleet_world()
    world.submit(asks(prefers="carbon", may_wait_s=6 * HOUR))
    rates = ahead([0.2, 0.05], carbon=[[300.0, 300.0, 300.0, 30.0, 300.0]])
    reason = decided(world, named(rates, world)).waiting["a/train"].dominant
    assert reason.evidence["until"] == START + 3 * HOUR
    assert reason.evidence["saves_unit"] == "kg CO2e"
    assert reason.evidence["saves"] == pytest.approx(0.27 * reason.evidence["energy_kwh"])


def test_others_take_the_gpus_that_it_leaves() -> None:
    world = fleet_world()
    world.submit(asks(may_wait_s=6 * HOUR, priority=10))
    for job in ("b", "c"):
        world.submit(make_request(f"{job}/train", gpus=8))
    found = decided(world, named(ahead([0.2, 0.05]), world))
    assert {each.request.job for each in found.admitted} == {"b", "c"}


def test_it_starts_now_where_it_is_told_not_to_wait() -> None:
    world = fleet_world()
    world.submit(asks(may_wait_s=6 * HOUR))
    found = decided(world, named(ahead([0.2, 0.05]), world))
    first = explain(found, "a/train").counterfactuals[0]
    assert first.change.as_json() == {"may_wait_s": 0.0}
    assert "without waiting for cheaper power" in first.sentence
    world.pending["a/train"] = replace(
        world.pending["a/train"], request=first.change.apply(asks(may_wait_s=6 * HOUR), {})
    )
    assert decided(world, named(ahead([0.2, 0.05]), world)).admitted


def test_a_dry_run_waits_as_the_job_would() -> None:
    world = fleet_world()
    found = decided(world, named(ahead([0.2, 0.05]), world))
    told = dry_run(found, Pending(asks(may_wait_s=6 * HOUR)))
    assert told.placement is None
    assert told.reasons[0].token is ReasonToken.POWER_PREFERENCE


def test_of_sites_with_room_the_cheaper_is_taken_and_else_the_other() -> None:
    for rates, first in (([0.2], [0.1]), 1), (([0.1], [0.2]), 0):
        world = World(make_arrays(racks=1, nodes=1, sites=2), tuning=CALM)
        for number in range(2):
            world.submit(asks(f"j{number}/train", submitted_at=NOW - 2 + number))
        snapshot = replace(world.snapshot(), ahead=named(ahead(*rates), world))
        names = snapshot.cluster.fleet.sites.names.tolist()
        sites = {each.request.job: each.placement.sites for each in decide(snapshot).admitted}
        assert sorted(sites.values()) == sorted((name,) for name in names)
        del world.pending["j1/train"]
        [alone] = decide(replace(world.snapshot(), ahead=snapshot.ahead)).admitted
        assert alone.placement.sites == (names[first],)


def test_one_that_begins_with_more_than_it_asks_for_does_not_leave_the_cheaper_site() -> None:
    world = World(make_arrays(racks=1, nodes=1, sites=2), tuning=CALM)
    rates = named(ahead([0.2], [0.1]), world)
    world.submit(make_request("b/train", gpus=4, sites=(rates.sites[1],)))
    world.submit(asks(gpus=2, max_gpus=8, preemptible=True, checkpoint_interval_s=600.0))
    placements = {each.request.job: each.placement for each in decided(world, rates).admitted}
    assert placements["a"].sites == (rates.sites[1],)
    assert len(placements["a"].gpus) == 4


def test_a_cheaper_site_is_left_to_those_who_can_go_nowhere_else() -> None:
    for free in (0, 1):
        world = World(make_arrays(racks=1, nodes=1, sites=2), tuning=CALM)
        rates = named(ahead(*([0.1], [0.2]) if free else ([0.2], [0.1])), world)
        cheap = rates.sites[1 - free]
        world.submit(asks("a/train", priority=10))
        world.submit(make_request("b/train", gpus=8, sites=(cheap,)))
        found = decided(world, rates)
        without = decide(world.snapshot())
        assert {each.request.job for each in without.admitted} <= {
            each.request.job for each in found.admitted
        }


def test_without_a_preference_rates_change_nothing() -> None:
    world = fleet_world(sites=2)
    for number in range(3):
        world.submit(asks(f"j{number}/train", prefers=""))
    with_rates = decided(world, named(ahead([0.2], [0.1, 0.01]), world))
    assert with_rates.admitted == decide(world.snapshot()).admitted


_Job: TypeAlias = tuple[str, float, int, float, tuple[str, ...]]
_RATES = st.lists(st.floats(-0.5, 2.0), min_size=1, max_size=12)
_JOBS = st.lists(
    st.tuples(
        st.sampled_from(["", "price", "carbon"]),
        st.sampled_from([0.0, HOUR, 5 * HOUR]),
        st.sampled_from([1, 4, 8]),
        st.floats(0.0, 8 * HOUR),
        st.sampled_from([(), ("s1",), ("s2",)]),
    ),
    min_size=1,
    max_size=6,
)


def _snapshot(
    jobs: list[tuple[str, float, int, float, tuple[str, ...]]], rates: list[list[float]]
) -> Snapshot:
    world = World(make_arrays(racks=1, nodes=2, sites=2), tuning=CALM)
    for number, (prefers, wait_s, gpus, ago_s, sites) in enumerate(jobs):
        world.submit(
            asks(
                f"j{number}/train", prefers=prefers, may_wait_s=wait_s, gpus=gpus,
                submitted_at=NOW - ago_s, sites=sites,
            )
        )  # fmt: skip
    return replace(world.snapshot(), ahead=named(ahead(*rates), world))


@settings(max_examples=60, deadline=None)
@given(jobs=_JOBS, first=_RATES, second=_RATES)
def test_preferences_delay_nobody_who_did_not_agree(
    jobs: list[tuple[str, float, int, float, tuple[str, ...]]],
    first: list[float],
    second: list[float],
) -> None:
    snapshot = _snapshot(jobs, [first, second])
    found, without = decide(snapshot), decide(replace(snapshot, ahead=None))
    started = {each.request.key for each in found.admitted}
    waits = {
        key for key, each in found.waiting.items()
        if each.dominant.token is ReasonToken.POWER_PREFERENCE
    }  # fmt: skip
    for key in waits:
        request = found.waiting[key].request
        assert request.prefers
        assert found.waiting[key].dominant.evidence["until"] <= (
            request.submitted_at + request.may_wait_s
        )
    # All others that would start without any preference start with them.
    assert {each.request.key for each in without.admitted} - waits <= started
    # Nobody holds more than there is, and a second look at the same decides the same.
    held = [gpu for each in found.admitted for gpu in each.placement.gpus]
    assert len(held) == len(set(held))
    assert decide(snapshot).admitted == found.admitted
