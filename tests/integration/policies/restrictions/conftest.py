"""A small fleet, and restrictions on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet import snapshot
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.scopes import Scope, ScopeKind
from tests.builders.fleet import SmallFleet, small_fleet

CAP = RestrictionKind.POWER_CAP_W
DRAIN = RestrictionKind.DRAIN


@pytest.fixture(autouse=True)
def clean_stores(db: None, clean_stores: None) -> None:
    """Each test begins with nothing but its own database."""


@pytest.fixture
def fleet(clean_stores: None) -> SmallFleet:
    """Two sites with five racks each, so that a rack is a fifth of its site."""
    made = small_fleet(rows=("A",), racks_per_row=5)
    snapshot.invalidate()
    return made


def now() -> datetime:
    return datetime.now(UTC)


def make_wanted(on: str = "rack oslo/A01", *, for_s: float = 60.0, **given: Any) -> Wanted:
    """A power cap of a rule, for a minute from now. It takes 140 of 700 W."""
    kind, _, name = on.partition(" ")
    fields: dict[str, Any] = {
        "kind": CAP,
        "scope": Scope(ScopeKind(kind), name),
        "value": 560.0,
        "reason": "rack over its budget",
        "owner": "rule:rack-power",
        "cause": on,
        "expires_at": given.pop("at", now()) + timedelta(seconds=for_s),
    }
    return Wanted(**{**fields, **given})
