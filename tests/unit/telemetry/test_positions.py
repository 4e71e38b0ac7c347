"""Exactly-once over any order of arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.positions import MAX_BEYOND, Position, TooFarAhead


def test_batches_in_order_move_the_mark() -> None:
    position = Position()
    assert [position.take(seq, 1) for seq in (1, 2, 3)] == [True] * 3
    assert (position.mark, position.beyond) == (3, set())


def test_a_gap_holds_the_mark_until_it_is_filled() -> None:
    position = Position()
    position.take(1, 1)
    position.take(3, 1)
    assert (position.mark, position.beyond) == (1, {3})
    position.take(2, 1)
    assert (position.mark, position.beyond) == (3, set())


def test_what_the_agent_no_longer_holds_is_not_waited_for() -> None:
    position = Position()
    position.take(5, 1)
    assert position.mark == 0
    position.take(9, 5)
    assert (position.mark, position.beyond) == (5, {9})


def test_a_batch_that_was_given_up_is_not_stored_later() -> None:
    position = Position(mark=0)
    position.take(9, 9)
    assert position.take(4, 1) is False


def test_an_agent_that_never_fills_its_gap_is_stopped() -> None:
    position = Position(beyond=set(range(3, MAX_BEYOND + 3)))
    with pytest.raises(TooFarAhead):
        position.take(MAX_BEYOND + 3, 1)
    assert position.take(1, 1)


@given(st.lists(st.integers(1, 30), max_size=120))
def test_each_batch_is_taken_once_in_any_order(arrivals: list[int]) -> None:
    position = Position()
    taken = [seq for seq in arrivals if position.take(seq, 1)]
    assert sorted(taken) == sorted(set(arrivals))


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=80))
def test_the_mark_never_covers_what_the_agent_still_holds(sends: list[tuple[int, int]]) -> None:
    position = Position()
    stored: set[int] = set()
    given_up = 0
    for a, b in sends:
        seq, oldest = max(a, b), min(a, b)
        if position.take(seq, oldest):
            stored.add(seq)
        given_up = max(given_up, oldest - 1)
        assert all(n in stored or n <= given_up for n in range(1, position.mark + 1))
        assert position.mark + 1 not in position.beyond
