from __future__ import annotations

import pytest

from policies.incidents.places import Places
from policies.scopes import ScopeKind
from tests.builders.arrays import make_arrays
from tests.builders.firings import scope

FLEET = make_arrays(sites=2, racks=8)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (
            "gpu s1-A01-n1/3",
            [
                "node s1-A01-n1",
                "rack s1/A01",
                "power_domain s1/pdu-A-a",
                "power_domain s1/feed-a",
                "power_domain s1/utility",
                "power_domain s1/pdu-A-b",
                "power_domain s1/feed-b",
                "zone s1/zone-A",
                "site s1",
            ],
        ),
        ("power_domain s2/feed-b", ["power_domain s2/utility", "site s2"]),
        ("zone s2/zone-B", ["site s2"]),
        ("link s2/wan", ["site s2"]),
        ("storage s2/nvme", ["site s2"]),
        ("site s1", []),
        ("job 17", []),
        # Not of the inventory: no more than its name says.
        ("rack s9/Z99", ["site s9"]),
        ("node nowhere", []),
    ],
)
def test_above(where: str, expected: list[str]) -> None:
    assert list(map(str, Places(FLEET).above(scope(where)))) == expected


def test_a_link_of_a_rack_is_a_part_of_it() -> None:
    assert Places(FLEET).above(scope("link s1/A01/up"))[0] == scope("rack s1/A01")


@pytest.mark.parametrize(
    ("where", "site", "feed"),
    [
        ("gpu s2-B03-n2/0", "s2", "s2/feed-a"),
        ("rack s1/A01", "s1", "s1/feed-a"),
        ("power_domain s1/pdu-B-b", "s1", "s1/feed-b"),
        ("power_domain s1/feed-b", "s1", "s1/feed-b"),
        ("power_domain s1/utility", "s1", None),
        ("site s1", "s1", None),
        ("class training", "", None),
    ],
)
def test_site_and_feed(where: str, site: str, feed: str | None) -> None:
    places = Places(FLEET)
    found = places.feed(scope(where))
    assert places.site(scope(where)) == site
    assert (found and found.name) == feed


def test_nearest_is_itself_or_what_it_is_a_part_of() -> None:
    places = Places(FLEET)
    assert places.nearest(scope("rack s1/A01"), ScopeKind.RACK) == scope("rack s1/A01")
    assert places.nearest(scope("gpu s1-A01-n1/0"), ScopeKind.ZONE) == scope("zone s1/zone-A")
    assert places.nearest(scope("site s1"), ScopeKind.ZONE) is None
