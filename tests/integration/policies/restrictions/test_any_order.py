"""Whatever happens in whatever order: what is in force is what somebody wants now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from accounts.models import User
from accounts.roles import Role
from fleet import snapshot
from policies.leases.book import Line
from policies.restrictions import actions, store
from policies.restrictions.book import Conflict, Lease, RestrictionBook, State
from policies.restrictions.kinds import Wanted
from policies.restrictions.memory import Breaker, MemoryRestrictions
from policies.restrictions.models import Restriction
from policies.restrictions.strictest import ActiveRestriction
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
    """Rules and playbooks that hold and release, people who lift, and a clock.

    What is said of the book here holds of both stores that it writes to.
    """

    book: RestrictionBook[Any]

    def __init__(self) -> None:
        super().__init__()
        self.now = datetime.now(UTC)
        self.expected: dict[tuple[str, str], Expected] = {}
        self.breaker_is_open = False

    def restrictions(self) -> Sequence[ActiveRestriction]:
        """Return what is in force now."""
        raise NotImplementedError

    def last(self, owner: str, cause: str) -> Any:
        """Return the latest restriction of a cause, ended or not; None: there was none."""
        raise NotImplementedError

    def told(self) -> Iterable[tuple[Any, list[str]]]:
        """Return all restrictions, with what their ledgers say."""
        raise NotImplementedError

    def lifts(self, pk: int) -> None:
        self.book.lift(pk, by="ada", why="no", now=self.now)

    def approves(self, pk: int) -> None:
        self.book.approve(pk, by="ada", now=self.now)

    def throws(self, is_open: bool) -> None:
        raise NotImplementedError

    def live(self) -> dict[tuple[str, str], Expected]:
        return {key: each for key, each in self.expected.items() if each.expires_at > self.now}

    def wanted(self, owner: str, cause: str, for_s: float) -> Wanted:
        return make_wanted(cause, owner=owner, at=self.now, for_s=for_s, most_of_site=1.0)

    @rule(owner=owners, cause=causes, for_s=leases)
    def hold(self, owner: str, cause: str, for_s: float) -> None:
        wanted = self.wanted(owner, cause, for_s)
        self.book.apply([wanted], now=self.now)
        known = self.live().get((owner, cause))
        if known is None:
            known = Expected(wanted.expires_at, is_held=self.breaker_is_open)
            self.expected[owner, cause] = known
        known.expires_at = max(known.expires_at, wanted.expires_at)
        known.is_held = known.is_held and self.breaker_is_open

    @rule(owner=owners, cause=causes | st.none())
    def release(self, owner: str, cause: str | None) -> None:
        self.book.release(owner, now=self.now, by="system", why="cleared", cause=cause)
        for key in list(self.expected):
            if key[0] == owner and cause in (None, key[1]):
                del self.expected[key]

    @rule(owner=owners, cause=causes)
    def lift(self, owner: str, cause: str) -> None:
        row = self.last(owner, cause)
        known = self.live().get((owner, cause))
        if row is None:
            return
        if known is None or known.is_refused:
            with pytest.raises((Conflict, LookupError)):
                self.lifts(row.id)
            return
        self.lifts(row.id)
        known.is_refused = True

    @rule(owner=owners, cause=causes)
    def approve(self, owner: str, cause: str) -> None:
        known = self.live().get((owner, cause))
        if known is None or self.breaker_is_open or not (known.is_refused or known.is_held):
            return
        self.approves(self.last(owner, cause).id)
        known.is_refused = known.is_held = False

    @rule(is_open=st.booleans())
    def throw_breaker(self, is_open: bool) -> None:
        self.throws(is_open)
        self.breaker_is_open = is_open

    @rule(owner=owners, kept=st.sets(causes), for_s=leases)
    def keep(self, owner: str, kept: set[str], for_s: float) -> None:
        """Have exactly these causes be held; what is held already is renewed when it is due."""
        wanted = [self.wanted(owner, cause, for_s) for cause in sorted(kept)]
        before = self.live()
        self.book.keep(owner, wanted, now=self.now, by=owner, why="cleared")
        for key in [key for key in self.expected if key[0] == owner and key[1] not in kept]:
            del self.expected[key]
        for each in wanted:
            known = before.get((owner, each.cause))
            if known is None:
                known = Expected(each.expires_at, is_held=self.breaker_is_open)
                self.expected[owner, each.cause] = known
            elif known.expires_at - self.now < 0.5 * (each.expires_at - self.now):
                known.expires_at = each.expires_at
                known.is_held = known.is_held and self.breaker_is_open

    @rule(seconds=st.sampled_from([1.0, 10.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def sweep(self) -> None:
        self.book.expire(self.now)

    @invariant()
    def what_is_in_force_is_what_is_wanted(self) -> None:
        expected = {
            key for key, each in self.live().items() if not (each.is_refused or each.is_held)
        }
        restrictions = self.restrictions()
        assert {(each.owner, each.cause) for each in restrictions} == expected
        assert len(restrictions) == len(expected)

    @invariant()
    def the_ledger_tells_how_each_stands(self) -> None:
        for row, told in self.told():
            if row.state != State.PENDING_APPROVAL:
                last = [kind for kind in told if kind != "pending_approval"][-1]
                assert last in TOLD[row.state], (row, last)


class InPostgres(Restrictions):
    """With people's names in the audit log, and deaths of the process."""

    person: User

    def __init__(self) -> None:
        super().__init__()
        # Nothing of one run is to be seen by the next.
        self.rollback = transaction.atomic()
        self.rollback.__enter__()
        self.book = store.book()

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.rollback.__exit__(None, None, None)

    def restrictions(self) -> Sequence[ActiveRestriction]:
        return store.in_force(self.now).restrictions

    def last(self, owner: str, cause: str) -> Restriction | None:
        return Restriction.objects.filter(owner=owner, cause=cause).order_by("-id").first()

    def told(self) -> Iterable[tuple[Restriction, list[str]]]:
        for row in Restriction.objects.all():
            yield row, [event.kind for event in row.events.all()]

    def lifts(self, pk: int) -> None:
        actions.lift(self.person, pk, why="no", now=self.now)

    def approves(self, pk: int) -> None:
        actions.approve(self.person, pk, now=self.now)

    def throws(self, is_open: bool) -> None:
        actions.throw_breaker(self.person, is_open=is_open, reason="test", now=self.now)

    @rule(owner=owners, cause=causes, for_s=leases, releases=st.booleans())
    def is_killed(self, owner: str, cause: str, for_s: float, releases: bool) -> None:
        """Die after a write and before the commit."""
        with contextlib.suppress(Killed), transaction.atomic():
            if releases:
                self.book.release(owner, now=self.now, by="system", why="cleared")
            else:
                self.book.apply([self.wanted(owner, cause, for_s)], now=self.now)
            raise Killed


