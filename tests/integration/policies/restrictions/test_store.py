from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import DatabaseError, IntegrityError, transaction
from pytest_django import DjangoAssertNumQueries

from policies.restrictions import store
from policies.restrictions.models import Restriction, RestrictionEvent, RestrictionGeneration
from tests.builders.fleet import SmallFleet
from tests.integration.policies.restrictions.conftest import DRAIN, make_wanted, now

pytestmark = pytest.mark.django_db
State = Restriction.State


def hold(*wanted: Any, at: Any = None) -> list[Restriction]:
    return store.apply(wanted, now=at or now())


def ledger(row: Restriction) -> list[str]:
    return [event.kind for event in row.events.all()]


def again(row: Restriction) -> Restriction:
    return Restriction.objects.get(pk=row.pk)


def test_what_is_held_is_in_force_and_its_lease_is_renewed(fleet: SmallFleet) -> None:
    (row,) = hold(make_wanted())
    (same,) = hold(make_wanted(for_s=120))
    assert (same.pk, again(row).state, again(row).version) == (row.pk, State.IN_FORCE, 1)
    assert again(row).expires_at > row.expires_at
    assert ledger(row) == ["issued", "in_force"]
    (restriction,) = store.in_force(now()).restrictions
    assert (restriction.id, restriction.value) == (row.pk, 560.0)


def test_a_lease_that_is_renewed_late_is_not_made_shorter(fleet: SmallFleet) -> None:
    (row,) = hold(make_wanted(for_s=120))
    (same,) = hold(make_wanted(for_s=60))
    assert again(row).expires_at == same.expires_at == row.expires_at


def test_rows_come_in_the_order_in_which_they_were_wanted(fleet: SmallFleet) -> None:
    wanted = [make_wanted(f"node {name}") for name in list(fleet.nodes)[:3]]
    hold(wanted[1])
    assert [str(row.scope) for row in hold(*wanted)] == [str(each.scope) for each in wanted]


def test_two_causes_are_two_restrictions(fleet: SmallFleet) -> None:
    one, other = hold(make_wanted(), make_wanted(cause="another"))
    assert one.pk != other.pk
    assert store.release("rule:rack-power", now=now(), by="system", why="", cause="another") == 1
    assert [each.id for each in store.in_force(now()).restrictions] == [one.pk]


def test_what_cannot_be_does_not_keep_the_others_from_it(fleet: SmallFleet) -> None:
    (row,) = hold(make_wanted("rack oslo/Z99"), make_wanted(), make_wanted(value=1.0, cause="x"))
    assert row.scope_name == "oslo/A01"


def test_no_evidence_keeps_an_effect_from_being(fleet: SmallFleet) -> None:
    evidence = {
        "slope": float("nan"),
        "exhausted_in_s": float("inf"),
        "share": np.float64(0.5),
        "at": now(),
        "names": ("a\x00", 1, None, True),
        "nested": {1: {"x": -float("inf")}},
    }
    (row,) = hold(make_wanted(evidence=evidence))
    kept = again(row).evidence
    assert (kept["slope"], kept["exhausted_in_s"], kept["share"]) == (None, "Infinity", 0.5)
    assert (kept["names"], kept["nested"]) == (["a", 1, None, True], {"1": {"x": "-Infinity"}})


def test_a_looser_value_and_a_stricter_one_are_taken_over(fleet: SmallFleet) -> None:
    (row,) = hold(make_wanted(value=600.0))
    hold(make_wanted(value=560.0, reason="further over"))
    assert (again(row).value, again(row).reason, again(row).cycle) == (560.0, "further over", 2)
    hold(make_wanted(value=650.0))
    assert (again(row).value, again(row).version) == (650.0, 3)
    assert ledger(row) == ["issued", "in_force", "changed", "changed"]


def test_what_its_owner_releases_has_no_effect(fleet: SmallFleet) -> None:
    (row,) = hold(make_wanted())
    hold(make_wanted("rack oslo/A02", owner="rule:other", value=700.0))
    assert store.release("rule:rack-power", now=now(), by="system", why="cleared") == 1
    assert store.release("rule:rack-power", now=now(), by="system", why="cleared") == 0
    row = again(row)
    assert (row.state, row.ended_by, row.ended_why) == (State.RELEASED, "system", "cleared")
    assert [each.owner for each in store.in_force(now()).restrictions] == ["rule:other"]


def test_a_lease_ends_by_the_clock_without_any_sweep(fleet: SmallFleet) -> None:
    (row,) = hold(make_wanted(for_s=60))
    later = row.expires_at
    assert store.in_force(later - timedelta(milliseconds=1)).restrictions
    assert not store.in_force(later).restrictions
    assert again(row).state == State.IN_FORCE
    assert store.expire(later) == 1
    assert store.expire(later) == 0
    assert (again(row).state, again(row).ended_at) == (State.EXPIRED, row.expires_at)
    assert ledger(row)[-1] == "expired"


