from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lab.fleet import (
    Rack,
    inventory,
    inventory_yaml,
    make_fleet,
    make_load_fleet,
    uplink_bits_per_s,
)


def sites_of(document: dict[str, Any]) -> dict[str, Any]:
    return {site["name"]: site for site in document["sites"]}


def test_the_default_fleet_is_two_sites_24_racks_192_nodes_1536_gpus() -> None:
    fleet = make_fleet(gpus=1536)
    assert fleet.sites == ["oslo", "bergen"]
    assert (len(fleet.racks), len(fleet.nodes), fleet.gpu_count) == (24, 192, 1536)
    assert "oslo-a01-n3" in fleet.nodes


@given(st.integers(1, 20_000))
def test_any_size_is_rounded_up_to_whole_nodes(gpus: int) -> None:
    fleet = make_fleet(gpus=gpus)
    assert gpus <= fleet.gpu_count < gpus + 8
    assert all(1 <= rack.nodes <= 8 for rack in fleet.racks)
    assert len(set(fleet.nodes)) == len(fleet.nodes)
    assert len({(rack.site, rack.name) for rack in fleet.racks}) == len(fleet.racks)


def test_no_gpus_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make_fleet(gpus=0)
    with pytest.raises(ValueError, match="at least 1"):
        make_load_fleet(gpus=0)


def test_100_000_gpus_stand_at_20_sites() -> None:
    fleet = make_fleet(gpus=100_000)
    assert fleet.gpu_count == 100_000
    assert len(fleet.sites) == 20


def test_the_inventory_is_yaml_that_reads_back_the_same() -> None:
    fleet = make_fleet(gpus=1536)
    assert yaml.safe_load(inventory_yaml(fleet)) == inventory(fleet)


def test_every_name_that_the_inventory_refers_to_is_in_it() -> None:
    document = inventory(make_fleet(gpus=1536))
    models = {model["name"] for model in document["hardware_models"]}
    for site in document["sites"]:
        domains = {domain["name"] for domain in site["power_domains"]}
        zones = {zone["name"] for zone in site["cooling_zones"]}
        endpoints = {endpoint["name"] for endpoint in site["storage_endpoints"]}
        assert {d["parent"] for d in site["power_domains"] if "parent" in d} <= domains
        for rack in site["racks"]:
            assert {rack["feed_a"], rack["feed_b"]} <= domains
            assert rack["cooling_zone"] in zones
            for node in rack["nodes"]:
                assert {node["model"], node["gpus"]["model"]} <= models
                assert node["storage_endpoint"] in endpoints


def test_every_meter_and_link_measures_something_that_exists() -> None:
    document = inventory(make_fleet(gpus=1536))
    sites = sites_of(document)
    for link in document["links"]:
        site = sites[link["site"]]
        assert link.get("peer_site", "oslo") in sites
        assert "rack" not in link or link["rack"] in {rack["name"] for rack in site["racks"]}
    for meter in document["meters"]:
        site = sites[meter["site"]]
        kinds = {"power_domain": "power_domains", "rack": "racks", "cooling_zone": "cooling_zones"}
        (target,) = meter.keys() & kinds.keys()
        assert meter[target] in {entry["name"] for entry in site[kinds[target]]}


def test_names_of_links_and_meters_are_unique() -> None:
    document = inventory(make_fleet(gpus=5120))
    for kind in ("links", "meters"):
        names = [entry["name"] for entry in document[kind]]
        assert len(set(names)) == len(names)


def test_nodes_fit_into_their_rack_without_overlap() -> None:
    for site in inventory(make_fleet(gpus=1536))["sites"]:
        for rack in site["racks"]:
            filled = [
                unit
                for node in rack["nodes"]
                for unit in range(node["position_u"], node["position_u"] + node["height_u"])
            ]
            assert len(set(filled)) == len(filled)
            assert max(filled) <= rack["height_u"]


def test_either_side_of_a_pair_carries_what_both_carry() -> None:
    for site in inventory(make_fleet(gpus=1536))["sites"]:
        usable = {d["name"]: d["capacity_w"] * d["derating"] for d in site["power_domains"]}
        assert min(usable["feed-a"], usable["feed-b"]) >= site["budget_w"]
        for side in ("a", "b"):
            for pdu in {rack[f"feed_{side}"] for rack in site["racks"]}:
                fed = [r["budget_w"] for r in site["racks"] if r[f"feed_{side}"] == pdu]
                assert usable[pdu] >= sum(fed)


def test_a_load_fleet_has_neither_links_nor_meters() -> None:
    fleet = make_load_fleet(gpus=100)
    document = inventory(fleet, networked=False)
    assert fleet.sites == ["load"]
    assert fleet.gpu_count == 104
    assert "links" not in document
    assert "meters" not in document


def test_rows_past_z_have_two_letters() -> None:
    fleet = make_load_fleet(gpus=64 * 4 * 28)
    assert [row for _, row in fleet.rows][25:28] == ["Z", "AA", "AB"]


def test_an_uplink_carries_half_of_what_the_nics_of_the_rack_could_send() -> None:
    rack: Rack = make_fleet(gpus=1536).racks[0]
    assert uplink_bits_per_s(rack) == 64 * 400e9 / 2
