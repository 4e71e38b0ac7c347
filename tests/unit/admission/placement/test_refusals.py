"""Refusals: every reason with what is needed, what there is, and where, in plain words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.placement.cluster import Cluster
from admission.core.placement.eligibility import Eligibility
from admission.core.placement.gpu_use import GpuUse
from admission.core.placement.place import place
from admission.core.placement.supply import supply_of
from admission.core.reasons import Reason, ReasonToken, dominant
from admission.core.request import Locality, Refusal
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import (
    AT,
    NOW,
    headroom_of,
    make_cluster,
    make_request,
    make_restriction,
    refused,
    with_resistance,
)

#: One site, one row of four racks of two nodes of eight. A busy node draws 10.2 kW, an idle one
#: 2.04 kW: a gang of eight adds 7.92 kW.
FLEET = make_arrays(racks=4, nodes=2, gpus=8)
ADDS_W = (1.0 + 3200.0 / 5600.0) * 8 * 630.0


def only(cluster: Cluster, **values: Any) -> Reason:
    """Return the only reason why a request is refused."""
    reasons = refused(place(cluster, make_request(**values)))
    assert len(reasons) == 1, reasons
    return next(iter(reasons.values()))


def tight(**given: Any) -> Cluster:
    """Return the same fleet with other limits."""
    return make_cluster(make_arrays(racks=4, nodes=2, gpus=8, **given))


def crowded(count: int, **given: Any) -> Cluster:
    """Return a tight cluster that holds gangs of eight."""
    cluster = tight(**given)
    for _ in range(count):
        found = place(cluster, make_request())
        assert not isinstance(found, Refusal)
        cluster.allocate(found, make_request())
    return cluster


# --- What can never be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sites": ("mars",)}, "there is no site 'mars'"),
        ({"data_site": "mars"}, "its data is at 'mars', and there is no such site"),
        ({"storage": "s1/tape"}, "there is no storage endpoint 's1/tape'"),
        ({"cooling": ("ice",)}, "'ice' is no kind of cooling"),
        ({"gpus": 4, "min_gpus": 5}, "it wants 4 GPUs, and 5 at least"),
        ({"gpus": 12, "gpus_per_node": 8}, "no number of GPUs from 12 to 12 is a multiple of 8"),
    ],
)
def test_what_makes_no_sense_here(values: dict[str, Any], words: str) -> None:
    found = only(make_cluster(FLEET), **values)
    assert found.token is ReasonToken.SPEC_INVALID
    assert words in found.sentence


def test_no_such_hardware() -> None:
    found = only(make_cluster(FLEET), models=("B200",))
    assert (found.token, found.need, found.have) == (ReasonToken.HARDWARE_MISMATCH, 8.0, 0.0)
    assert found.sentence == "needs 8 GPUs of B200; there are none in the inventory"


def test_no_such_cooling() -> None:
    found = only(make_cluster(FLEET), cooling=("immersion", "direct-to-chip"))
    assert found.token is ReasonToken.COOLING_MISMATCH
    assert found.sentence == (
        "needs immersion or direct-to-chip cooling; no GPU of any model has it in the inventory"
    )


def test_no_group_is_large_enough() -> None:
    found = only(make_cluster(FLEET), gpus=24, required=Locality.RACK)
    assert (found.token, found.need, found.have, found.short) == (
        ReasonToken.LOCALITY_UNSATISFIABLE, 24.0, 16.0, 8.0,
    )  # fmt: skip
    assert found.sentence == "needs 24 GPUs in one rack; the most there are is 16"


# --- GPUs -----------------------------------------------------------------------------------------


def test_what_is_silent_beside_too_few_is_not_said() -> None:
    """Were it read, there would still be too few."""
    ts = np.where(np.arange(64) < 8, 0.0, 1e6)
    cluster = make_cluster(FLEET, gpu={"ts": ts}, occupied=range(16, 64))
    assert only(cluster, gpus=32).token is ReasonToken.GPU_SHORTAGE


def test_too_few_gpus_are_free() -> None:
    cluster = make_cluster(FLEET, occupied=range(52))
    found = only(cluster, gpus=16)
    assert (found.token, found.need, found.have, found.unit) == (
        ReasonToken.GPU_SHORTAGE, 16.0, 12.0, "GPUs",
    )  # fmt: skip
    assert found.sentence == "needs 16 GPUs, and 12 of 64 are free (52 held by jobs): short 4"
    assert found.evidence["model"] == "H100"


def test_enough_gpus_are_free_in_the_wrong_places() -> None:
    cluster = make_cluster(FLEET, occupied=[gpu for gpu in range(64) if gpu % 8 < 3])
    found = only(cluster, gpus=11, required=Locality.RACK)
    assert found.token is ReasonToken.TOPOLOGY_UNSATISFIABLE
    assert found.sentence == (
        "needs 11 GPUs in one rack; 40 of 64 are free (24 held by jobs), and at most 10 in one"
        " rack: short 1"
    )
    found = only(cluster, gpus=24, gpus_per_node=8)
    assert (found.token, found.have) == (ReasonToken.TOPOLOGY_UNSATISFIABLE, 0.0)


def test_whoever_has_the_rest_is_said_and_adds_up() -> None:
    use = np.zeros(64, dtype=np.uint8)
    use[:20], use[20:30], use[30:34] = GpuUse.GANG, GpuUse.OTHER_LOAD, GpuUse.NO_RUNNER
    ts = np.where(np.arange(64) == 34, 0.0, NOW)
    headroom = headroom_of(FLEET, gpu={"ts": ts})
    drain = make_restriction("drain", "rack s1/A04")
    cluster = Cluster.of(headroom, InForce(AT, (drain,)), use, now=NOW)
    found = refused(place(cluster, make_request(gpus=48)))[ReasonToken.GPU_SHORTAGE]
    assert found.evidence["supply"] == {
        "free": 8, "held by jobs": 20, "under load of no job": 10,
        "not read": 6, "on nodes that run no jobs": 4, "on nodes that are drained": 16,
    }  # fmt: skip
    assert "8 of 64 are free" in found.sentence
    assert found.sentence.endswith(": short 40")


@given(
    uses=st.lists(st.sampled_from(GpuUse), min_size=64, max_size=64),
    silent=st.sets(st.integers(0, 63)),
    shut=st.sets(st.sampled_from([("drain", "rack s1/A01"), ("no_new_launches", "rack s1/A02"),
                                  ("hold_for_review", "rack s1/A03")])),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_every_gpu_is_counted_once(
    uses: list[GpuUse], silent: set[int], shut: set[tuple[str, str]]
) -> None:
    ts = np.where(np.isin(np.arange(64), list(silent)), 0.0, NOW)
    cluster = Cluster.of(
        headroom_of(FLEET, gpu={"ts": ts}),
        InForce(AT, tuple(make_restriction(*each) for each in sorted(shut))),
        np.array(uses, dtype=np.uint8),
        now=NOW,
    )
    eligibility = Eligibility.of(cluster, make_request())
    for mask in (eligibility.cooled, eligibility.reached):
        (draw,) = eligibility.draws
        free = cluster.node_free[draw.kind] * mask
        supply = supply_of(eligibility, draw, free)
        assert sum(supply.values()) == 64
        assert all(count >= 0 for count in supply.values())
        assert supply.get("held by jobs", 0) == uses.count(GpuUse.GANG)
        assert supply["free"] == free.sum()


def test_what_is_not_read_is_not_free_and_is_said() -> None:
    ts = np.where(np.arange(64) < 24, 0.0, 1e6)
    found = refused(place(make_cluster(FLEET, gpu={"ts": ts}), make_request(gpus=48)))
    assert list(found) == [ReasonToken.TELEMETRY_STALE]
    stale = found[ReasonToken.TELEMETRY_STALE]
    assert stale.scope == Scope(ScopeKind.NODE, "s1-A01-n1")
    assert stale.sentence == (
        "needs 48 GPUs in the fleet; 40 are free, and 24 on 3 nodes are not read, such as on node"
        " s1-A01-n1"
    )


# --- Restrictions ---------------------------------------------------------------------------------


def test_restrictions_that_keep_it_out_are_named() -> None:
    restrictions = [
        make_restriction("no_new_launches", "rack s1/A01", number=3),
        make_restriction("drain", "rack s1/A02", number=4, reason="a fan is broken"),
        make_restriction("no_new_launches", "rack s1/A03", number=5),
    ]
    found = refused(place(make_cluster(FLEET, restrictions=restrictions), make_request(gpus=24)))
    reason = found[ReasonToken.RESTRICTED]
    assert (reason.need, reason.have) == (24.0, 16.0)
    assert reason.evidence["restrictions"] == [3, 4, 5]
    assert reason.scope == Scope(ScopeKind.RACK, "s1/A01")
    assert reason.sentence == (
        "needs 24 GPUs in the fleet; no_new_launches on rack s1/A01 (too hot) and drain on rack"
        " s1/A02 (a fan is broken) and 1 more leave 16: short 8"
    )


def test_a_person_has_to_look_first() -> None:
    cluster = make_cluster(FLEET, restrictions=[make_restriction("hold_for_review", "site s1")])
    found = refused(place(cluster, make_request()))
    assert found[ReasonToken.ON_HOLD].sentence == (
        "needs 8 GPUs in the fleet; hold_for_review on site s1 (too hot) leaves 0: short 8"
    )


def test_restrictions_on_class_job_and_storage_stand_beside_what_else_there_is() -> None:
    restrictions = [
        make_restriction("no_new_launches", "class training", number=1, reason="freeze"),
        make_restriction("hold_for_review", "job job", number=2, reason="who is it?"),
    ]
    cluster = make_cluster(FLEET, restrictions=restrictions, occupied=range(64))
    found = refused(place(cluster, make_request()))
    assert found[ReasonToken.RESTRICTED].sentence == "no job starts in class training: freeze"
    assert found[ReasonToken.ON_HOLD].sentence == "job job waits for a person: who is it?"
    assert ReasonToken.GPU_SHORTAGE in found
    # The same request of another class is not held against it.
    other = refused(place(cluster, make_request("x/t", job_class="light")))
    assert list(other) == [ReasonToken.GPU_SHORTAGE]


def test_a_cap_in_force_that_it_does_not_accept() -> None:
    cluster = make_cluster(FLEET, restrictions=[make_restriction("power_cap_w", "site s1", 400.0)])
    found = only(cluster, lowest_cap_w=500.0, max_slowdown=0.5)
    assert (found.token, found.need, found.have, found.unit) == (
        ReasonToken.RESTRICTED, 500.0, 400.0, "W",
    )  # fmt: skip
    assert "power_cap_w on site s1 (too hot) leaves 400 W" in found.sentence


# --- Watts ----------------------------------------------------------------------------------------


def test_a_rack_is_short() -> None:
    found = only(crowded(4, budget_w=16_000.0, pdu_w=1e6), required=Locality.NODE)
    assert (found.token, found.unit) == (ReasonToken.RACK_POWER, "W")
    assert found.have == pytest.approx(16_000.0 - 10_200.0 - 2_280.0, abs=1.0)
    assert found.need == pytest.approx(ADDS_W, abs=1.0)
    assert found.scope is not None
    assert found.sentence == (
        f"needs 7.92 kW on rack {found.scope.name}, which has 3.52 kW: short 4.40 kW"
    )


def test_a_feed_is_short_also_alone() -> None:
    cluster = crowded(5, pdu_w=60_000.0)
    found = refused(place(cluster, make_request()))
    # Both together carry the load; each of them alone does not.
    assert list(found) == [ReasonToken.FEED_REDUNDANCY]
    reason = found[ReasonToken.FEED_REDUNDANCY]
    assert reason.have == pytest.approx(60_000.0 - 5 * 10_200.0 - 3 * 2_280.0, abs=1.0)
    assert reason.sentence == (
        "needs 7.92 kW on pdu s1/pdu-A-a alone if s1/pdu-A-b fails, which has 2.16 kW:"
        " short 5.76 kW"
    )


def test_a_site_is_short() -> None:
    fleet = replace(FLEET, sites=replace(FLEET.sites, budget_w=np.array([30_000.0])))
    cluster = make_cluster(fleet)
    found = only(cluster, gpus=16)
    assert (found.token, found.scope) == (ReasonToken.SITE_POWER, Scope(ScopeKind.SITE, "s1"))
    assert found.have == pytest.approx(30_000.0 - 8 * 2_280.0, abs=1.0)


def test_a_cooling_zone_is_short() -> None:
    found = only(tight(zone_w=25_000.0))
    assert found.token is ReasonToken.COOLING_CAPACITY
    assert found.sentence.startswith("needs 7.92 kW on cooling zone s1/zone-A, which has 6.76 kW")


def test_what_is_over_its_limit_already_says_so() -> None:
    found = only(tight(zone_w=18_000.0))
    assert found.have == pytest.approx(-240.0, abs=1.0)
    assert found.short == pytest.approx(ADDS_W + 240.0, abs=1.0)
    assert "which is 0.24 kW over: short 8.16 kW" in found.sentence


def test_all_that_is_short_is_said_the_first_in_order_first() -> None:
    cluster = tight(budget_w=9_000.0, zone_w=19_000.0, pdu_w=21_000.0)
    found = place(cluster, make_request())
    assert isinstance(found, Refusal)
    tokens = [each.token for each in found.reasons]
    assert tokens == [
        ReasonToken.RACK_POWER, ReasonToken.FEED_REDUNDANCY, ReasonToken.COOLING_CAPACITY,
    ]  # fmt: skip
    assert dominant(found.reasons).token is ReasonToken.RACK_POWER


def test_what_it_would_need_at_the_least_is_what_is_said() -> None:
    cluster = tight(zone_w=21_000.0)
    found = only(cluster, gpus=8, min_gpus=4, lowest_cap_w=600.0, max_slowdown=0.5)
    assert found.need == pytest.approx((1.0 + 3200.0 / 5600.0) * 4 * 530.0, abs=1.0)
    assert (found.evidence["gpus"], found.evidence["gpu_w"]) == (4, 600.0)


# --- Heat, links, storage -------------------------------------------------------------------------


def test_gpus_would_settle_too_hot() -> None:
    resistance = np.where(np.arange(64) < 48, 0.1, 0.05)
    cluster = make_cluster(FLEET, past=with_resistance(FLEET, resistance))
    found = only(cluster, gpus=24, gpu_peak_w=600.0, thermal_margin_c=8.0)
    assert (found.token, found.unit, found.need) == (ReasonToken.THERMAL, "°C", 8.0)
    # 22 °C and 0.1 °C for each of 600 W: 5 °C below the slowdown of 87 °C.
    assert found.have == pytest.approx(5.0)
    assert found.short == pytest.approx(3.0)
    assert found.sentence.startswith(
        "needs 24 GPUs that settle 8.0 °C or more below their slowdown at 600 W"
    )
    assert found.sentence.endswith("settles 5.0 °C below it: short 3.0 °C")


def test_heat_and_watts_are_both_said() -> None:
    fleet = make_arrays(racks=4, nodes=2, gpus=8, budget_w=5_000.0)
    cluster = make_cluster(fleet, past=with_resistance(fleet, 0.2))
    found = list(refused(place(cluster, make_request())))
    assert (found[0], found[-1]) == (ReasonToken.RACK_POWER, ReasonToken.THERMAL)


def test_a_wan_link_is_short() -> None:
    fleet = make_arrays(sites=2, racks=4, nodes=2, gpus=8)
    links = {"tx_bytes_per_s": np.where(fleet.links.rack < 0, 1e10, 0.0)}
    cluster = make_cluster(fleet, links=links)
    wants: dict[str, Any] = {"data_site": "s1", "sites": ("s2",), "cross_site_bits_per_s": 4e10}
    found = only(cluster, **wants)
    # 100 Gbit/s, of which a tenth is for control traffic and 80 Gbit/s are in use.
    assert found.token is ReasonToken.LINK
    assert found.have == pytest.approx(1e10)
    assert found.scope == Scope(ScopeKind.LINK, "s1/wan")
    assert found.sentence == (
        "needs 40.0 Gbit/s on link s1/wan, which has 10.0 Gbit/s: short 30.0 Gbit/s"
    )


def test_a_wan_link_of_which_nothing_was_ever_read_is_not_free() -> None:
    fleet = make_arrays(sites=2, racks=4, nodes=2, gpus=8)
    links = {"ts": np.where(fleet.links.rack < 0, 0.0, 1e6)}
    wants: dict[str, Any] = {"data_site": "s1", "sites": ("s2",), "cross_site_bits_per_s": 1.0}
    found = only(make_cluster(fleet, links=links), **wants)
    assert found.token is ReasonToken.TELEMETRY_STALE
    assert "of which nothing was ever read" in found.sentence


def test_a_wan_link_that_is_closed_to_jobs() -> None:
    fleet = make_arrays(sites=2, racks=4, nodes=2, gpus=8)
    restrictions = [make_restriction("local_only", f"link {name}") for name in ("s1/wan", "s2/wan")]
    wants: dict[str, Any] = {"data_site": "s1", "sites": ("s2",), "cross_site_bits_per_s": 1.0}
    found = refused(place(make_cluster(fleet, restrictions=restrictions), make_request(**wants)))
    assert list(found) == [ReasonToken.RESTRICTED]


def test_short_of_a_site_that_is_kept_to_itself_is_short_of_no_link() -> None:
    fleet = make_arrays(sites=2, racks=4, nodes=2, gpus=8)
    cluster = make_cluster(fleet, restrictions=[make_restriction("local_only", "site s1")])
    wants: dict[str, Any] = {"data_site": "s1", "cross_site_bits_per_s": 1.0, "gpus": 72}
    assert ReasonToken.LINK not in refused(place(cluster, make_request(**wants)))


def test_no_link_leads_there() -> None:
    fleet = make_arrays(sites=2, racks=4, nodes=2, gpus=8)
    none = replace(fleet, links=replace(fleet.links, peer_site=np.full(len(fleet.links), -1)))
    wants: dict[str, Any] = {"data_site": "s1", "sites": ("s2",), "cross_site_bits_per_s": 1.0}
    found = only(make_cluster(none), **wants)
    assert (found.token, found.have) == (ReasonToken.LINK, 0.0)
    assert found.sentence == "no WAN link leads from s1, where its data is, to s2"


def test_data_for_several_sites_shares_a_link() -> None:
    fleet = make_arrays(sites=3, racks=4, nodes=2, gpus=8)
    # A line of three sites: what goes from the first to the third passes the second.
    peer = np.where(fleet.links.site == 2, -1, fleet.links.peer_site)
    fleet = replace(fleet, links=replace(fleet.links, peer_site=peer))
    cluster = make_cluster(fleet, occupied=range(64))
    wants: dict[str, Any] = {"gpus": 128, "data_site": "s1", "cross_site_bits_per_s": 4.6e10}
    found = only(cluster, **wants)
    assert found.token is ReasonToken.LINK
    assert found.need == pytest.approx(9.2e10)
    assert not isinstance(
        place(cluster, make_request(**{**wants, "cross_site_bits_per_s": 4.4e10})), Refusal
    )


def test_storage_is_short() -> None:
    found = only(make_cluster(FLEET), storage="s1/nvme", storage_bytes_per_s=3e11)
    assert (found.token, found.unit) == (ReasonToken.STORAGE, "byte/s")
    assert found.sentence == (
        "needs 300 Gbyte/s on storage s1/nvme, which has 200 Gbyte/s: short 100 Gbyte/s"
    )
