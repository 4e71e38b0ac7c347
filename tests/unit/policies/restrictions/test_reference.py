"""The reference page and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.restrictions.effects import Outcome
from policies.restrictions.kinds import KINDS, RestrictionKind
from policies.restrictions.models import Restriction, RestrictionEvent
from policies.scopes import ScopeKind

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "restrictions.md"
TEXT = PAGE.read_text()
PLACES = {"site", "zone", "power_domain", "rack", "node"}


def rows(heading: str) -> dict[str, list[str]]:
    """Return the rows of the tables under a heading, by what stands first in them."""
    section = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    text = next(each for each in section if each.startswith(heading))
    found = [
        [cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines() if "|" in row
    ]
    return {row[0].strip("`"): row[1:] for row in found if row[0].startswith("`")}


def test_every_kind_is_there_in_order() -> None:
    assert list(rows("Kinds")) == [kind.value for kind in RestrictionKind]


@pytest.mark.parametrize("kind", RestrictionKind)
def test_a_kind_has_the_scopes_and_the_value_that_it_says(kind: RestrictionKind) -> None:
    value, scopes, _ = rows("Kinds")[kind.value]
    assert bool(value) == KINDS[kind].takes_value
    assert value.startswith(KINDS[kind].unit)
    words = {word.strip() for word in scopes.split(",")}
    said = (words - {"places"}) | (PLACES if "places" in words else set())
    assert said == {scope.value for scope in KINDS[kind].scopes}
    assert said <= {scope.value for scope in ScopeKind}


def test_every_state_event_and_outcome_is_there() -> None:
    assert set(rows("States")) == set(Restriction.State.values)
    assert all(f"`{kind}`" in TEXT for kind in RestrictionEvent.Kind.values)
    assert {outcome.value for outcome in Outcome} <= set(rows("Ledger"))
