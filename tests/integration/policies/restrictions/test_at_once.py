"""Several who write at once, each over a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection

from accounts.models import User
from accounts.roles import Role
from policies.restrictions import actions, store
from policies.restrictions.models import Restriction
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.integration.policies.restrictions.conftest import DRAIN, make_wanted, now

pytestmark = pytest.mark.django_db(transaction=True)
State = Restriction.State


def at_once(*calls: Callable[[], object]) -> list[Exception | None]:
    """Run ``calls`` in threads that start together; return what each of them raised."""
    barrier = threading.Barrier(len(calls))
    raised: list[Exception | None] = [None] * len(calls)

    def run(place: int, call: Callable[[], object]) -> None:
        try:
            barrier.wait(60.0)
            call()
        except Exception as exc:
            raised[place] = exc
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    return raised


def test_one_cause_that_is_held_by_several_is_one_restriction(fleet: SmallFleet) -> None:
    wanted = make_wanted()
    assert at_once(*[lambda: store.apply([wanted], now=now())] * 6) == [None] * 6
    row = Restriction.objects.get()
    assert (row.state, row.version, row.events.count()) == (State.IN_FORCE, 1, 2)


def test_of_people_who_add_and_lift_at_once_nobody_is_lost(fleet: SmallFleet) -> None:
    ada, bob = make_user(Role.OPERATOR, username="ada"), make_user(Role.OPERATOR, username="bob")
    owner = actions.owner_of(ada)
    old = store.apply([make_wanted(owner=owner, cause=f"old {i}") for i in range(4)], now=now())

    def add(user: User, cause: str) -> Callable[[], object]:
        wanted = make_wanted(owner=actions.owner_of(user), cause=cause)
        return lambda: actions.issue(user, wanted, now=now())

    def lift(row: Restriction) -> Callable[[], object]:
        return lambda: actions.lift(bob, row.pk, why="no longer needed", now=now())

    calls = [add(user, f"new {i}") for i in range(2) for user in (ada, bob)]
    assert at_once(*calls, *map(lift, old)) == [None] * 8
    causes = sorted((row.owner, row.cause) for row in Restriction.objects.in_force(now()))
    assert causes == [(f"user:{name}", f"new {i}") for name in ("ada", "bob") for i in range(2)]


def test_of_two_who_lift_one_is_told_that_the_other_did(fleet: SmallFleet) -> None:
    people = [make_user(Role.RESPONDER, username=name) for name in ("ada", "bob")]
    (row,) = store.apply([make_wanted()], now=now())
    calls = [
        lambda user=user: actions.lift(user, row.pk, why="too cold", now=now()) for user in people
    ]
    raised = [each for each in at_once(*calls) if each is not None]
    assert [type(each) for each in raised] == [actions.Conflict]
    row = Restriction.objects.get()
    assert str(raised[0]) == f"it is refused by {row.ended_by} already"
    assert row.events.filter(kind="lifted").count() == 1


def test_a_lift_and_a_renewal_at_once_leave_it_lifted(fleet: SmallFleet) -> None:
    ada = make_user(Role.RESPONDER, username="ada")
    (row,) = store.apply([make_wanted()], now=now())
    renewed = make_wanted(for_s=120)
    raised = at_once(
        lambda: actions.lift(ada, row.pk, why="too cold", now=now()),
        *[lambda: store.apply([renewed], now=now())] * 3,
    )
    assert raised == [None] * 4
    store.apply([renewed], now=now())
    row = Restriction.objects.get()
    assert (row.state, row.ended_by) == (State.REFUSED, "ada")
    assert row.expires_at == renewed.expires_at
    assert not store.in_force(now()).restrictions


def test_policies_at_once_do_not_take_more_than_one_by_one(fleet: SmallFleet) -> None:
    def drain(number: int) -> Callable[[], object]:
        wanted = make_wanted(
            f"rack oslo/A0{number}", kind=DRAIN, value=None, owner=f"rule:{number}"
        )
        return lambda: store.apply([wanted], now=now())

    assert at_once(*map(drain, range(1, 6))) == [None] * 5
    states = sorted(row.state for row in Restriction.objects.all())
    assert states == [State.IN_FORCE] + [State.PENDING_APPROVAL] * 4


def test_a_sweep_and_a_renewal_at_once_leave_one_live_at_most(fleet: SmallFleet) -> None:
    (row,) = store.apply([make_wanted(for_s=5)], now=now())
    later = row.expires_at + timedelta(seconds=1)
    wanted = make_wanted(at=later)
    calls = [lambda: store.expire(later), lambda: store.apply([wanted], now=later)]
    assert at_once(*calls, *calls) == [None] * 4
    assert sorted(row.state for row in Restriction.objects.all()) == [State.EXPIRED, State.IN_FORCE]
