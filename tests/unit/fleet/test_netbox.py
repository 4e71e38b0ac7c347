"""NetBox's records to an inventory: no network, no database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.inventory import InventoryError, State, parse, plan
from fleet.inventory.document import Document, GpuGroup
from fleet.inventory.rows import rows_of
from fleet.netbox import Imported, NetBoxError, load
from tests.builders.inventory import HARDWARE

DATA = Path(__file__).parents[2] / "data" / "netbox"

Edit = Callable[[dict[str, list[dict[str, Any]]]], None]


def state_of(text: str = HARDWARE) -> State:
    return State(rows_of(parse(text).document))


def imported(state: State | None = None) -> Imported:
    return load(str(DATA), "", state or state_of())


def edited(folder: Path, edit: Edit) -> Imported:
    """Import the test data with its records changed by ``edit``."""
    records = {
        file.stem: json.loads(file.read_text())["results"] for file in sorted(DATA.glob("*.json"))
    }
    edit(records)
    for name, results in records.items():
        (folder / f"{name}.json").write_text(
            json.dumps({"count": len(results), "results": results})
        )
    return load(str(folder), "", state_of())


@pytest.fixture
def document() -> Document:
    return imported().inventory.document


def test_it_makes_an_inventory_that_can_be_planned() -> None:
    todo = plan(imported().inventory, state_of())
    assert {name: each["created"] for name, each in todo.counts.items()} == {
        "sites": 1,
        "power_domains": 5,
        "racks": 2,
        "nodes": 3,
        "gpus": 20,
    }


def test_capacity_is_volts_times_amperes_and_root_three_for_three_phases(
    document: Document,
) -> None:
    domains = {domain.name: domain for domain in document.sites[0].power_domains}
    assert domains["PP-A/A01-A"].capacity_w == pytest.approx(400 * 63 * 3**0.5)
    assert domains["PP-A/A01-A"].derating == 0.8
    assert domains["PP-A/A01-A"].parent == "PP-A"
    assert domains["PP-A/A02-A"].capacity_w == 4800
    assert domains["PP-A"].capacity_w == 250_000
    assert domains["PP-B"].capacity_w == domains["PP-B/A01-B"].capacity_w


def test_primary_and_redundant_feeds_of_a_rack_are_a_pair(document: Document) -> None:
    domains = {domain.name: domain for domain in document.sites[0].power_domains}
    a, b = domains["PP-A/A01-A"], domains["PP-B/A01-B"]
    assert (a.pair, a.side, b.pair, b.side) == ("A01", "A", "A01", "B")
    assert (domains["PP-A/A02-A"].pair, domains["PP-A/A02-A"].side) == ("", "")
    first, second = document.sites[0].racks
    assert (first.feed_a, first.feed_b) == ("PP-A/A01-A", "PP-B/A01-B")
    assert (second.feed_a, second.feed_b) == ("PP-A/A02-A", None)


def test_a_rack_may_draw_what_one_side_alone_can_carry(document: Document) -> None:
    first, second = document.sites[0].racks
    assert first.budget_w == pytest.approx(400 * 63 * 3**0.5 * 0.8)
    assert second.budget_w == 4000


def test_racks_stand_in_the_row_of_their_location(document: Document) -> None:
    assert [(rack.row, rack.position) for rack in document.sites[0].racks] == [
        ("Row A", 0),
        ("Row A", 1),
    ]


def test_gpus_come_from_custom_fields_or_config_context(document: Document) -> None:
    nodes = [node for rack in document.sites[0].racks for node in rack.nodes]
    groups = {node.name: node.gpus for node in nodes}
    assert (
        groups["oslo-a01-n1"] == groups["oslo-a01-n2"] == GpuGroup(model="H100-SXM5-80GB", count=8)
    )
    assert nodes[0].model == "HGX-H100-host"
    assert (nodes[0].position_u, nodes[1].position_u, nodes[0].height_u) == (1, 9, 8)
    assert nodes[0].labels == {"role": "gpu-node"}


def test_what_is_not_taken_over_is_said() -> None:
    assert imported().notes == [
        "node oslo-lost left out: it is in no rack",
        "node oslo-a02-n1: its position is a half unit; rounded down",
        "1 x device left out: no gpu_count",
        "1 x node without hardware model: 'Odd box' is unknown, so its host's draw is too",
        "1 x power feed left out: planned or offline",
        "1 x power panel without capacity_w: the sum of its feeds is taken",
        "1 x rack left out: planned or deprecated",
        "1 x site left out: not in use",
    ]


def test_further_feeds_of_a_rack_are_said(tmp_path: Path) -> None:
    def third_feed(records: dict[str, list[dict[str, Any]]]) -> None:
        feed = {**records["power-feeds"][0], "id": 99, "name": "A01-C"}
        records["power-feeds"].append(feed)

    found = edited(tmp_path, third_feed)
    assert any("its further primary feed A01-C" in note for note in found.notes)
    assert found.inventory.document.sites[0].racks[0].feed_a == "PP-A/A01-A"


def test_nodes_of_a_rack_that_is_left_out_are_said(tmp_path: Path) -> None:
    def planned_rack(records: dict[str, list[dict[str, Any]]]) -> None:
        records["racks"][0]["status"] = {"value": "planned", "label": "Planned"}

    assert "2 x node left out: its rack is" in edited(tmp_path, planned_rack).notes


def test_a_rack_without_power_gets_no_budget(tmp_path: Path) -> None:
    def no_feeds(records: dict[str, list[dict[str, Any]]]) -> None:
        records["power-feeds"].clear()

    found = edited(tmp_path, no_feeds)
    assert "rack A01: neither power_budget_w nor a feed; its budget is 0 W" in found.notes
    assert found.inventory.document.sites[0].racks[0].budget_w == 0


def test_what_an_inventory_cannot_have_is_refused(tmp_path: Path) -> None:
    def long_name(records: dict[str, list[dict[str, Any]]]) -> None:
        records["devices"][0]["name"] = "x" * 300

    with pytest.raises(InventoryError, match="length <= 200"):
        edited(tmp_path, long_name)


@pytest.mark.parametrize("body", ["", "[]", '{"detail": "no"}', '{"results": [{"id": "x"}]}'])
def test_what_is_not_netbox_is_refused(body: str, tmp_path: Path) -> None:
    (tmp_path / "sites.json").write_text(body)
    with pytest.raises(NetBoxError, match="dcim/sites"):
        load(str(tmp_path), "", state_of())


def test_a_page_that_is_missing_is_noticed(tmp_path: Path) -> None:
    sites = json.loads((DATA / "sites.json").read_text())["results"]
    first, second = ({"count": 2, "results": [site]} for site in sites)
    (tmp_path / "sites.json").write_text(json.dumps(first))
    with pytest.raises(NetBoxError, match="1 of 2 records"):
        load(str(tmp_path), "", state_of())
    (tmp_path / "sites-2.json").write_text(json.dumps(second))
    assert [site.name for site in load(str(tmp_path), "", state_of()).inventory.document.sites]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NetBoxError, match="neither a URL nor a folder"):
        load(str(tmp_path / "none"), "", state_of())


KNOWN = (
    HARDWARE
    + """
