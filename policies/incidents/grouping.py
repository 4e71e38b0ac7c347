"""Which firings belong together."""

from __future__ import annotations

from dataclasses import dataclass

from policies.firings import Firing
from policies.incidents.places import Places
from policies.scopes import Scope, ScopeKind

__all__ = ["Group", "group_of", "member_key"]

#: A label of a rule that says by what its firings are grouped, and one that says what they are of.
GROUP_BY = "group_by"
DIMENSION = "dimension"
#: A label that keeps apart firings of one rule on one scope: alerts from elsewhere have it.
FINGERPRINT = "fingerprint"

_POWER = "power"
#: Conditions on these fields are about power, where no label says it.
_POWER_FIELDS = ("power_", "failover_")
_BY_KIND = {
    "site": ScopeKind.SITE,
    "zone": ScopeKind.ZONE,
    "rack": ScopeKind.RACK,
    "node": ScopeKind.NODE,
}


@dataclass(frozen=True)
class Group:
    """The common rule and place of an incident's firings. ``scope`` None: anywhere."""

    rule: str
    scope: Scope | None

    @property
    def key(self) -> str:
        """Tells the group from all others."""
        return f"{self.rule} {self.scope or 'elsewhere'}"


def member_key(firing: Firing) -> str:
    """Return the key that identifies a firing."""
    fingerprint = firing.labels.get(FINGERPRINT, "")
    return f"{firing.key} {fingerprint}" if fingerprint else firing.key


def group_of(firing: Firing, places: Places) -> Group:
    """Return the group of ``firing``: its rule on its site, or on its feed if it is about power.

    The label ``group_by`` of the rule says otherwise: site, feed, zone, rack, node, or scope for an
    incident for each scope.
    """
    by = firing.labels.get(GROUP_BY) or ("feed" if _is_of_power(firing) else "site")
    if by == "scope":
        return Group(firing.rule, firing.scope)
    if by == "feed":
        found = places.feed(firing.scope)
    else:
        found = places.nearest(firing.scope, _BY_KIND.get(by, ScopeKind.SITE))
    return Group(firing.rule, found or places.nearest(firing.scope, ScopeKind.SITE))


def _is_of_power(firing: Firing) -> bool:
    if dimension := firing.labels.get(DIMENSION):
        return dimension == _POWER
    return any(name.startswith(_POWER_FIELDS) for name in firing.values)
