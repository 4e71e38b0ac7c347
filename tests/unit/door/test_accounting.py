"""Who may open one more request, how much is held, how slowly a body may come."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.door.accounting import Bound, Budget, Pace, TooMany, TooMuch


def test_one_key_may_have_so_many_open_and_another_has_its_own() -> None:
    bound = Bound(2, 100)
    with bound.one("a"), bound.one("a"):
        with pytest.raises(TooMany) as refused, bound.one("a"):
            pytest.fail("a third was let in")
        assert not refused.value.in_all
        with bound.one("b"):
            assert bound.open == 3
    assert bound.open == 0


def test_all_together_may_have_so_many_open() -> None:
    bound = Bound(2, 2)
    with bound.one("a"), bound.one("b"), pytest.raises(TooMany) as refused, bound.one("c"):
        pytest.fail("a third was let in")
    assert refused.value.in_all


def test_who_fails_is_counted_no_longer() -> None:
    bound = Bound(1, 1)
    for _ in range(3):
        with pytest.raises(KeyError), bound.one("a"):
            raise KeyError
    assert bound.of("a") == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_no_order_of_coming_and_going_breaks_a_bound(turns: list[tuple[str, bool]]) -> None:
    bound = Bound(2, 4)
    inside: list[tuple[str, ExitStack]] = []
    for key, comes in turns:
        if comes:
            stack = ExitStack()
            held = Counter(each for each, _ in inside)
            try:
                stack.enter_context(bound.one(key))
            except TooMany:
                assert held[key] == 2 or len(inside) == 4
            else:
                inside.append((key, stack))
        elif inside:
            inside.pop()[1].close()
        held = Counter(each for each, _ in inside)
        assert bound.open == len(inside) <= 4
        assert all(bound.of(each) == held[each] <= 2 for each in "abc")
    for _, stack in inside:
        stack.close()
    assert bound.open == 0
    assert not bound._open


@given(st.lists(st.lists(st.integers(0, 50), max_size=5), max_size=5))
def test_no_body_makes_the_budget_overflow_and_all_is_given_back(
    bodies: list[list[int]],
) -> None:
    budget = Budget(100)
    with ExitStack() as stack:
        for pieces in bodies:
            share = stack.enter_context(budget.share())
            for size in pieces:
                before = budget.held_bytes
                try:
                    share.grow(size)
                except TooMuch:
                    assert before + size > 100
                    assert budget.held_bytes == before
            assert budget.held_bytes <= 100
    assert budget.held_bytes == 0


PACE = Pace(grace_s=5, least_bytes_per_s=1000, longest_s=60)


@pytest.mark.parametrize(
    ("received", "allowed_s"), [(0, 5), (1, 5.001), (10_000, 15), (54_999, 59.999), (10**9, 60)]
)
def test_a_body_has_its_grace_and_then_a_least_rate(received: int, allowed_s: float) -> None:
    assert PACE.allowed_s(received) == pytest.approx(allowed_s)


@given(st.floats(1, 100_000))
def test_who_keeps_the_least_rate_is_late_only_at_the_end(bytes_per_s: float) -> None:
    """At each moment before the end whoever is as fast as asked has time left, nobody else has."""
    late = [second for second in range(1, 60) if second > PACE.allowed_s(int(bytes_per_s * second))]
    if bytes_per_s >= 1000:
        assert late == []
    if bytes_per_s < 900:
        assert late