def test_what_is_wanted_again_after_its_end_is_a_new_one(fleet: SmallFleet) -> None:
    (row,) = hold(make_wanted(for_s=60))
    later = row.expires_at + timedelta(seconds=1)
    (new,) = hold(make_wanted(at=later), at=later)
    assert new.pk != row.pk
    assert again(row).state == State.EXPIRED


# --- Breakers -------------------------------------------------------------------------------------


def test_what_policies_may_not_take_without_a_person_is_held(fleet: SmallFleet) -> None:
    first, second = hold(
        make_wanted(kind=DRAIN, value=None), make_wanted("rack oslo/A02", kind=DRAIN, value=None)
    )
    assert (first.state, second.state) == (State.IN_FORCE, State.PENDING_APPROVAL)
    assert second.pending_why == (
        "policies would take 40 % of site oslo, and without a person they may take 20 %"
    )
    assert [each.id for each in store.in_force(now()).restrictions] == [first.pk]
    assert ledger(second) == ["issued", "pending_approval"]


def test_what_is_held_does_not_fill_the_ledger(fleet: SmallFleet) -> None:
    wanted = make_wanted("site oslo", kind=DRAIN, value=None)
    for _ in range(3):
        (row,) = hold(wanted)
    assert (ledger(row), again(row).version) == (["issued", "pending_approval"], 1)


def test_figures_that_change_are_no_news(fleet: SmallFleet) -> None:
    wanted = make_wanted("site oslo", kind=DRAIN, value=None)
    (row,) = hold(wanted)
    hold(make_wanted("rack oslo/A01", owner="rule:other", kind=DRAIN, value=None))
    hold(wanted)
    assert (ledger(row), again(row).version) == (["issued", "pending_approval"], 1)


def test_what_is_held_comes_in_when_there_is_room(fleet: SmallFleet) -> None:
    wanted = [make_wanted(f"rack oslo/A0{i}", kind=DRAIN, value=None) for i in (1, 2)]
    _, held = hold(*wanted)
    store.release("rule:rack-power", now=now(), by="system", why="", cause="rack oslo/A01")
    (row,) = hold(wanted[1])
    assert (row.pk, again(row).state, again(row).pending_why) == (held.pk, State.IN_FORCE, "")


def test_people_and_their_agreement_to_a_policy_are_not_held_up(fleet: SmallFleet) -> None:
    wanted = make_wanted("site oslo", kind=DRAIN, value=None)
    by_person = make_wanted("site oslo", kind=DRAIN, value=None, owner="user:ada")
    agreed = make_wanted("site bergen", kind=DRAIN, value=None, most_of_site=1.0)
    assert [row.state for row in hold(wanted, by_person, agreed)] == [
        State.PENDING_APPROVAL,
        State.IN_FORCE,
        State.IN_FORCE,
    ]


def test_a_stricter_value_that_would_take_too_much_waits_beside_the_old_one(
    fleet: SmallFleet,
) -> None:
    (row,) = hold(make_wanted("site oslo", value=600.0))
    hold(make_wanted("site oslo", value=400.0))
    hold(make_wanted("site oslo", value=400.0))
    row = again(row)
    assert (row.state, row.value, row.pending_value) == (State.IN_FORCE, 600.0, 400.0)
    assert ledger(row) == ["issued", "in_force", "pending_approval"]
    assert store.in_force(now()).restrictions[0].value == 600.0
    hold(make_wanted("site oslo", value=600.0))
    assert (again(row).pending_value, again(row).pending_why) == (None, "")


# --- What the database sees to --------------------------------------------------------------------


def test_the_generation_changes_with_every_write(fleet: SmallFleet) -> None:
    seen = {RestrictionGeneration.current()}
    (row,) = hold(make_wanted())
    seen.add(RestrictionGeneration.current())
    hold(make_wanted(for_s=120))
    seen.add(RestrictionGeneration.current())
    Restriction.objects.filter(pk=row.pk).update(reason="by hand")
    seen.add(RestrictionGeneration.current())
    assert len(seen) == 4


def test_the_ledger_only_grows(fleet: SmallFleet) -> None:
    (row,) = hold(make_wanted())
    with pytest.raises(DatabaseError, match="only grows"), transaction.atomic():
        RestrictionEvent.objects.filter(restriction=row).update(text="otherwise")
    with pytest.raises(DatabaseError, match="only grows"), transaction.atomic():
        RestrictionEvent.objects.filter(restriction=row).delete()


def test_no_second_one_of_a_cause_can_be_live(fleet: SmallFleet) -> None:
    (row,) = hold(make_wanted())
    row.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)


def test_renewing_many_takes_as_few_queries_as_renewing_one(
    fleet: SmallFleet, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    on = [f"node {name}" for name in fleet.nodes]
    hold(*(make_wanted(each, value=690.0) for each in on))
    assert len(on) == 20
    with django_assert_max_num_queries(9):
        hold(*(make_wanted(each, value=690.0, for_s=120) for each in on))
