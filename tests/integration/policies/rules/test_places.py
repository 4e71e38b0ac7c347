"""What a scope is part of, and how rules see a fleet."""

from __future__ import annotations

import numpy as np
import pytest

from fleet import snapshot
from fleet.models import Link, PowerDomain
from policies.headroom import live
from policies.limiting import limits_in
from policies.restrictions.strictest import InForce
from policies.rules import store
from policies.rules.document import Related
from policies.rules.places import related, scopes_of
from policies.scopes import Scope, ScopeKind, UnknownScope
from tests.builders.fleet import SmallFleet

pytestmark = pytest.mark.django_db

NODE = "oslo-a01-n1"


@pytest.mark.parametrize(
    ("kind", "name", "wanted", "expected"),
    [
        ("rack", "oslo/A01", Related.SELF, ["rack oslo/A01"]),
        ("rack", "oslo/A01", Related.SITE, ["site oslo"]),
        ("rack", "oslo/A01", Related.ZONE, ["zone oslo/hall-1"]),
        (
            "rack",
            "oslo/A01",
            Related.POWER_DOMAIN,
            ["power_domain oslo/feed-a1", "power_domain oslo/feed-b1"],
        ),
        ("node", NODE, Related.RACK, ["rack oslo/A01"]),
        ("gpu", f"{NODE}/2", Related.NODE, [f"node {NODE}"]),
        ("gpu", f"{NODE}/2", Related.RACK, ["rack oslo/A01"]),
        ("gpu", f"{NODE}/2", Related.SITE, ["site oslo"]),
        ("zone", "oslo/hall-1", Related.SITE, ["site oslo"]),
        ("power_domain", "oslo/feed-a1", Related.SITE, ["site oslo"]),
        ("power_domain", "oslo/feed-a1", Related.POWER_DOMAIN, ["power_domain oslo/utility"]),
        ("power_domain", "oslo/utility", Related.POWER_DOMAIN, []),
        ("link", "oslo/A01/uplink", Related.RACK, ["rack oslo/A01"]),
        ("link", "oslo/A01/uplink", Related.SITE, ["site oslo"]),
        ("link", "wan-1", Related.PEER_SITE, ["site bergen"]),
        ("link", "wan-1", Related.RACK, []),
        ("storage", "oslo/nas", Related.SITE, ["site oslo"]),
    ],
)
def test_what_a_scope_is_part_of(
    fleet: SmallFleet, kind: str, name: str, wanted: Related, expected: list[str]
) -> None:
    Link.objects.create(
        name="wan-1", kind="wan", site=fleet.sites["oslo"], peer_site=fleet.sites["bergen"],
        capacity_bits_per_s=1e10,
    )  # fmt: skip
    found = related(snapshot.fresh(), Scope(ScopeKind(kind), name), wanted)
    assert [str(scope) for scope in found] == expected


def test_a_scope_that_is_gone_is_unknown(fleet: SmallFleet) -> None:
    with pytest.raises(UnknownScope):
        related(snapshot.fresh(), Scope(ScopeKind.RACK, "oslo/gone"), Related.SITE)


def test_scopes_know_their_kinds_and_their_racks(fleet: SmallFleet) -> None:
    headroom = live.current(1_000.0)
    scopes = scopes_of(headroom, [ScopeKind.POWER_DOMAIN, ScopeKind.NODE, ScopeKind.RACK])
    domains = scopes[ScopeKind.POWER_DOMAIN]
    by_name = dict(zip(domains.table.names.tolist(), domains.kinds.tolist(), strict=True))
    assert by_name["oslo/utility"] == "utility"
    assert by_name["oslo/feed-a1"] == "feed"
    assert len(by_name) == PowerDomain.objects.count()
    nodes = scopes[ScopeKind.NODE]
    at = nodes.table.index_by_name[NODE]
    assert nodes.groups[at] == "oslo/A01"
    again = scopes_of(headroom, [ScopeKind.RACK])[ScopeKind.RACK]
    assert again.table.names is scopes[ScopeKind.RACK].table.names


def test_nothing_in_force_limits_nothing(fleet: SmallFleet) -> None:
    now = store.moment(1_000.0)
    limits = limits_in(InForce(now, ()), snapshot.fresh())
    assert np.isinf(limits.gpu_cap_w).all()
    assert (limits.link_share == 1).all()
