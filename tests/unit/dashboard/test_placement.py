"""A placement on the map of its racks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dashboard import placement, state
from dashboard.placement import PlacementMap
from dashboard.state import View
from fleet.snapshot import FleetArrays
from policies.headroom.inputs import Limits, Reservations
from tests.builders.arrays import make_arrays, make_frame

NOW = 1_000_000.0


def view_of(fleet: FleetArrays) -> View:
    frame = make_frame(fleet, now=NOW, gpu={"power_w": 500.0, "temp_c": 60.0})
    return state.view_of(fleet, frame, NOW, Reservations.none(fleet), Limits.none(fleet))


def drawn(held: Mapping[str, Sequence[int]], **shape: Any) -> PlacementMap:
    peak_w = dict.fromkeys(held, 3000.0)
    return placement.drawn(view_of(make_arrays(**shape)), held, peak_w)


def names_of(fleet: FleetArrays) -> list[str]:
    names: list[str] = fleet.nodes.names.tolist()
    return names


def test_racks_with_gpus_of_the_phase_are_told_from_the_others() -> None:
    names = names_of(make_arrays())
    found = drawn({names[0]: range(8), names[1]: range(4)})
    (site,) = found.sites
    cells = "".join(row.cells for row in site.rows)
    assert re.findall(r"<b>(\w+)</b><span>([^<]+)</span>", cells) == [("A01", "12 GPUs")]
    assert cells.count('class="cell away"') == 3
    assert (found.gpus, found.nodes, found.more, found.gone) == (12, 2, 0, [])


def test_a_rack_says_what_the_phase_reserves_and_what_it_has_left() -> None:
    names = names_of(make_arrays())
    (rack,) = drawn({names[2]: [0, 3]}).racks
    assert (rack.name, rack.site, rack.gpus, rack.peak_w) == ("A02", "s1", 2, 3000.0)
    assert 0 < rack.left_w < 44_000
    (node,) = rack.nodes
    assert (node.held, node.total) == (2, 8)
    assert re.findall(r"strip-(\w+)", node.svg) == ["held", "free", "free", "held", *["free"] * 4]
    assert f'aria-label="GPUs 0, 3 of {names[2]}"' in node.svg


def test_only_sites_that_it_stands_in_are_drawn() -> None:
    names = names_of(make_arrays(sites=3))
    found = drawn({names[0]: [0], names[-1]: [0]}, sites=3)
    assert [site.name for site in found.sites] == ["s1", "s3"]


def test_of_a_large_site_only_its_rows_are_drawn() -> None:
    shape: dict[str, Any] = {"racks": 300, "nodes": 1}
    names = names_of(make_arrays(**shape))
    (site,) = drawn({names[9]: [0], names[10]: [0], names[200]: [0]}, **shape).sites
    assert len(site.rows) == 2
    assert site.left_out == 73


def test_of_many_nodes_the_first_are_listed_and_all_are_counted() -> None:
    shape: dict[str, Any] = {"racks": 50, "nodes": 2}
    gpus = dict.fromkeys(names_of(make_arrays(**shape)), range(8))
    found = drawn(gpus, **shape)
    assert (found.nodes, found.gpus, found.more) == (100, 800, 100 - placement.NODES_SHOWN)
    assert sum(rack.gpus for rack in found.racks) == 800


def test_a_node_that_is_gone_from_the_inventory_is_named() -> None:
    names = names_of(make_arrays())
    found = drawn({"scrapped": [0, 1], names[0]: [0]})
    assert (found.gone, found.gpus, found.more) == (["scrapped"], 3, 0)
