"""Restrictions in words and groups, and which of them counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dashboard import restrictions
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CAP = RestrictionKind.POWER_CAP_W


def restriction(
    number: int, on: str, value: float | None, kind: RestrictionKind = CAP
) -> ActiveRestriction:
    scope_kind, _, name = on.partition(" ")
    ends = NOW + timedelta(minutes=number)
    scope = Scope(ScopeKind(scope_kind), name)
    return ActiveRestriction(number, kind, scope, value, "hot", f"user:u{number}", "c", NOW, ends)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("power_cap_w", 520.868, "power_cap_w 521 W"), ("drain", None, "drain"),
        ("max_batch_scale", 0.75, "max_batch_scale 75 %"),
        ("max_concurrent_jobs", 1.0, "max_concurrent_jobs 1 job"),
        ("max_concurrent_jobs", 12.0, "max_concurrent_jobs 12 jobs"),
    ],
)  # fmt: skip
def test_what_is_restricted_is_said_with_its_unit(
    kind: str, value: float | None, said: str
) -> None:
    assert restrictions.what(kind, value) == said


def test_every_place_that_a_gpu_is_in_is_wider() -> None:
    fleet = make_arrays()
    node = str(fleet.nodes.names[0])
    wider = list(restrictions.wider_than(fleet, Scope(ScopeKind.GPU, f"{node}/0")))
    assert [each.kind for each in wider[:3]] == [ScopeKind.NODE, ScopeKind.RACK, ScopeKind.SITE]
    in_force = InForce(NOW, tuple(restriction(i + 1, str(s), 500.0) for i, s in enumerate(wider)))
    # What the decisions see says the same.
    (found,) = in_force.covering(fleet, Scope(ScopeKind.GPU, f"{node}/0"))
    assert {each.scope for each in found.all} == set(wider)


@pytest.mark.parametrize("on", ["rack nowhere/A01", "job llama", "link x", "site nowhere"])
def test_what_is_no_place_is_in_none(on: str) -> None:
    kind, _, name = on.partition(" ")
    assert list(restrictions.wider_than(make_arrays(), Scope(ScopeKind(kind), name))) == []


def test_one_counts_and_the_others_say_which() -> None:
    fleet = make_arrays()
    rack, site = f"rack {fleet.racks.paths[0]}", f"site {fleet.sites.names[0]}"
    in_force = InForce(
        NOW, (restriction(1, rack, 560.0), restriction(2, rack, 500.0), restriction(3, site, 450.0))
    )
    found = restrictions.effective(in_force)
    on_site, on_rack = (restrictions.group(fleet, found, key, {}) for key in found)
    assert [line.restriction.id for line in on_rack.lines] == [2, 1]
    assert [line.counts for line in on_rack.lines] == [False, False]
    assert {line.under and line.under.id for line in on_rack.lines} == {3}
    assert on_rack.lines[0].under_words == "is stricter"
    assert [line.counts for line in on_site.lines] == [True]


def test_of_equal_ones_the_longest_counts() -> None:
    fleet = make_arrays()
    rack = f"rack {fleet.racks.paths[0]}"
    away = RestrictionKind.PREFER_AWAY
    in_force = InForce(NOW, (restriction(1, rack, None, away), restriction(2, rack, None, away)))
    found = restrictions.effective(in_force)
    group = restrictions.group(fleet, found, next(iter(found)), {1: "it was done"})
    assert [(line.restriction.id, line.counts) for line in group.lines] == [(2, True), (1, False)]
    assert group.lines[1].under_words == "lasts longer"
    assert group.lines[1].told == "it was done"


def test_a_sentence_begins_with_a_capital_unless_with_a_token() -> None:
    assert restrictions.sentence("there is no rack") == "There is no rack."
    assert restrictions.sentence("power_cap_w takes no value") == "power_cap_w takes no value."
