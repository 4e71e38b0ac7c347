import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.fleet import Fleet, inventory, make_fleet
from lab.twin import domains_of
from lab.twin.conditions import domain_names
from lab.twin.tree import PowerTree

FLEET = make_fleet(gpus=1536)


def make_tree(fleet: Fleet = FLEET, lost: tuple[str, ...] = ()) -> PowerTree:
    """Return the tree with domains of the first site lost, by name."""
    tree = PowerTree(domains_of(fleet))
    tree.lose(np.array([name in lost and at == 0 for at, name in keys(tree)]))
    return tree


def keys(tree: PowerTree) -> list[tuple[int, str]]:
    return list(zip(tree.domains.site.tolist(), tree.domains.names, strict=True))


def flow(tree: PowerTree, rack_w: float = 60_000.0) -> dict[tuple[int, str], float]:
    carried = tree.flow(np.full(len(FLEET.racks), rack_w))
    return dict(zip(keys(tree), carried.tolist(), strict=True))


def test_domains_are_those_of_the_inventory() -> None:
    found = [
        (site["name"], domain["name"])
        for site in inventory(FLEET)["sites"]
        for domain in site["power_domains"]
    ]
    domains = domains_of(FLEET)
    sites = [FLEET.sites[at] for at in domains.site]
    assert list(zip(sites, domains.names, strict=True)) == found == domain_names(FLEET)


def test_a_pair_is_two_halves() -> None:
    domains = domains_of(FLEET)
    paired = domains.partner >= 0
    assert (domains.partner[domains.partner[paired]] == np.flatnonzero(paired)).all()
    assert {domains.kind[i] for i in np.flatnonzero(~paired)} == {"utility"}


def test_both_feeds_carry_about_half_and_the_utility_all_with_what_is_lost() -> None:
    carried = flow(make_tree())
    racks_w = 12 * 60_000.0
    a, b = carried[0, "feed-a"], carried[0, "feed-b"]
    assert a == pytest.approx(0.507 * racks_w * 1.006)
    assert a + b == pytest.approx(racks_w * 1.006)
    assert 1.015 * (a + b) < carried[0, "utility"] < 1.03 * (a + b)


@pytest.mark.parametrize(("lost", "survivor"), [("feed-a", "feed-b"), ("feed-b", "feed-a")])
def test_a_lost_feed_moves_its_load_to_the_other(lost: str, survivor: str) -> None:
    tree = make_tree(lost=(lost,))
    carried = flow(tree)
    assert carried[0, lost] == 0.0
    assert carried[0, survivor] == pytest.approx(12 * 60_000.0 * 1.006)
    assert not tree.dark.any()
    # The other site does not feel it.
    assert carried[1, "feed-a"] == flow(make_tree())[1, "feed-a"]


def test_a_lost_pdu_moves_the_load_of_its_row_only() -> None:
    carried = flow(make_tree(lost=("pdu-a-a",)))
    assert carried[0, "pdu-a-b"] == pytest.approx(4 * 60_000.0)
    assert carried[0, "pdu-b-b"] == pytest.approx(4 * 60_000.0 * 0.493)


@pytest.mark.parametrize("lost", [("utility",), ("feed-a", "feed-b"), ("feed-a", "pdu-a-b")])
def test_racks_without_either_cord_are_dark(lost: tuple[str, ...]) -> None:
    tree = make_tree(lost=lost)
    first_row = FLEET.row_of_rack == 0
    assert tree.dark[first_row].all()
    assert not tree.dark[FLEET.site_of_rack == 1].any()


def test_what_comes_back_is_as_before() -> None:
    tree = make_tree(lost=("utility",))
    tree.lose(np.zeros(len(tree.alive), dtype=np.bool_))
    assert flow(tree) == flow(make_tree())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_each_lit_rack_is_carried_whole_whatever_is_lost(data: st.DataObject) -> None:
    tree = PowerTree(domains_of(FLEET))
    count = len(tree.alive)
    tree.lose(np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count))))
    rack_w = np.array(
        data.draw(
            st.lists(st.floats(0.0, 1e5), min_size=len(FLEET.racks), max_size=len(FLEET.racks))
        )
    )
    carried = tree.flow(rack_w)
    assert (carried[~tree.alive] == 0.0).all()
    pdus = tree.domains.of_kind("pdu")
    assert carried[pdus].sum() == pytest.approx(rack_w[~tree.dark].sum())
    # Losses make more of it on the way up, never less.
    utilities = tree.domains.of_kind("utility")
    assert carried[utilities].sum() >= carried[pdus].sum() * (1.0 - 1e-12)


def test_racks_under_a_feed_are_those_of_its_site() -> None:
    tree = make_tree()
    feed = np.array([key == (0, "feed-a") for key in keys(tree)])
    assert (tree.racks_under(feed) == (FLEET.site_of_rack == 0)).all()
    least = tree.least_above(np.where(feed, 0.5, 1.0))
    assert (least == np.where(FLEET.site_of_rack == 0, 0.5, 1.0)).all()
