"""What a run can see of its surroundings."""

from __future__ import annotations

import pytest

from fleet import snapshot
from policies.playbooks.document import Related
from policies.playbooks.view import related
from policies.scopes import Scope, ScopeKind, UnknownScope

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
