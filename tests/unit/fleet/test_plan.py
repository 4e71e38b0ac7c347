"""Plans over documents and rows: no database."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.inventory import InventoryError, Plan, State, describe, export, parse, plan
from fleet.inventory.kinds import KINDS
from fleet.inventory.rows import rows_of
from headroom.contracts import odd_character
from tests.builders.inventory import HARDWARE, make_inventory

FLEET = make_inventory(gpus=64, sites=2)


def state_of(text: str) -> State:
    """The state of a fleet that is as ``text`` says."""
    return State(rows_of(parse(text).document))


def planned(text: str, current: str = "", *, prune_sites: bool = False) -> Plan:
    return plan(parse(text), state_of(current), prune_sites=prune_sites)


def problems_of(text: str, current: str = "") -> list[str]:
    with pytest.raises(InventoryError) as caught:
        planned(text, current)
    return [f"{problem.field}: {problem.message}" for problem in caught.value.problems]


def site(body: str, *, name: str = "oslo", more: str = "") -> str:
    """An inventory of one site: ``body`` is what it has, ``more`` stands beside the sites."""
    inside = "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())
    return f"{HARDWARE}sites:\n  - name: {name}\n{inside}\n{dedent(more)}"


def test_into_an_empty_fleet_everything_is_created() -> None:
    counts = planned(FLEET).counts
    assert {name: each["created"] for name, each in counts.items()} == {
        "hardware_models": 2,
        "sites": 2,
        "power_domains": 6,
        "cooling_zones": 2,
        "storage_endpoints": 2,
        "racks": 2,
        "nodes": 8,
        "gpus": 64,
        "links": 2,
        "meters": 4,
    }


def test_the_same_again_changes_nothing() -> None:
    assert not planned(FLEET, FLEET)
    assert planned(FLEET, FLEET).counts == {}


def test_a_change_tells_old_and_new_of_the_fields_that_differ() -> None:
    todo = planned(FLEET.replace("height_u: 8", "height_u: 7", 1), FLEET)
    assert list(describe.lines(todo)) == [("~", "node site-1-r0001-n1: height_u 8 → 7")]
    assert describe.summary(todo) == "0 to create, 1 to change, 0 to remove"


def test_a_long_list_is_cut_off_and_counted() -> None:
    shown = [text for sign, text in describe.lines(planned(FLEET), limit=3) if "GPU" in text]
    assert len(shown) == 4
    assert shown[-1] == "… and 61 more of kind GPU"


def test_what_a_file_does_not_list_at_its_sites_is_removed() -> None:
    todo = planned(make_inventory(gpus=24), make_inventory(gpus=32))
    assert list(todo.kinds["nodes"].removed) == ["site-1-r0001-n4"]
    assert len(todo.kinds["gpus"].removed) == 8
    assert not any(kind.created for kind in todo.kinds.values())


def test_sites_that_a_file_does_not_name_are_left_alone() -> None:
    assert not planned(make_inventory(gpus=32), FLEET)


def test_pruning_removes_the_other_sites_and_unused_hardware() -> None:
    todo = planned("hardware_models: []", FLEET, prune_sites=True)
    assert all(each["removed"] and not each["created"] for each in todo.counts.values())
    assert set(todo.counts) == set(KINDS)


def test_hardware_models_are_removed_only_when_nothing_uses_them() -> None:
    without = FLEET.replace(HARDWARE, "")
    assert not planned(without, FLEET, prune_sites=True)


def test_a_node_that_moves_is_changed_and_keeps_its_gpus() -> None:
    at_oslo = site("racks: [{name: A, budget_w: 1, nodes: [{name: n, gpus: "
                   "{model: H100-SXM5-80GB, count: 2}}]}, {name: B, budget_w: 1}]")  # fmt: skip
    moved = site("racks: [{name: A, budget_w: 1}, {name: B, budget_w: 1, nodes: [{name: n, gpus: "
                 "{model: H100-SXM5-80GB, count: 2}}]}]")  # fmt: skip
    todo = planned(moved, at_oslo)
    assert list(describe.lines(todo)) == [("~", "node n: rack oslo/A → oslo/B")]


def test_hardware_and_peer_sites_may_be_known_from_before() -> None:
    wan = "links: [{name: w, kind: wan, site: oslo, peer_site: site-1, capacity_bits_per_s: 1}]"
    text = site("racks: [{name: A, budget_w: 1, nodes: [{name: n, model: HGX-H100-host}]}]")
    assert planned(text.replace(HARDWARE, "") + wan, FLEET)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "racks: [{name: A, budget_w: 1, feed_a: x}]\n"
            "power_domains: [{name: feed-b1, kind: feed, capacity_w: 1}, "
            "{name: feed-a1, kind: feed, capacity_w: 1}]",
            "sites[0].racks[0].feed_a: no power domain 'x' at site oslo; known: feed-a1, feed-b1",
        ),
        (
            "power_domains: [{name: a, kind: feed, capacity_w: 1, parent: zz}]",
            "sites[0].power_domains[0].parent: no power domain 'zz' at site oslo; known: a",
        ),
        (
            "power_domains: [{name: a, kind: feed, capacity_w: 1, parent: a}]",
            "sites[0].power_domains[0].parent: a power domain cannot be its own ancestor",
        ),
        (
            "power_domains: [{name: a, kind: feed, capacity_w: 1, parent: b}, "
            "{name: b, kind: feed, capacity_w: 1, parent: a}]",
            "sites[0].power_domains[1].parent: a power domain cannot be its own ancestor",
        ),
        (
            "power_domains: [{name: a, kind: feed, capacity_w: 1, pair: p, side: A}]",
            "sites[0].power_domains[0].pair: pair 'p' has no side B",
        ),
        (
            "power_domains: [{name: a, kind: feed, capacity_w: 1, pair: p}]",
            "sites[0].power_domains[0]: pair and side go together: side is missing",
        ),
        (
            "power_domains: [{name: a, kind: feed, capacity_w: 1, pair: p, side: A}, "
            "{name: c, kind: feed, capacity_w: 1, pair: p, side: B}, "
            "{name: b, kind: feed, capacity_w: 1, pair: p, side: A}]",
            "sites[0].power_domains[2].side: pair 'p' has another side A",
        ),
        (
            "power_domains: [{name: a, kind: feed, capacity_w: 1, pair: p, side: A}, "
            "{name: b, kind: feed, capacity_w: 1, pair: p, side: B}]\n"
            "racks: [{name: A, budget_w: 1, feed_a: b}]",
            "sites[0].racks[0].feed_a: b is the B side of p",
        ),
        (
            "power_domains: [{name: a, kind: feed, capacity_w: 1}]\n"
            "racks: [{name: A, budget_w: 1, feed_a: a, feed_b: a}]",
            "sites[0].racks[0].feed_b: a cannot feed both sides",
        ),
        (
            "racks: [{name: A, budget_w: 1, cooling_zone: z}]",
            "sites[0].racks[0].cooling_zone: no cooling zone 'z' at site oslo; known: none",
        ),
        (
            "racks: [{name: A, budget_w: 1}, {name: A, budget_w: 2}]",
            "sites[0].racks[1].name: 'A' is taken by sites[0].racks[0]",
        ),
        (
            "racks: [{name: A, budget_w: 1, nodes: [{name: n}]}, "
            "{name: B, budget_w: 2, nodes: [{name: n}]}]",
            "sites[0].racks[1].nodes[0].name: 'n' is taken by sites[0].racks[0].nodes[0]",
        ),
        (
            "racks: [{name: A, budget_w: 1, nodes: [{name: n, position_u: 1}, "
            "{name: m, position_u: 8}]}]",
            "sites[0].racks[0].nodes[1].position_u: n fills the rack up to U8",
        ),
        (
            "racks: [{name: A, budget_w: 1, nodes: [{name: n, position_u: 42}]}]",
            "sites[0].racks[0].nodes[0].position_u: it would end at U49 of a rack of 48 U",
        ),
        (
            "racks: [{name: A, budget_w: 1, nodes: [{name: n, model: H100-SXM5-80GB}]}]",
            "sites[0].racks[0].nodes[0].model: no node model 'H100-SXM5-80GB'; "
            "known: HGX-H100-host",
        ),
        (
            "racks: [{name: A, budget_w: 1, nodes: [{name: n, gpus: {model: X, count: 1}}]}]",
            "sites[0].racks[0].nodes[0].gpus.model: no GPU model 'X'; known: H100-SXM5-80GB",
        ),
        (
            "racks: [{name: A, budget_w: 1, nodes: [{name: n, gpus: "
            "[{index: 0, model: H100-SXM5-80GB}, {index: 0, model: H100-SXM5-80GB}]}]}]",
            "sites[0].racks[0].nodes[0].gpus[1].index: the node has two GPUs 0",
        ),
        (
            "racks: [{name: A, budget_w: 1, nodes: [{name: n, storage_endpoint: s}]}]",
            "sites[0].racks[0].nodes[0].storage_endpoint: no storage endpoint 's' at site oslo; "
            "known: none",
        ),
        (
            "time_zone: Moon/Tycho",
            "sites[0].time_zone: 'Moon/Tycho' is not a time zone, such as Europe/Oslo",
        ),
    ],
)  # fmt: skip
def test_what_does_not_hold_at_a_site_is_refused(body: str, says: str) -> None:
    assert problems_of(site(body)) == [says] or says in problems_of(site(body))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            "links: [{name: l, kind: rail, site: bergen, capacity_bits_per_s: 1}]",
            "links[0].site: no site 'bergen' in this inventory; known: oslo",
        ),
        (
            "links: [{name: l, kind: rail, site: oslo, node: x, capacity_bits_per_s: 1}]",
            "links[0].node: no node 'x' at site oslo",
        ),
        (
            "links: [{name: l, kind: rail, site: oslo, node: n, rack: A, capacity_bits_per_s: 1}]",
            "links[0].node: a link starts at a rack or at a node, not at both",
        ),
        (
            "links: [{name: l, kind: wan, site: oslo, peer_site: oslo, capacity_bits_per_s: 1}]",
            "links[0].peer_site: the other end is at another site",
        ),
        (
            "links: [{name: l, kind: wan, site: oslo, peer_site: x, capacity_bits_per_s: 1}]",
            "links[0].peer_site: no site 'x'; known: oslo",
        ),
        (
            "meters: [{name: m, site: oslo}]",
            "meters[0]: a meter measures one of: power_domain, cooling_zone, rack, node",
        ),
        (
            "meters: [{name: m, site: oslo, rack: A, node: n}]",
            "meters[0]: a meter measures one of: power_domain, cooling_zone, rack, node",
        ),
        (
            "meters: [{name: m, rack: A}]",
            "meters[0]: site is missing: a rack's name holds at one site only",
        ),
        ("meters: [{name: m, node: x}]", "meters[0].node: no node 'x' in this inventory"),
        (
            "meters: [{name: m, site: oslo, rack: B}]",
            "meters[0].rack: no rack 'B' at site oslo; known: A",
        ),
        (
            "meters: [{name: m, node: n}, {name: m, node: n}]",
            "meters[1].name: 'm' is taken by meters[0]",
        ),
    ],
)
def test_links_and_meters_hang_on_what_is_there(more: str, says: str) -> None:
    text = site("racks: [{name: A, budget_w: 1, nodes: [{name: n}]}]", more=more)
    assert problems_of(text) == [says]


def test_a_model_does_not_change_its_kind() -> None:
    text = "hardware_models: [{name: HGX-H100-host, kind: gpu, rated_w: 1}]"
    assert problems_of(text, FLEET) == ["hardware_models[0].kind: HGX-H100-host is known as a node"]


def test_a_part_draws_no_more_idle_than_at_work() -> None:
    text = "hardware_models: [{name: X, kind: gpu, rated_w: 1, idle_w: 2}]"
    assert problems_of(text) == [
        "hardware_models[0].idle_w: it draws more when idle than it is rated for"
    ]


def test_problems_of_references_carry_their_lines() -> None:
    text = FLEET.replace("feed_b: feed-b1", "feed_b: feed-x", 1)
    with pytest.raises(InventoryError) as caught:
        planned(text)
    (problem,) = caught.value.problems
    assert text.splitlines()[(problem.line or 0) - 1].strip() == "feed_b: feed-x"


def test_an_export_asks_for_what_is_there() -> None:
    rows = state_of(FLEET).rows
    assert rows_of(parse(export(rows)).document) == rows


_names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(
    lambda name: not odd_character(name)
)
_nodes = st.fixed_dictionaries(
    {"name": _names},
    optional={
        "labels": st.dictionaries(_names, _names, max_size=2),
        "switch_domain": _names,
        "gpus": st.lists(st.integers(0, 9), unique=True, max_size=4),
    },
)


@settings(max_examples=100, deadline=None)
@given(st.lists(_nodes, max_size=4, unique_by=lambda node: str(node["name"])), _names)
def test_any_text_survives_export_and_import(nodes: list[dict[str, object]], rack: str) -> None:
    rows = state_of(site("racks: [{name: A, budget_w: 1.25}]")).rows
    (row,) = rows["racks"].values()
    rows["racks"] = {f"oslo/{rack}": {**row, "name": rack}}
    for node in nodes:
        name = node["name"]
        rows["nodes"][str(name)] = {
            "name": name,
            "rack": f"oslo/{rack}",
            "model": None,
            "position_u": None,
            "height_u": 8,
            "switch_domain": node.get("switch_domain", ""),
            "storage_endpoint": None,
            "labels": node.get("labels", {}),
        }
        indexes = node.get("gpus", [])
        assert isinstance(indexes, list)
        for index in indexes:
            rows["gpus"][f"{name}/{index}"] = {
                "node": name,
                "index": index,
                "model": "H100-SXM5-80GB",
                "uuid": "",
                "slices": ["3g.40gb", "2g.20gb"] if index % 2 else [],
            }
    again = parse(export(rows))
    assert rows_of(again.document) == rows


# --- Slices ---------------------------------------------------------------------------------------

_SPLIT = """
racks:
  - name: A
    budget_w: 1
    nodes: [{{name: n1, gpus: {gpus}}}]
