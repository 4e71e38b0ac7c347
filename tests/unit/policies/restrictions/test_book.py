"""The book of restrictions over memory: what a world of the twin judges is what the server does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from policies.leases.book import is_due
from policies.restrictions.book import Conflict, Lease, RestrictionBook, State
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.memory import Breaker, MemoryRestrictions
from tests.builders.arrays import make_arrays
from tests.unit.policies.restrictions.builders import NOW, make_wanted

#: Five racks at each of two sites, so that a rack is a fifth of its site.
FLEET = make_arrays(sites=2, racks=5)
DRAIN = RestrictionKind.DRAIN
SECOND = timedelta(seconds=1)


@pytest.fixture
def book() -> RestrictionBook[Lease]:
    return RestrictionBook(MemoryRestrictions(), lambda: FLEET, max_site_share=0.2)


def hold(book: RestrictionBook[Lease], *wanted: Wanted) -> list[Lease]:
    return book.apply(wanted, now=NOW)


def drain(rack: str) -> Wanted:
    return make_wanted(f"rack s1/{rack}", kind=DRAIN, value=None)


def test_a_looser_value_is_taken_over_at_once_even_behind_an_open_breaker(
    book: RestrictionBook[Lease],
) -> None:
    (cap,) = hold(book, make_wanted(value=300.0, most_of_site=1.0))
    assert isinstance(book.store, MemoryRestrictions)
    book.store.thrown = Breaker(True, "ada", "storm")
    (same,) = hold(book, make_wanted(value=500.0))
    assert same is cap
    assert (cap.state, cap.value, cap.pending_why) == (State.IN_FORCE, 500.0, "")


def test_a_stricter_value_waits_beside_the_one_in_force(book: RestrictionBook[Lease]) -> None:
    (cap,) = hold(book, make_wanted("site s1", value=600.0))
    hold(book, make_wanted("site s1", value=300.0))
    assert (cap.state, cap.value, cap.pending_value) == (State.IN_FORCE, 600.0, 300.0)
    book.refuse(cap.id, by="ada", why="too much", now=NOW)
    hold(book, make_wanted("site s1", value=300.0))
    assert (cap.value, cap.pending_value) == (600.0, None)


def test_who_approved_one_value_did_not_approve_a_stricter_one(
    book: RestrictionBook[Lease],
) -> None:
    (cap,) = hold(book, make_wanted("site s1", value=400.0))
    book.approve(cap.id, by="ada", now=NOW)
    assert (cap.state, cap.decided_by) == (State.IN_FORCE, "ada")
    hold(book, make_wanted("site s1", value=300.0))
    assert (cap.value, cap.pending_value) == (400.0, 300.0)
    hold(book, make_wanted("site s1", value=300.0, most_of_site=1.0))
    assert (cap.value, cap.decided_by) == (300.0, "")


def test_nothing_is_added_while_the_fleet_breaker_is_open(book: RestrictionBook[Lease]) -> None:
    assert isinstance(book.store, MemoryRestrictions)
    book.store.thrown = Breaker(True, "ada", "storm")
    (row,) = hold(book, make_wanted())
    assert (row.state, row.pending_why) == (
        State.PENDING_APPROVAL,
        "the fleet breaker is open: ada opened it",
    )
    with pytest.raises(Conflict, match="has opened the fleet breaker"):
        book.approve(row.id, by="bob", now=NOW)


def test_what_takes_the_place_of_another_finds_its_share_free(
    book: RestrictionBook[Lease],
) -> None:
    book.keep("rule:", [drain("A01")], now=NOW, by="system", why="over")
    (row,) = book.keep("rule:", [drain("A02")], now=NOW, by="system", why="over")
    assert (row.scope_name, row.state) == ("s1/A02", State.IN_FORCE)
    assert isinstance(book.store, MemoryRestrictions)
    assert len(book.store) == 1


def test_what_is_in_force_ends_by_the_clock_without_a_sweep(book: RestrictionBook[Lease]) -> None:
    (row,) = hold(book, make_wanted())
    assert isinstance(book.store, MemoryRestrictions)
    before = book.store.in_force(NOW)
    assert book.store.in_force(row.expires_at - SECOND) is before
    assert book.store.in_force(row.expires_at).restrictions == ()


def test_a_lease_is_due_when_less_than_half_of_it_is_left() -> None:
    wanted = (500.0, NOW + timedelta(seconds=60))
    assert is_due(None, wanted, NOW)
    assert is_due((400.0, NOW + timedelta(seconds=60)), wanted, NOW)
    assert is_due((500.0, NOW + timedelta(seconds=29)), wanted, NOW)
    assert not is_due((500.0, NOW + timedelta(seconds=30)), wanted, NOW)
