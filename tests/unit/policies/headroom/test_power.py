"""Loads, budgets and reservations up the power tree, against plain sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleet.tables import FleetArrays
from physics.power import failover as pair_law
from policies.headroom.inputs import Limits, Past, Reservations, Steps
from policies.scopes import ScopeKind
from telemetry.summary import HostCurves
from tests.builders.arrays import make_arrays, make_frame
from tests.unit.policies.headroom.scenes import NOW, all_read, column, headroom_of

RACK, DOMAIN, SITE, NODE, GPU, ZONE = (
    ScopeKind.RACK, ScopeKind.POWER_DOMAIN, ScopeKind.SITE, ScopeKind.NODE, ScopeKind.GPU,
    ScopeKind.ZONE,
)  # fmt: skip
#: One node: 8 GPUs at 400 W, its host between idle and rated.
NODE_W = 8 * 400 + 1400 + 400 / 700 * 3200


def test_loads_add_up_from_gpus_to_the_site() -> None:
    fleet = make_arrays(racks=4, nodes=2)
    headroom = headroom_of(fleet, all_read(fleet))
    assert column(headroom, NODE, "power_load_w") == pytest.approx([NODE_W] * 8)
    assert column(headroom, RACK, "power_load_w") == pytest.approx([2 * NODE_W] * 4)
    # feed a and b, PDU a and b, utility
    assert column(headroom, DOMAIN, "power_load_w") == pytest.approx(
        [4 * NODE_W] * 4 + [8 * NODE_W]
    )
    assert column(headroom, SITE, "power_load_w") == pytest.approx([8 * NODE_W])
    assert column(headroom, ZONE, "cooling_load_w") == pytest.approx([8 * NODE_W])


def test_a_site_of_which_nothing_is_read_has_measured_nothing_and_not_zero() -> None:
    fleet = make_arrays(racks=4, nodes=2)
    headroom = headroom_of(fleet, make_frame(fleet, now=NOW - 3600.0, gpu={"power_w": 400.0}))
    for kind in (SITE, DOMAIN, RACK):
        assert np.isnan(column(headroom, kind, "power_measured_w")).all()


def test_headroom_is_the_derated_budget_less_the_load() -> None:
    fleet = make_arrays(racks=4, derating=0.8)
    domains = headroom_of(fleet, all_read(fleet)).table(DOMAIN).columns
    usable = 0.8 * fleet.domains.capacity_w
    assert (domains["power_budget_w"] == usable).all()
    assert (domains["power_headroom_w"] == usable - domains["power_load_w"]).all()


def test_each_half_of_a_pair_would_carry_what_both_do() -> None:
    fleet = make_arrays(racks=5, nodes=2)
    headroom = headroom_of(fleet, all_read(fleet))
    load_w = np.array(column(headroom, DOMAIN, "power_load_w"))
    failover_w = column(headroom, DOMAIN, "failover_load_w")
    for row, mate in enumerate(fleet.domains.pair.tolist()):
        if mate < 0:
            assert np.isnan(failover_w[row])
            continue
        by_law = pair_law(
            load_a_w=load_w[row], load_b_w=load_w[mate], capacity_a_w=1e6, capacity_b_w=1e6
        )
        assert failover_w[row] == pytest.approx(by_law.survivor_a_w)


def test_a_rack_on_one_feed_does_not_move_when_that_fails() -> None:
    fleet = make_arrays(racks=4)
    feed_b = fleet.racks.feed_b.copy()
    feed_b[0] = -1
    fleet = replace(fleet, racks=replace(fleet.racks, feed_b=feed_b))
    headroom = headroom_of(fleet, all_read(fleet))
    a, b = (fleet.domains.index_by_path[f"s1/pdu-A-{side}"] for side in "ab")
    failover_w = column(headroom, DOMAIN, "failover_load_w")
    assert failover_w[a] == pytest.approx(8 * NODE_W)
    assert failover_w[b] == pytest.approx(6 * NODE_W)


def test_load_that_only_a_feeds_meter_knows_moves_with_it() -> None:
    fleet = make_arrays(racks=4, rack_meters=False)
    base = make_arrays(racks=1).meters
    a = fleet.domains.index_by_path["s1/pdu-A-a"]
    fleet = replace(
        fleet, meters=replace(base, target_kind=np.zeros(1, dtype=np.int64), target=np.array([a]))
    )
    frame = make_frame(
        fleet, now=NOW, gpu={"power_w": 400.0}, meter={"power_w": 4 * NODE_W + 5_000}
    )
    headroom = headroom_of(fleet, frame)
    b = fleet.domains.pair[a]
    assert column(headroom, DOMAIN, "power_load_w")[a] == pytest.approx(4 * NODE_W + 5_000)
    assert column(headroom, DOMAIN, "failover_load_w")[b] == pytest.approx(8 * NODE_W + 5_000)


def with_pdu_meters(fleet: FleetArrays) -> tuple[FleetArrays, int, int]:
    """Give row A's two PDUs a meter each; return their rows, too."""
    a, b = (fleet.domains.index_by_path[f"s1/pdu-A-{side}"] for side in "ab")
    base = make_arrays(racks=2).meters
    on_domain = np.zeros(2, dtype=np.int64)
    meters = replace(base, target_kind=on_domain, target=np.array([a, b]))
    return replace(fleet, meters=meters), a, b