class InMemory(Restrictions):
    """As a world of the twin keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Lease] = []
        self.lines: dict[int, list[str]] = {}
        self.leases = MemoryRestrictions(self.tell)
        self.book = RestrictionBook(self.leases, snapshot.current, max_site_share=0.2)

    def tell(self, line: Line[Lease]) -> None:
        if line.row.id not in self.lines:
            self.rows.append(line.row)
        self.lines.setdefault(line.row.id, []).append(str(line.kind))

    def restrictions(self) -> Sequence[ActiveRestriction]:
        return self.leases.in_force(self.now).restrictions

    def last(self, owner: str, cause: str) -> Lease | None:
        found = [row for row in self.rows if (row.owner, row.cause) == (owner, cause)]
        return found[-1] if found else None

    def told(self) -> Iterable[tuple[Lease, list[str]]]:
        return [(row, self.lines[row.id]) for row in self.rows]

    def throws(self, is_open: bool) -> None:
        self.leases.thrown = Breaker(is_open, "ada", "test")


TOLD = {
    "in_force": {"in_force", "approved"},
    "refused": {"lifted", "refused"},
    "released": {"released"},
    "expired": {"expired"},
}


def run(machine: type[Restrictions], examples: int, steps: int) -> None:
    InPostgres.person = make_user(Role.OPERATOR, username="ada")
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("machine", [InPostgres, InMemory])
def test_any_order(machine: type[Restrictions], fleet: SmallFleet) -> None:
    run(machine, examples=15, steps=25)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [InPostgres, InMemory])
def test_any_order_for_long(machine: type[Restrictions], fleet: SmallFleet) -> None:
    run(machine, examples=100, steps=40)