sites:
  - name: Oslo
    budget_w: 1
    time_zone: Europe/Oslo
    power_domains:
      - {name: grid, kind: utility, capacity_w: 500000}
      - {name: PP-A, kind: panel, capacity_w: 1, parent: grid}
    cooling_zones: [{name: hall, kind: air, capacity_w: 1000}]
    storage_endpoints: [{name: nvme}]
    racks:
      - name: A01
        budget_w: 1
        cooling_zone: hall
        nodes:
          - name: oslo-a01-n1
            switch_domain: leaf-1
            storage_endpoint: nvme
            labels: {pool: train}
            gpus: [{index: 0, model: H100-SXM5-80GB, uuid: GPU-0}]
      - {name: gone, budget_w: 1}
links:
  - {name: kept, kind: leaf-uplink, site: Oslo, rack: A01, capacity_bits_per_s: 1}
  - {name: lost, kind: leaf-uplink, site: Oslo, rack: gone, capacity_bits_per_s: 1}
meters:
  - {name: m1, node: oslo-a01-n1}
  - {name: m2, site: Oslo, cooling_zone: hall}
  - {name: m3, site: Oslo, rack: gone}
"""
)


def test_what_netbox_has_no_field_for_stays() -> None:
    state = state_of(KNOWN)
    found = imported(state).inventory
    site = found.document.sites[0]
    rack = site.racks[0]
    node = rack.nodes[0]
    assert rack.cooling_zone == "hall"
    assert (node.switch_domain, node.storage_endpoint) == ("leaf-1", "nvme")
    assert node.labels == {"pool": "train", "role": "gpu-node"}
    assert isinstance(node.gpus, list)
    assert [gpu.uuid for gpu in node.gpus] == ["GPU-0"] + [""] * 7
    assert {domain.name: domain.parent for domain in site.power_domains}["PP-A"] == "grid"
    assert [link.name for link in found.document.links] == ["kept"]
    assert [meter.name for meter in found.document.meters] == ["m1", "m2"]
    assert site.budget_w == 400_000
    removed = {name for name, kind in plan(found, state).kinds.items() if kind.removed}
    assert removed == {"racks", "links", "meters"}