"""


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ("[{index: 0, model: H100-SXM5-80GB, slices: [9g.90gb]}]", "has no slice '9g.90gb'"),
        (
            "[{index: 0, model: H100-SXM5-80GB, slices: [4g.40gb, 4g.40gb]}]",
            "do not stand on one H100-SXM5-80GB together",
        ),
        ("{model: H100-SXM5-80GB, count: 8, slices: [1g.5gb]}", "has no slice '1g.5gb'"),
    ],
)
def test_slices_that_a_model_cannot_be_split_into_are_refused(gpus: str, message: str) -> None:
    (problem,) = problems_of(site(_SPLIT.format(gpus=gpus)))
    assert message in problem
    assert ".slices: " in problem


def test_gpus_that_are_all_split_alike_are_told_in_short() -> None:
    gpus = "{model: H100-SXM5-80GB, count: 2, slices: [3g.40gb, 3g.40gb]}"
    text = export(state_of(site(_SPLIT.format(gpus=gpus))).rows)
    assert "count: 2" in text
    assert text.count("3g.40gb") == 2


def test_racks_that_are_too_dense_for_their_cooling_are_warned_of_and_planned() -> None:
    air = FLEET.replace("kind: rear-door", "kind: air")
    found = planned(air)
    assert found.counts["racks"]["created"] == len(found.warnings) == 2
    assert found.warnings[0].startswith("rack site-1/")
    assert "may give off 40.8 kW, and air cooling carries 30.0 kW" in found.warnings[0]
    assert describe.as_dict(found)["warnings"] == list(found.warnings)
    # Also where nothing changes, and not where cooling or budget keep up.
    assert planned(air, air).warnings == found.warnings
    assert planned(FLEET).warnings == ()
    assert planned(air.replace("budget_w: 44000", "budget_w: 30000")).warnings == ()
