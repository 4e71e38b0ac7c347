from __future__ import annotations

from headroom.agent.actuation.leases import LeaseBook
from headroom.contracts import Limit, LimitSet, LimitState
from tests.unit.headroom.actuation.builders import NODE, make_limit


def ids(limits: list[Limit]) -> list[str]:
    return [limit.id for limit in limits]


def answer(*limits: Limit, now: float, valid_for_s: float = 60) -> LimitSet:
    return LimitSet(limits=list(limits), now=now, valid_for_s=valid_for_s)


def test_a_lease_ends_by_the_servers_clock_however_wrong_ours_is() -> None:
    leases = LeaseBook(NODE)
    # Our monotonic clock says 100, the server's 1,000,000: the lease has 30 s left.
    leases.take(answer(make_limit(expires_at=1_000_030), now=1_000_000), sent_at=99, got_at=101)
    assert ids(leases.in_force(129.9)) == ["l1"]
    assert ids(leases.in_force(130.0)) == []
    assert leases.why_ended("l1") is LimitState.EXPIRED


def test_an_answer_that_is_too_old_holds_nothing_any_more() -> None:
    leases = LeaseBook(NODE)
    leases.take(answer(make_limit(), now=0, valid_for_s=20), sent_at=100, got_at=103)
    assert ids(leases.in_force(119.9)) == ["l1"]
    assert ids(leases.in_force(120.0)) == []
    assert leases.why_ended("l1") is LimitState.EXPIRED


def test_each_answer_replaces_the_one_before() -> None:
    leases = LeaseBook(NODE)
    leases.take(answer(make_limit("a"), make_limit("b"), now=0), sent_at=0, got_at=0)
    leases.take(answer(make_limit("b"), now=10), sent_at=10, got_at=10)
    assert ids(leases.in_force(11)) == ["b"]
    assert leases.why_ended("a") is LimitState.RESTORED


def test_a_limit_that_the_server_leaves_out_at_its_end_has_expired() -> None:
    leases = LeaseBook(NODE)
    leases.take(answer(make_limit(expires_at=30), now=0), sent_at=0, got_at=0)
    leases.take(answer(now=29), sent_at=29, got_at=29)
    assert leases.why_ended("l1") is LimitState.EXPIRED


def test_limits_of_other_nodes_are_not_ours() -> None:
    leases = LeaseBook(NODE)
    leases.take(answer(make_limit(node="n2"), now=0), sent_at=0, got_at=0)
    assert leases.in_force(1) == []


def test_a_limit_that_was_drawn_out_stays_in_force() -> None:
    leases = LeaseBook(NODE)
    leases.take(answer(make_limit(expires_at=30), now=0), sent_at=0, got_at=0)
    leases.take(answer(make_limit(expires_at=90), now=20), sent_at=20, got_at=20)
    assert ids(leases.in_force(60)) == ["l1"]


def test_after_the_end_no_answer_counts() -> None:
    leases = LeaseBook(NODE)
    leases.take(answer(make_limit(), now=0), sent_at=0, got_at=0)
    leases.close(1)
    leases.take(answer(make_limit(), now=2), sent_at=2, got_at=2)
    assert leases.in_force(3) == []
    assert leases.why_ended("l1") is LimitState.RESTORED