@pytest.mark.parametrize(
    ("a_w", "b_w", "alone_w"),
    [
        # The pair is dead, and what it carried is here already.
        (0.0, 8 * NODE_W, 8 * NODE_W),
        (0.1 * NODE_W, 8 * NODE_W, 8 * NODE_W),
        # A meter that shows nothing while the other half carries no more than its own is wrong.
        (0.0, 4 * NODE_W, 8 * NODE_W),
        (0.0, 5 * NODE_W, 9 * NODE_W),
        # Both carry their half, and one of them something that no rack draws.
        (4 * NODE_W, 8 * NODE_W, 12 * NODE_W),
        # A negative reading is a fault, and tells nothing of the feed.
        (-1.0, 8 * NODE_W, 12 * NODE_W),
    ],
)
def test_load_that_has_moved_from_a_dead_feed_does_not_move_again(
    a_w: float, b_w: float, alone_w: float
) -> None:
    fleet, _, b = with_pdu_meters(make_arrays(racks=4, rack_meters=False))
    frame = make_frame(
        fleet, now=NOW, gpu={"power_w": 400.0}, meter={"power_w": np.array([a_w, b_w])}
    )
    headroom = headroom_of(fleet, frame)
    assert column(headroom, DOMAIN, "failover_load_w")[b] == pytest.approx(alone_w)


def test_a_dead_feed_that_fell_silent_is_no_proof_that_its_load_has_moved() -> None:
    fleet, _, b = with_pdu_meters(make_arrays(racks=4, rack_meters=False))
    meters = {"power_w": np.array([0.0, 8 * NODE_W]), "ts": np.array([NOW - 100, NOW])}
    frame = make_frame(fleet, now=NOW, gpu={"power_w": 400.0}, meter=meters)
    headroom = headroom_of(fleet, frame)
    assert column(headroom, DOMAIN, "failover_load_w")[b] == pytest.approx(12 * NODE_W)


def test_a_reservation_counts_where_it_is_more_than_the_load() -> None:
    fleet = make_arrays(racks=4, nodes=2)
    nodes = np.zeros(8)
    nodes[0], nodes[1] = NODE_W + 1_000, 10.0
    racks = np.zeros(4)
    racks[2] = 2 * NODE_W + 300
    reserved = replace(Reservations.none(fleet), node_w=nodes, rack_w=racks)
    headroom = headroom_of(fleet, all_read(fleet), reservations=reserved)
    load_w = column(headroom, RACK, "power_load_w")
    assert load_w == pytest.approx([2 * NODE_W + 1_000, 2 * NODE_W, 2 * NODE_W + 300, 2 * NODE_W])
    assert column(headroom, SITE, "power_load_w") == pytest.approx([8 * NODE_W + 1_300])
    assert column(headroom, DOMAIN, "power_load_w")[-1] == pytest.approx(8 * NODE_W + 1_300)
    assert column(headroom, RACK, "power_reserved_w")[0] == NODE_W + 1_010


def test_a_metered_rack_still_has_to_draw_what_its_nodes_have_reserved() -> None:
    fleet = make_arrays(racks=1, nodes=2)
    frame = make_frame(fleet, now=NOW, gpu={"power_w": 400.0}, meter={"power_w": 10_000.0})
    reserved = replace(Reservations.none(fleet), node_w=np.array([NODE_W + 2_000, 0.0]))
    headroom = headroom_of(fleet, frame, reservations=reserved)
    assert column(headroom, RACK, "power_load_w") == pytest.approx([12_000])


def test_a_cap_in_force_is_the_gpus_budget() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=2)
    limits = replace(Limits.none(fleet), gpu_cap_w=np.array([500.0, np.inf]))
    headroom = headroom_of(fleet, all_read(fleet), restrictions=limits)
    assert column(headroom, GPU, "power_budget_w") == [500.0, 700.0]
    assert column(headroom, GPU, "power_headroom_w") == [100.0, 300.0]
    assert column(headroom, NODE, "power_budget_w") == [1200.0 + 4600.0]


def test_confidence_is_the_share_of_the_load_that_is_read() -> None:
    fleet = make_arrays(racks=2, nodes=1, rack_meters=False)
    ts = np.where(np.arange(16) < 8, NOW - 99, NOW)
    headroom = headroom_of(fleet, all_read(fleet, ts=ts))
    node = column(headroom, NODE, "power_confidence")
    assert node == pytest.approx([0.0, 3200 / NODE_W])
    metered = make_arrays(racks=2, nodes=1)
    frame = make_frame(metered, now=NOW, gpu={"power_w": 400.0}, meter={"power_w": 7_000.0})
    assert column(headroom_of(metered, frame), RACK, "power_confidence") == [1.0, 1.0]


