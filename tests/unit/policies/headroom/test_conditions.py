"""What rows of racks take, and what is said of a site: each number against the laws."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleet.snapshot import FleetArrays
from physics.thermal import time_to_throttle_s
from policies.headroom.budgets import keys, places
from policies.headroom.claims import Claims
from policies.headroom.conditions import Consequence, SiteConditions, conditions
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Outlook, Past
from policies.headroom.row_capacity import fits, row_capacities, throttling_gpus
from policies.scopes import ScopeKind
from tests.builders.arrays import SLOWDOWN_C, make_arrays, make_frame
from tests.unit.policies.headroom.scenes import AMBIENT_C, NOW, all_read, fitted, headroom_of

ROOMY: dict[str, Any] = {"budget_w": 60_000.0, "pdu_w": 400_000.0, "zone_w": 400_000.0}
SLOW_J_PER_C = 5_000.0


def two_rows(
    hot: float = 0.12, cool: float = 0.05, power_w: float = 300.0, **fleet_values: Any
) -> tuple[FleetArrays, Headroom]:
    """Rows A and B of four racks; row A is cooled badly: its GPUs have the resistance ``hot``."""
    fleet = make_arrays(racks=8, nodes=2, **{**ROOMY, **fleet_values})
    in_a = fleet.racks.row[fleet.nodes.rack[fleet.gpus.node]] == "A"
    resistance = np.where(in_a, hot, cool)
    frame = all_read(fleet, power_w=power_w, temp_c=AMBIENT_C + power_w * resistance)
    return fleet, headroom_of(fleet, frame, past=fitted(fleet, resistance, SLOW_J_PER_C))


def about(found: SiteConditions, token: str, when: str) -> list[Consequence]:
    return [each for each in found.consequences if (each.token, each.when) == (token, when)]


def test_a_badly_cooled_row_takes_a_job_until_its_gpus_settle_at_their_slowdown() -> None:
    _fleet, headroom = two_rows()
    a, b = row_capacities(headroom, "s1")
    at_slowdown_w = (SLOWDOWN_C - AMBIENT_C) / 0.12
    host = 1 + 3200 / (8 * 700)
    assert a.job_w == pytest.approx(64 * (at_slowdown_w - 300) * host)
    assert a.throttles
    assert b.job_w == pytest.approx(64 * 400 * host)
    assert (b.throttles, b.power_limit.token) == (False, None)


def test_the_sentence_on_heat_has_the_size_the_time_the_cap_and_the_other_row() -> None:
    _fleet, headroom = two_rows()
    found = conditions(headroom, "s1")
    (said,) = about(found, "ThermalHeadroom", "if")
    cap, place = said.ways
    assert cap.cap_w == 5 * ((SLOWDOWN_C - AMBIENT_C) / 0.12 // 5)
    assert place.row == "B"
    wait_s = time_to_throttle_s(
        temp_c=AMBIENT_C + 36.0, limit_c=SLOWDOWN_C, power_w=700.0, ambient_c=AMBIENT_C,
        resistance_c_per_w=0.12, capacitance_j_per_c=SLOW_J_PER_C,
    )  # fmt: skip
    assert said.in_s == pytest.approx(wait_s, rel=1e-4)
    assert re.fullmatch(
        r"Jobs above 24\.\d kW throttle after about \d+ min in row A unless capped at 540 W per GPU"
        r" or placed in row B, which takes 40\.\d kW\.",
        said.sentence,
    )
    assert said.need > said.have
    assert found.answer.startswith("s1 takes jobs of up to 40.")


def test_under_the_cap_that_is_said_nothing_throttles_and_above_it_something_does() -> None:
    _fleet, headroom = two_rows()
    (said,) = about(conditions(headroom, "s1"), "ThermalHeadroom", "if")
    room = row_capacities(headroom, "s1")[0]
    cap_w = said.ways[0].cap_w
    assert cap_w is not None
    for watts, throttle in ((cap_w, False), (cap_w + 6.0, True)):
        tried = np.minimum(room.gpu_w(room.power_share), watts)
        assert bool(len(throttling_gpus(headroom.what_if(tried), room.gpus))) is throttle


def test_gpus_that_throttle_at_todays_load_are_told_with_the_cap_that_saves_them() -> None:
    fleet = make_arrays(racks=4, nodes=2, **ROOMY)
    resistance = np.where(np.arange(len(fleet.gpus)) < 3, 0.14, 0.05)
    frame = all_read(fleet, power_w=600.0, temp_c=60.0)
    found = conditions(headroom_of(fleet, frame, past=fitted(fleet, resistance, 9_000.0)), "s1")
    (said,) = about(found, "ThermalHeadroom", "if")
    assert said.sentence.startswith("3 GPUs of row A would throttle under today's load unless ")
    assert said.ways[0].cap_w == 5 * ((SLOWDOWN_C - AMBIENT_C) / 0.14 // 5)
    # Nobody has scored when: no time is said.
    assert said.in_s is None
    assert "would be exceeded" not in found.answer


def test_a_rack_that_reads_too_hot_is_told_where_its_cooling_is_not_known() -> None:
    fleet = make_arrays(racks=2, nodes=2, **ROOMY)
    is_first = fleet.nodes.rack[fleet.gpus.node] == 0
    frame = all_read(fleet, power_w=300.0, temp_c=np.where(is_first, SLOWDOWN_C + 4, 40.0))
    found = conditions(headroom_of(fleet, frame), "s1")
    (said,) = about(found, "ThermalHeadroom", "now")
    assert said.scope is not None
    assert (
        said.sentence
        == f"Rack {said.scope.name} is 4 °C over the slowdown temperature of its GPUs."
    )
    assert found.answer.startswith("At s1 one limit is exceeded.")


def test_what_is_over_its_budget_is_told_first_with_the_cap_under_which_it_is_not() -> None:
    fleet, headroom = two_rows(hot=0.05, power_w=500.0, pdu_w=60_000.0)
    found = conditions(headroom, "s1")
    over = about(found, "FeedRedundancy", "now")
    assert {each.row for each in over} == {""}
    assert {each.scope.name for each in over if each.scope} == {
        f"s1/pdu-{row}-{side}" for row in "AB" for side in "ab"
    }
    said = over[0]
    assert said.scope is not None
    assert said.short == pytest.approx(said.need - said.have)
    cap_w = said.ways[0].cap_w
    assert cap_w is not None
    row = fleet.domains.index_by_path[said.scope.name]
    for watts, fine in ((cap_w, True), (cap_w + 6.0, False)):
        under = headroom.what_if(np.minimum(headroom.summary.gpus.load_w, watts))
        assert (under.failover.headroom_w[row] >= 0) is np.bool_(fine)
    assert "limits are exceeded" in found.answer


def with_a_claim(fleet: FleetArrays, **given: Any) -> tuple[Past, int]:
    """Return a past in which zone B is claimed to be over within 20 to 50 minutes, and its row."""
    here = places(fleet)[ScopeKind.ZONE]
    row, count = here.start + 1, len(keys(fleet))
    claims = Claims.none(count)
    claims.from_[row], claims.upto[row], claims.sure[row] = NOW + 1_200, NOW + 3_000, 0.83
    known = replace(Outlook.none(count), at=NOW - 30.0, claims=claims, **given)
    return replace(fitted(fleet), outlook=known), row


def over_a_small_zone(**given: Any) -> tuple[FleetArrays, Headroom]:
    """Zone B has 10 kW left, and its GPUs may rise by more."""
    fleet = make_arrays(racks=8, nodes=2, **ROOMY)
    load_w = headroom_of(fleet, all_read(fleet, power_w=300.0)).zone_load_w[1]
    zones = replace(fleet.zones, capacity_w=np.array([400_000.0, load_w + 10_000.0]))
    fleet = replace(fleet, zones=zones)
    past, _ = with_a_claim(fleet)
    frame = all_read(fleet, power_w=300.0, **given)
    return fleet, headroom_of(fleet, frame, past=past)


def test_what_is_claimed_to_be_exceeded_is_told_with_its_time_and_how_sure_it_is() -> None:
    _fleet, headroom = over_a_small_zone()
    found = conditions(headroom, "s1")
    (said,) = about(found, "CoolingCapacity", "soon")
    assert said.scope is not None
    assert said.scope.name == "s1/zone-B"
    assert said.in_s == pytest.approx(1_200.0)
    assert said.claim == "between 14:06 and 14:36 UTC (8 of 10)"
    assert f"would be over its capacity of cooling {said.claim} unless GPUs" in said.sentence
    assert f"the first limit would be exceeded {said.claim}." in found.answer


def test_a_claim_is_not_told_where_limits_in_force_make_it_impossible() -> None:
    """GPUs read back a limit of 350 W: their zone cannot rise by 10 kW."""
    _, headroom = over_a_small_zone(power_limit_w=350.0)
    found = conditions(headroom, "s1")
    assert not about(found, "CoolingCapacity", "soon")
    assert "would be exceeded" not in found.answer
    _, free = over_a_small_zone()
    assert about(conditions(free, "s1"), "CoolingCapacity", "soon")


def test_a_slope_alone_claims_nothing() -> None:
    fleet, headroom = two_rows(hot=0.05)
    slope = np.zeros(len(fleet.zones))
    slope[1] = 100.0
    past = replace(headroom.past, slopes={ScopeKind.ZONE: slope})
    found = conditions(headroom_of(fleet, headroom.frame, past=past), "s1")
    assert not about(found, "CoolingCapacity", "soon")
    assert "would be exceeded" not in found.answer


def test_a_claim_is_not_told_once_nobody_looks_after_it_or_other_nodes_are_silent() -> None:
    fleet, headroom = over_a_small_zone()
    past = headroom.past
    assert past.outlook is not None
    others = past.outlook.silent + 1.0
    for outlook in (replace(past.outlook, at=NOW - 400.0), replace(past.outlook, silent=others)):
        again = headroom_of(fleet, headroom.frame, past=replace(past, outlook=outlook))
        assert not about(conditions(again, "s1"), "CoolingCapacity", "soon")


def test_a_row_that_takes_less_than_another_says_why_and_where_there_is_more() -> None:
    fleet = make_arrays(racks=8, nodes=2, **ROOMY)
    capacity_w = fleet.zones.capacity_w.copy()
    capacity_w[0] = 45_000.0
    fleet = replace(fleet, zones=replace(fleet.zones, capacity_w=capacity_w))
    frame = all_read(fleet, power_w=300.0, temp_c=40.0)
    found = conditions(headroom_of(fleet, frame, past=fitted(fleet)), "s1")
    (said,) = about(found, "CoolingCapacity", "if")
    assert (said.row, said.ways[0].row) == ("A", "B")
    assert "do not fit into row A, since zone s1/zone-A has no more; row B takes" in said.sentence
    row = found.rows[0]
    assert (row.job_limit, row.job_limit_at) == ("CoolingCapacity", "s1/zone-A")
    assert row.job_w == pytest.approx(45_000.0 - row.load_w)


def test_a_busy_link_is_told_with_what_it_leaves() -> None:
    fleet = make_arrays(racks=1)
    frame = make_frame(
        fleet, now=NOW, gpu={"power_w": 300.0, "temp_c": 40.0},
        link={"tx_bytes_per_s": np.array([1e9, 11e9]), "rx_bytes_per_s": 0.0},
    )  # fmt: skip
    (said,) = about(conditions(headroom_of(fleet, frame), "s1"), "LinkHeadroom", "if")
    assert said.sentence == (
        "Link s1/wan is used to 88 %: 2.00 Gbit/s are left for bulk traffic,"
        " so that 1 TB takes about 67 min."
    )


def test_a_site_that_was_never_heard_takes_no_job() -> None:
    fleet = make_arrays(racks=4, nodes=8)
    found = conditions(headroom_of(fleet, make_frame(fleet, now=NOW)), "s1")
    assert "takes no job" in found.answer
    assert found.hottest_c is None
    assert all(row.job_w == 0 and row.stale for row in found.rows)
    # Nobody could cap what nobody hears.
    assert not any(each.ways for each in found.consequences)


def test_an_unknown_site_is_an_error_and_an_empty_one_is_not() -> None:
    fleet = make_arrays(racks=4)
    with pytest.raises(KeyError):
        conditions(headroom_of(fleet, all_read(fleet)), "nowhere")
    empty = make_arrays(sites=1, racks=0)
    assert "takes no job" in conditions(headroom_of(empty, all_read(empty)), "s1").answer


@settings(max_examples=50, deadline=None)
@example(seed=391)  # one rack is over its budget already, and the job goes to the others
@given(seed=st.integers(0, 2**32 - 1))
def test_a_job_that_is_said_to_fit_does_and_a_larger_one_does_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fleet = make_arrays(
        racks=8, nodes=2, gpus=4, budget_w=rng.uniform(9e3, 2e4), pdu_w=rng.uniform(3e4, 9e4),
        zone_w=rng.uniform(3e4, 9e4),
    )  # fmt: skip
    resistance = rng.uniform(0.04, 0.16, len(fleet.gpus))
    power_w = rng.uniform(70, 450, len(fleet.gpus))
    temp_c = np.minimum(AMBIENT_C + resistance * power_w, SLOWDOWN_C - 1)
    frame = all_read(fleet, power_w=power_w, temp_c=temp_c)
    headroom = headroom_of(fleet, frame, past=fitted(fleet, resistance))
    for room in row_capacities(headroom, "s1"):
        share = min(room.power_share, room.heat_share)
        drawing = room.gpus[room.more_w > 0]
        racks = np.unique(fleet.nodes.rack[fleet.gpus.node[drawing]])
        if share > 0:
            assert fits(headroom.what_if(room.gpu_w(share)), racks)
        if room.most_w > 0 and share < 0.95:
            assert not fits(headroom.what_if(room.gpu_w(share + 0.05)), racks)


def test_past_is_not_needed() -> None:
    fleet = make_arrays(racks=4)
    assert conditions(headroom_of(fleet, all_read(fleet), past=Past.none(fleet)), "s1").rows
