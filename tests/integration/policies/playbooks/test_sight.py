"""What a run can see of its surroundings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fleet import snapshot
from policies import current
from policies.playbooks.document import Related
from policies.playbooks.run_context import Conditions
from policies.playbooks.view import related
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.scopes import Scope, ScopeKind, UnknownScope
from tests.builders.fleet import SmallFleet

K, R = ScopeKind, Related


@pytest.mark.parametrize(
    ("kind", "name", "to", "expected"),
    [
        (K.GPU, "oslo-a01-n1/0", R.RACK, "oslo/A01"),
        (K.NODE, "oslo-a01-n1", R.RACK, "oslo/A01"),
        (K.NODE, "oslo-a01-n1", R.ZONE, "oslo/hall-1"),
        (K.RACK, "oslo/B02", R.ZONE, "oslo/hall-1"),
        (K.RACK, "oslo/B02", R.SITE, "oslo"),
        (K.ZONE, "oslo/hall-1", R.SITE, "oslo"),
        (K.POWER_DOMAIN, "oslo/feed-a1", R.SITE, "oslo"),
        (K.LINK, "oslo/A01/uplink", R.SITE, "oslo"),
        (K.STORAGE, "oslo/nfs", R.SITE, "oslo"),
        (K.SITE, "oslo", R.SITE, "oslo"),
        (K.JOB, "17", R.SELF, "17"),
    ],
)
def test_the_rack_zone_and_site_of_a_scope(
    kind: ScopeKind, name: str, to: Related, expected: str
) -> None:
    assert related(snapshot.current(), Scope(kind, name), to).name == expected


def test_what_is_not_in_the_inventory_has_none() -> None:
    with pytest.raises(UnknownScope):
        related(snapshot.current(), Scope(K.RACK, "oslo/Z9"), R.SITE)


def test_a_run_sees_the_headroom_that_rules_see(fleet: SmallFleet) -> None:
    """With what restrictions in force take of it."""
    fleet.report()
    now = datetime.now(UTC)
    cap = Wanted(
        kind=RestrictionKind.POWER_CAP_W,
        scope=Scope(K.RACK, "oslo/A01"),
        value=500.0,
        reason="it is hot",
        owner="user:ada",
        cause="heat",
        expires_at=now + timedelta(hours=1),
    )
    store.apply([cap], now=now)
    seen = Conditions(now).headroom
    assert seen.table(K.GPU).row("oslo-a01-n1/0")["power_budget_w"] == 500.0
    assert seen is current.headroom(now.timestamp())
