"""The inventory of the twin as arrays, and which row of the twin each row is."""

from __future__ import annotations

import numpy as np

from fleet.tables import LINK_KINDS
from lab.fleet import make_even_fleet, make_fleet
from lab.twin import Twin
from lab.world.fleet_arrays import Rows, arrays_of, with_budgets


def test_tables_stand_in_the_order_of_the_servers() -> None:
    arrays = arrays_of(make_fleet(gpus=1536))
    assert arrays.sites.names.tolist() == ["bergen", "oslo"]
    for table in (arrays.domains, arrays.zones, arrays.racks, arrays.storage):
        assert table.paths.tolist() == sorted(table.paths.tolist())
    for names in (arrays.links.names, arrays.meters.names, arrays.models.names):
        assert names.tolist() == sorted(names.tolist())
    assert (np.diff(arrays.nodes.rack) >= 0).all()
    assert (np.diff(arrays.gpus.node) >= 0).all()


def test_each_row_is_that_of_the_twin_with_its_name() -> None:
    fleet = make_fleet(gpus=1536)
    arrays = arrays_of(fleet)
    rows = Rows.of(fleet, arrays)
    assert [fleet.nodes[i] for i in rows.node] == arrays.nodes.names.tolist()
    racks = [f"{rack.site}/{rack.name}" for rack in fleet.racks]
    assert [racks[i] for i in rows.rack] == arrays.racks.paths.tolist()
    assert [fleet.sites[i] for i in rows.site] == arrays.sites.names.tolist()
    assert sorted(rows.gpu.tolist()) == list(range(fleet.gpu_count))
    names = [f"{fleet.nodes[i // 8]}/{i % 8}" for i in rows.gpu]
    assert names == arrays.gpu_names.tolist()


def test_parts_of_a_row_are_those_of_the_twin() -> None:
    fleet = make_fleet(gpus=1536)
    arrays, twin = arrays_of(fleet), Twin(fleet, seed=1)
    rows = Rows.of(fleet, arrays)
    assert arrays.racks.budget_w.tolist() == twin.parts.rack_budget_w[rows.rack].tolist()
    assert arrays.zones.capacity_w.tolist() == twin.parts.zone_capacity_w[rows.zone].tolist()
    budget_w = arrays.domains.capacity_w * arrays.domains.derating
    assert np.allclose(budget_w, twin.domains.budget_w[rows.domain])
    assert arrays.gpus.slowdown_c.tolist() == twin.parts.slowdown_c[rows.gpu].tolist()


def test_a_pair_points_at_each_other_and_racks_at_both_halves() -> None:
    arrays = arrays_of(make_even_fleet(gpus=64, sites=2, nodes_per_rack=2))
    paired = np.flatnonzero(arrays.domains.pair >= 0)
    assert (arrays.domains.pair[arrays.domains.pair[paired]] == paired).all()
    assert (arrays.domains.pair[arrays.racks.feed_a] == arrays.racks.feed_b).all()
    wan = arrays.links.kind == LINK_KINDS.index("wan")
    assert (arrays.links.peer_site[wan] == 1 - arrays.links.site[wan]).all()


def test_lowered_budgets_reach_racks_domains_and_sites() -> None:
    arrays = arrays_of(make_even_fleet(gpus=64, sites=2, nodes_per_rack=2))
    rack_share, domain_share = np.ones(len(arrays.racks)), np.ones(len(arrays.domains))
    rack_share[0] = 0.5
    utility = arrays.domains.index_by_path["oslo/utility"]
    domain_share[utility] = 0.7
    lowered = with_budgets(arrays, rack_share=rack_share, domain_share=domain_share)
    assert lowered.generation > arrays.generation
    assert lowered.racks.budget_w[0] == 0.5 * arrays.racks.budget_w[0]
    oslo = arrays.sites.index_by_name["oslo"]
    assert np.isclose(lowered.sites.budget_w[oslo], 0.7 * arrays.sites.budget_w[oslo])
    assert lowered.sites.budget_w[1 - oslo] == arrays.sites.budget_w[1 - oslo]


def test_an_even_fleet_has_the_shares_that_were_asked_for() -> None:
    whole, tight = make_even_fleet(gpus=128), make_even_fleet(gpus=128, power_share=0.8)
    assert np.isclose(tight.racks[0].budget_w, 0.8 * whole.racks[0].budget_w, atol=10.0)
    half = arrays_of(make_even_fleet(gpus=128, feed_share=0.5))
    assert np.isclose(half.sites.budget_w.sum(), 0.5 * half.racks.budget_w.sum(), rtol=0.02)
    cool = arrays_of(make_even_fleet(gpus=128, cooling_share=0.9))
    assert np.isclose(cool.zones.capacity_w.sum(), 0.9 * cool.racks.budget_w.sum())
