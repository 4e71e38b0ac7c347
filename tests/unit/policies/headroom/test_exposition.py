"""What Prometheus is shown of a fleet: tightest first, so many at most, and sums that are whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleet.tables import FleetArrays
from policies.headroom.evaluate import Headroom
from policies.headroom.exposition import Exposition, Row, exposed
from policies.headroom.inputs import Reservations
from policies.scopes import ScopeKind
from tests.builders.arrays import make_arrays, make_frame
from tests.unit.policies.headroom.scenes import NOW, all_read, headroom_of, with_mounts

RACK = ScopeKind.RACK


def with_reserved(fleet: FleetArrays, rack_w: list[float]) -> Headroom:
    """Return the headroom of a fleet whose racks are to have so much."""
    reservations = replace(Reservations.none(fleet), rack_w=np.array(rack_w))
    return headroom_of(fleet, all_read(fleet), reservations=reservations)


def rows(found: Exposition, kind: str) -> dict[str, Row]:
    return {row.scope: row for row in found.rows if row.kind == kind}


def test_a_small_fleet_is_shown_whole_with_the_numbers_of_its_tables() -> None:
    headroom = headroom_of(fleet := make_arrays(sites=2), all_read(fleet))
    found = exposed(headroom)
    assert found.at == headroom.at
    # Of links and endpoints that were never heard nothing is known.
    assert {kind for kind, count in found.left_out.items() if count} == {"link", "storage"}
    for kind in (ScopeKind.SITE, ScopeKind.POWER_DOMAIN, RACK):
        table, shown = headroom.table(kind), rows(found, kind.value)
        assert found.shown[kind] == len(table)
        known = ~np.isnan(table.columns["power_headroom_w"])
        assert list(shown) == table.names[known].tolist()
        for name, row in shown.items():
            wanted = table.row(name)
            assert (row.budget_w, row.load_w) == (wanted["power_budget_w"], wanted["power_load_w"])
            assert row.site == wanted["site"]
    zone = headroom.table(ScopeKind.ZONE).row("s1/zone-A")
    shown_zone = rows(found, "zone")["s1/zone-A"]
    assert shown_zone.budget_w == zone["cooling_capacity_w"]
    assert shown_zone.load_w == zone["cooling_load_w"]


def test_of_many_racks_the_tightest_are_shown_and_the_sums_are_of_all() -> None:
    fleet = make_arrays(racks=6)
    headroom = with_reserved(fleet, [30e3, 90e3, 40e3, 80e3, 30e3, 30e3])
    found = exposed(headroom, most=2)
    assert list(rows(found, "rack")) == ["s1/A02", "s1/A04"]
    assert (found.shown["rack"], found.left_out["rack"]) == (2, 4)
    whole, powers = rows(found, "racks")["s1"], headroom.powers[RACK]
    assert whole.load_w == pytest.approx(powers.load_w.sum())
    assert whole.budget_w == pytest.approx(powers.budget_w.sum())


def test_of_links_and_endpoints_the_tightest_that_are_known_are_shown_in_bytes() -> None:
    fleet = make_arrays(sites=2, racks=1)  # two uplinks of 800 Gbit/s, two WAN links of 100
    frame = make_frame(fleet, now=NOW, link={"tx_bytes_per_s": 1e9, "rx_bytes_per_s": 0.0})
    reserved = replace(
        Reservations.none(fleet),
        link_bits_per_s=np.array([0.0, 4e11, 8e9, 0.0]),
        storage_bytes_per_s=np.array([5e10, 0.0]),
    )
    headroom = headroom_of(fleet, frame, past=with_mounts(fleet), reservations=reserved)
    found = exposed(headroom, most=2)
    links = [each for each in found.rates if each.kind == "link"]
    assert [each.capacity_bytes_per_s for each in links] == [1e11, 1.25e10]
    assert [each.load_bytes_per_s for each in links] == pytest.approx([5.1e10, 2e9])
    assert (found.shown["link"], found.left_out["link"]) == (2, 2)
    (endpoint,) = (each for each in found.rates if each.kind == "storage")
    wanted = headroom.table(ScopeKind.STORAGE).row(endpoint.scope)
    assert endpoint.site == wanted["site"]
    assert endpoint.capacity_bytes_per_s == wanted["storage_capacity_bytes_per_s"]
    assert endpoint.load_bytes_per_s == pytest.approx(5e10)
    assert (found.shown["storage"], found.left_out["storage"]) == (1, 1)


def test_sites_are_shown_however_many_there_are() -> None:
    headroom = headroom_of(fleet := make_arrays(sites=3), all_read(fleet))
    found = exposed(headroom, most=1)
    assert found.left_out["site"] == 0
    assert {kind: found.shown[kind] for kind in ("zone", "power_domain", "rack")} == {
        "zone": 1, "power_domain": 1, "rack": 1
    }  # fmt: skip


def test_a_rack_without_a_budget_is_in_no_row_and_in_no_sum() -> None:
    fleet = make_arrays(racks=2)
    budget_w = np.array([np.nan, 50e3])
    fleet = replace(fleet, racks=replace(fleet.racks, budget_w=budget_w))
    found = exposed(headroom := headroom_of(fleet, all_read(fleet)))
    assert list(rows(found, "rack")) == ["s1/A02"]
    assert found.left_out["rack"] == 1
    whole = rows(found, "racks")["s1"]
    assert whole.budget_w == 50e3
    assert whole.load_w == headroom.powers[RACK].load_w[1]


def test_a_budget_of_nothing_is_tightest_of_all() -> None:
    fleet = make_arrays(racks=3)
    budget_w = np.array([50e3, 0.0, 50e3])
    fleet = replace(fleet, racks=replace(fleet.racks, budget_w=budget_w))
    found = exposed(headroom_of(fleet, all_read(fleet)), most=1)
    assert list(rows(found, "rack")) == ["s1/A02"]


def test_nothing_is_told_of_when_a_budget_ends_unless_that_is_claimed() -> None:
    found = exposed(headroom_of(fleet := make_arrays(), all_read(fleet)))
    assert all(row.over_from_s is None and row.over_upto_s is None for row in found.rows)