def test_a_fitted_host_takes_the_place_of_the_rated_one() -> None:
    fleet = make_arrays(racks=1, nodes=2)
    hosts = HostCurves(np.array([800.0, np.nan]), np.array([0.1, np.nan]))
    headroom = headroom_of(fleet, all_read(fleet), past=replace(Past.none(fleet), hosts=hosts))
    assert column(headroom, NODE, "power_load_w") == pytest.approx([3200 + 800 + 320, NODE_W])


def test_known_changes_of_load_are_in_the_forecast() -> None:
    fleet = make_arrays(racks=4, nodes=2)
    steps = Steps(
        rack=np.array([0, 0, 1]),
        at=NOW + np.array([60.0, 600.0, -5.0]),
        change_w=np.array([3_000.0, -1_000.0, 9_000.0]),
    )
    reserved = replace(Reservations.none(fleet), steps=steps)
    headroom = headroom_of(fleet, all_read(fleet), reservations=reserved)
    for name, change in (("5m", 3_000), ("15m", 2_000), ("60m", 2_000)):
        assert column(headroom, RACK, f"power_load_{name}_w") == pytest.approx(
            [2 * NODE_W + change, *[2 * NODE_W] * 3]
        )
        assert column(headroom, SITE, f"power_load_{name}_w") == pytest.approx(
            [8 * NODE_W + change]
        )


def test_a_slope_says_when_power_is_used_up() -> None:
    fleet = make_arrays(racks=3, nodes=2, budget_w=20_000.0)
    left_w = 20_000 - 2 * NODE_W
    past = replace(Past.none(fleet), slopes={RACK: np.array([10.0, -3.0, 0.0])})
    headroom = headroom_of(fleet, all_read(fleet), past=past)
    assert column(headroom, RACK, "power_exhausted_in_s") == pytest.approx(
        [left_w / 10, np.inf, np.inf]
    )
    assert np.isnan(column(headroom, SITE, "power_exhausted_in_s")).all()


def test_if_gpus_drew_more_all_that_carries_them_would_too() -> None:
    fleet = make_arrays(racks=4, nodes=2)
    power_w = np.full(len(fleet.gpus), 400.0)
    power_w[:16] = 550.0
    asked = headroom_of(fleet, all_read(fleet)).what_if(power_w)
    read = headroom_of(fleet, all_read(fleet, power_w=power_w))
    for kind in (GPU, NODE, RACK, DOMAIN, SITE):
        assert column(asked, kind, "power_load_w") == pytest.approx(
            column(read, kind, "power_load_w")
        )


def test_a_budget_in_force_counts_where_it_is_lower_than_the_inventorys() -> None:
    fleet = make_arrays(racks=4, nodes=2)
    site_w, rack_w = 50_000.0, fleet.racks.budget_w
    limits = replace(
        Limits.none(fleet),
        budget_w={
            SITE: np.array([site_w]),
            RACK: np.array([12_000.0, 1e9, np.inf, np.inf]),
            DOMAIN: np.where(fleet.domains.paths == "s1/feed-a", 30_000.0, np.inf),
            ZONE: np.array([45_000.0]),
        },
    )
    headroom = headroom_of(fleet, all_read(fleet), restrictions=limits)
    assert column(headroom, SITE, "power_budget_w") == [site_w]
    assert column(headroom, SITE, "power_headroom_w") == pytest.approx([site_w - 8 * NODE_W])
    assert column(headroom, RACK, "power_budget_w") == [12_000.0, *rack_w[1:]]
    feed = fleet.domains.index_by_path["s1/feed-a"]
    assert column(headroom, DOMAIN, "power_budget_w")[feed] == 30_000.0
    assert headroom.failover.headroom_w[feed] == pytest.approx(30_000.0 - 8 * NODE_W)
    assert column(headroom, ZONE, "cooling_headroom_w") == pytest.approx([45_000.0 - 8 * NODE_W])


def test_a_budget_in_force_counts_where_the_inventory_has_none() -> None:
    fleet = make_arrays(racks=2)
    nowhere = Limits.none(fleet).budget_of(ZONE, np.array([np.nan]))
    assert np.isnan(nowhere).all()
    limits = replace(Limits.none(fleet), budget_w={ZONE: np.array([np.inf])})
    assert np.isnan(limits.budget_of(ZONE, np.array([np.nan]))).all()
    limits = replace(Limits.none(fleet), budget_w={ZONE: np.array([7.0])})
    assert limits.budget_of(ZONE, np.array([np.nan])).tolist() == [7.0]
