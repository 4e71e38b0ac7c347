"""Whatever happens in whatever order: what is in force is what somebody wants now."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from accounts.models import User
from accounts.roles import Role
from policies.restrictions import actions, store
from policies.restrictions.kinds import Wanted
from policies.restrictions.models import Restriction
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.integration.policies.restrictions.conftest import make_wanted

pytestmark = pytest.mark.django_db

OWNERS = ("rule:a", "rule:b", "playbook:7/cap")
CAUSES = ("rack oslo/A01", "rack oslo/A02")
owners, causes = st.sampled_from(OWNERS), st.sampled_from(CAUSES)
#: Longer and shorter than a step of the clock.
leases = st.sampled_from([5.0, 30.0, 90.0])


class Killed(Exception):
    """The process ends here."""


@dataclass
class Expected:
    """What should be of one cause."""

    expires_at: datetime
    is_refused: bool = False
    is_held: bool = False


class Restrictions(RuleBasedStateMachine):
    """Rules and playbooks that hold and release, people who lift, a clock, and deaths."""

    person: User

    def __init__(self) -> None:
        super().__init__()
        # Nothing of one run is to be seen by the next.
        self.rollback = transaction.atomic()
        self.rollback.__enter__()
        self.now = datetime.now(UTC)
        self.expected: dict[tuple[str, str], Expected] = {}
        self.breaker_is_open = False

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.rollback.__exit__(None, None, None)

    def live(self) -> dict[tuple[str, str], Expected]:
        return {key: each for key, each in self.expected.items() if each.expires_at > self.now}

    def wanted(self, owner: str, cause: str, for_s: float) -> Wanted:
        return make_wanted(cause, owner=owner, at=self.now, for_s=for_s, most_of_site=1.0)

    @rule(owner=owners, cause=causes, for_s=leases)
    def hold(self, owner: str, cause: str, for_s: float) -> None:
        wanted = self.wanted(owner, cause, for_s)
        store.hold([wanted], now=self.now)
        known = self.live().get((owner, cause))
        if known is None:
            known = Expected(wanted.expires_at, is_held=self.breaker_is_open)
            self.expected[owner, cause] = known
        known.expires_at = max(known.expires_at, wanted.expires_at)
        known.is_held = known.is_held and self.breaker_is_open

    @rule(owner=owners, cause=causes | st.none())
    def release(self, owner: str, cause: str | None) -> None:
        store.release(owner, now=self.now, by="system", why="cleared", cause=cause)
        for key in list(self.expected):
            if key[0] == owner and cause in (None, key[1]):
                del self.expected[key]

    @rule(owner=owners, cause=causes)
    def lift(self, owner: str, cause: str) -> None:
        row = Restriction.objects.filter(owner=owner, cause=cause).order_by("-id").first()
        known = self.live().get((owner, cause))
        if row is None:
            return
        if known is None or known.is_refused:
            with pytest.raises(actions.Conflict):
                actions.lift(self.person, row.pk, why="no", now=self.now)
            return
        actions.lift(self.person, row.pk, why="no", now=self.now)
        known.is_refused = True

    @rule(owner=owners, cause=causes)
    def approve(self, owner: str, cause: str) -> None:
        known = self.live().get((owner, cause))
        if known is None or self.breaker_is_open or not (known.is_refused or known.is_held):
            return
        row = Restriction.objects.filter(owner=owner, cause=cause).latest("id")
        actions.approve(self.person, row.pk, now=self.now)
        known.is_refused = known.is_held = False

    @rule(is_open=st.booleans())
    def throw_breaker(self, is_open: bool) -> None:
        actions.throw_breaker(self.person, is_open=is_open, reason="test", now=self.now)
        self.breaker_is_open = is_open

    @rule(owner=owners, cause=causes, for_s=leases, releases=st.booleans())
    def is_killed(self, owner: str, cause: str, for_s: float, releases: bool) -> None:
        """Die after a write and before the commit."""
        with contextlib.suppress(Killed), transaction.atomic():
            if releases:
                store.release(owner, now=self.now, by="system", why="cleared")
            else:
                store.hold([self.wanted(owner, cause, for_s)], now=self.now)
            raise Killed

    @rule(seconds=st.sampled_from([1.0, 10.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def sweep(self) -> None:
        store.expire(self.now)

    @invariant()
    def what_is_in_force_is_what_is_wanted(self) -> None:
        expected = {
            key for key, each in self.live().items() if not (each.is_refused or each.is_held)
        }
        standing = store.in_force(self.now).standing
        assert {(each.owner, each.cause) for each in standing} == expected
        assert len(standing) == len(expected)

    @invariant()
    def the_ledger_tells_how_each_stands(self) -> None:
        for row in Restriction.objects.exclude(state=Restriction.State.HELD):
            last = [event.kind for event in row.events.all() if event.kind != "held"][-1]
            assert last in TOLD[row.state], (row, last)


TOLD = {
    "in_force": {"in_force", "approved"},
    "refused": {"lifted", "refused"},
    "released": {"released"},
    "expired": {"expired"},
}


def test_any_order(fleet: SmallFleet) -> None:
    Restrictions.person = make_user(Role.OPERATOR, username="ada")
    run_state_machine_as_test(
        Restrictions,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
def test_any_order_for_long(fleet: SmallFleet) -> None:
    Restrictions.person = make_user(Role.OPERATOR, username="ada")
    run_state_machine_as_test(
        Restrictions,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
