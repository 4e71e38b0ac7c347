from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from policies.restrictions.kinds import (
    KINDS,
    LONGEST,
    BadRestriction,
    RestrictionKind,
    check,
    gpus_in,
)
from tests.builders.arrays import make_arrays
from tests.unit.policies.restrictions.builders import NOW, make_wanted, scope

FLEET = make_arrays(sites=2)


def refusal(on: str = "rack s1/A01", **given: Any) -> BadRestriction:
    with pytest.raises(BadRestriction) as caught:
        check(make_wanted(on, **given), FLEET, now=NOW)
    return caught.value


@pytest.mark.parametrize(
    "on",
    [
        *("site s1", "zone s1/zone-A", "power_domain s2/feed-a", "rack s2/A04", "node s1-A01-n2"),
        "gpu s1-A01-n2/7",
    ],
)
def test_a_cap_may_be_on_any_place(on: str) -> None:
    check(make_wanted(on), FLEET, now=NOW)


def test_all_kinds_are_described() -> None:
    assert list(KINDS) == list(RestrictionKind)
    assert all(kind.help and kind.scopes for kind in KINDS.values())


@pytest.mark.parametrize("kind", RestrictionKind)
def test_every_kind_is_good_with_a_value_within_its_bounds(kind: RestrictionKind) -> None:
    spec = KINDS[kind]
    on = {"link_share": "link s1/wan", "local_only": "site s1"}.get(kind, "site s1")
    value = (600.0 if spec.most > 1000 else 1.0) if spec.takes_value else None
    check(make_wanted(on, kind=kind, value=value), FLEET, now=NOW)


def test_a_scope_that_the_kind_cannot_have_is_refused_with_those_it_can() -> None:
    error = refusal("link s1/wan")
    assert error.field == "scope.kind"
    assert "power_cap_w cannot be on a link" in str(error)
    assert "rack" in error.hint


def test_a_scope_that_is_not_in_the_inventory_is_named() -> None:
    error = refusal("rack s1/Z99")
    assert (error.field, str(error)) == ("scope.name", "there is no rack 's1/Z99'")


def test_a_storage_endpoint_that_is_not_in_the_inventory_is_named() -> None:
    kind = RestrictionKind.NO_NEW_LAUNCHES
    check(make_wanted("storage s1/nvme", kind=kind, value=None), FLEET, now=NOW)
    assert refusal("storage s1/tape", kind=kind, value=None).field == "scope.name"


def test_jobs_and_classes_are_not_looked_up() -> None:
    wanted = make_wanted("job llama-7", kind=RestrictionKind.HOLD_FOR_REVIEW, value=None)
    check(wanted, FLEET, now=NOW)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), -1.0, 0.0, 2e5])
def test_a_value_out_of_bounds_is_refused_with_the_bounds(value: float | None) -> None:
    error = refusal(value=value)
    assert error.field == "value"
    assert error.hint == "give W from 1 to 100000"


def test_a_kind_without_a_value_takes_none() -> None:
    assert refusal(kind=RestrictionKind.DRAIN, value=1.0).hint == "leave it out"


def test_jobs_are_counted_whole() -> None:
    kind = RestrictionKind.MAX_CONCURRENT_JOBS
    assert refusal(kind=kind, value=1.5).hint == "give a whole number"
    check(make_wanted(kind=kind, value=0.0), FLEET, now=NOW)


def test_a_power_cap_below_the_models_floor_is_refused_with_the_way_out() -> None:
    error = refusal(value=199.0)
    assert error.field == "value"
    assert str(error) == "199 W is below what a H100 can be brought to"
    assert error.hint == "give at least 200 W, or drain the place instead"
    check(make_wanted(value=200.0), FLEET, now=NOW)


def test_a_clock_cap_has_a_floor_too() -> None:
    kind = RestrictionKind.CLOCK_CAP_MHZ
    assert "198 MHz" in refusal(kind=kind, value=197.0).hint


@pytest.mark.parametrize("seconds", [-1.0, 0.0, LONGEST.total_seconds() + 1.0])
def test_it_has_to_end_within_bounds(seconds: float) -> None:
    assert refusal(expires_at=NOW + timedelta(seconds=seconds)).field == "expires_at"


@pytest.mark.parametrize("field", ["reason", "owner", "cause"])
def test_texts_are_neither_empty_nor_endless(field: str) -> None:
    assert refusal(**{field: ""}).field == field
    assert refusal(**{field: "x" * 501}).field == field


def test_the_gpus_of_a_scope() -> None:
    assert gpus_in(FLEET, scope("site s1")).sum() == 4 * 2 * 8
    assert gpus_in(FLEET, scope("gpu s1-A01-n2/7")).nonzero()[0].tolist() == [15]


BUDGET = RestrictionKind.POWER_BUDGET_W


def test_a_budget_may_be_announced_and_nothing_else_may() -> None:
    later = NOW + timedelta(seconds=20)
    check(make_wanted("site s1", kind=BUDGET, value=5e4, starts_at=later), FLEET, now=NOW)
    error = refusal(starts_at=later)
    assert (error.field, error.hint) == ("starts_at", "leave it out: it is for power_budget_w")


def test_what_is_announced_has_to_begin_before_it_ends() -> None:
    later = NOW + timedelta(seconds=60)
    assert refusal(kind=BUDGET, value=5e4, starts_at=later, expires_at=later).field == "starts_at"


def test_a_node_has_no_budget_of_its_own() -> None:
    assert refusal("node s1-A01-n2", kind=BUDGET, value=5e3).field == "scope.kind"
