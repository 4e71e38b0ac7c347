from __future__ import annotations

from typing import Any

import pytest

from policies.incidents.grouping import group_of, member_key
from policies.incidents.places import Places
from tests.builders.arrays import make_arrays
from tests.builders.firings import make_firing

PLACES = Places(make_arrays(sites=2, racks=8))


@pytest.mark.parametrize(
    ("where", "given", "key"),
    [
        # By default the rule on its site
        ("rack s1/A01", {}, "rack-heat site s1"),
        ("gpu s2-B01-n1/0", {}, "rack-heat site s2"),
        # Power: the feed
        ("rack s1/A01", {"values": {"power_use": 1.1}}, "rack-heat power_domain s1/feed-a"),
        ("power_domain s1/feed-b", {"values": {"failover_load_w": 1.0}},
         "rack-heat power_domain s1/feed-b"),
        ("rack s1/A01", {"labels": {"dimension": "power"}}, "rack-heat power_domain s1/feed-a"),
        ("rack s1/A01", {"values": {"power_use": 1.1}, "labels": {"dimension": "thermal"}},
         "rack-heat site s1"),
        ("site s1", {"values": {"power_use": 1.1}}, "rack-heat site s1"),
        # What the rule says
        ("rack s1/A01", {"labels": {"group_by": "scope"}}, "rack-heat rack s1/A01"),
        ("gpu s1-A01-n1/0", {"labels": {"group_by": "rack"}}, "rack-heat rack s1/A01"),
        ("gpu s1-A01-n1/0", {"labels": {"group_by": "zone"}}, "rack-heat zone s1/zone-A"),
        ("site s1", {"labels": {"group_by": "rack"}}, "rack-heat site s1"),
        ("rack s1/A01", {"labels": {"group_by": "moon"}}, "rack-heat site s1"),
        # Nowhere in the inventory
        ("job 17", {}, "rack-heat elsewhere"),
    ],
)  # fmt: skip
def test_group_key(where: str, given: dict[str, Any], key: str) -> None:
    assert group_of(make_firing(where, **given), PLACES).key == key


def test_a_fingerprint_keeps_alerts_on_one_scope_apart() -> None:
    plain, one, two = (
        make_firing(),
        make_firing(labels={"fingerprint": "1"}),
        make_firing(labels={"fingerprint": "2"}),
    )
    assert len({member_key(each) for each in (plain, one, two)}) == 3
    assert member_key(plain) == plain.key
