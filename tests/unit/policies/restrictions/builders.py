"""Restrictions for tests without a database."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import Scope, ScopeKind

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CAP = RestrictionKind.POWER_CAP_W

_ids = itertools.count(1)


def scope(text: str) -> Scope:
    """Return the scope that "rack s1/A01" names."""
    kind, _, name = text.partition(" ")
    return Scope(ScopeKind(kind), name)


def make_wanted(on: str = "rack s1/A01", **given: Any) -> Wanted:
    """A power cap of a rule, for a minute."""
    fields: dict[str, Any] = {
        "kind": CAP,
        "scope": scope(on),
        "value": 500.0,
        "reason": "rack over its budget",
        "owner": "rule:rack-power",
        "cause": on,
        "expires_at": NOW + timedelta(seconds=60),
    }
    return Wanted(**{**fields, **given})


def make_restriction(
    on: str = "rack s1/A01", *, for_s: float = 60.0, **given: Any
) -> ActiveRestriction:
    """The same, in force."""
    fields: dict[str, Any] = {
        "id": next(_ids),
        "kind": CAP,
        "scope": scope(on),
        "value": 500.0,
        "reason": "rack over its budget",
        "owner": "rule:rack-power",
        "cause": on,
        "issued_at": NOW,
        "expires_at": NOW + timedelta(seconds=for_s),
    }
    return ActiveRestriction(**{**fields, **given})


def make_in_force(*restrictions: ActiveRestriction) -> InForce:
    return InForce(NOW, restrictions)
