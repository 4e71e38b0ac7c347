"""What restrictions took at each moment of the past is what they took then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from accounts.models import User
from fleet import snapshot
from policies import current, past_limits
from policies.headroom.inputs import Limits
from policies.limiting import limits_over
from policies.restrictions import actions, store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from telemetry import stream
from tests.builders.accounts import make_user
from tests.builders.fleet import small_fleet

pytestmark = pytest.mark.django_db

START = datetime(2026, 5, 1, tzinfo=UTC)
CAP, SHARE = RestrictionKind.POWER_CAP_W, RestrictionKind.LINK_SHARE


@pytest.fixture(autouse=True)
def fleet(db: None) -> Iterator[None]:
    stream.connection().flushall()
    snapshot.invalidate()
    small_fleet(sites=("oslo",))
    yield
    snapshot.invalidate()


@pytest.fixture
def user() -> User:
    return make_user()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def hold(seconds: float, value: float, *, on: str = "rack oslo/A01", **given: Any) -> int:
    kind, _, name = on.partition(" ")
    wanted = Wanted(
        **{
            "kind": SHARE if kind == "link" else CAP,
            "scope": Scope(ScopeKind(kind), name),
            "value": value,
            "reason": "it is hot",
            "owner": "user:ada",
            "cause": on,
            "expires_at": at(seconds + 100.0),
            **given,
        }
    )
    return store.apply([wanted], now=at(seconds))[0].pk


def test_each_moment_has_the_limits_that_it_had(user: User) -> None:
    seen: dict[float, Limits] = {}

    def look(seconds: float) -> None:
        seen[seconds] = current.limits(at(seconds).timestamp())

    look(0)
    pk = hold(10, 600.0)
    look(10)
    look(15)
    hold(20, 500.0)  # stricter
    look(20)
    hold(30, 0.5, on="link oslo/A02/uplink")
    hold(30, 650.0, on="site oslo")
    look(30)
    actions.lift(user, pk, why="it cooled", now=at(40))
    look(40)
    # A policy that takes more than it may waits for a person, and has no effect till then.
    rule = hold(50, 300.0, on="node oslo-b01-n1", owner="rule:x", most_of_site=0.0)
    look(50)
    actions.approve(user, rule, now=at(60))
    look(60)
    hold(70, 400.0, on="node oslo-b01-n1", owner="rule:x", most_of_site=0.0)  # looser
    look(70)
    store.release("user:ada", cause="site oslo", now=at(80), by="ada", why="over")
    look(80)
    look(140)  # the link's lease has run out, and no sweep has passed
    store.expire(at(200))
    look(210)

    moments = np.array([at(seconds).timestamp() for seconds in seen])
    arrays = snapshot.current()
    found = limits_over(past_limits.terms(moments[0], moments[-1]), arrays, moments)
    for place, then in enumerate(seen.values()):
        np.testing.assert_array_equal(found.gpu_cap_w[place], then.gpu_cap_w)
        np.testing.assert_array_equal(found.link_share[place], then.link_share)
    assert len(np.unique(found.gpu_cap_w.sum(axis=1))) > 1


def test_what_was_over_before_a_span_is_not_of_it() -> None:
    hold(10, 600.0)
    store.expire(at(200))
    assert past_limits.terms(at(150).timestamp(), at(300).timestamp()) == []
    arrays = snapshot.current()
    none = limits_over([], arrays, np.array([at(150).timestamp()]))
    assert np.isinf(none.gpu_cap_w).all()


def test_a_budget_counts_from_a_little_before_it_has_to_be_met(user: User) -> None:
    budget = RestrictionKind.POWER_BUDGET_W
    hold(10, 4e4, on="site oslo", kind=budget, starts_at=at(60), expires_at=at(90))
    hold(10, 4e3, on="rack oslo/A01", kind=budget, starts_at=at(99), expires_at=at(100))
    pk = Restriction.objects.get(scope_kind="rack").pk
    actions.lift(user, pk, why="called off", now=at(50))
    terms = past_limits.terms(at(0).timestamp(), at(100).timestamp())
    times = np.array([at(seconds).timestamp() for seconds in (29, 30, 89, 90)])
    found = limits_over(terms, snapshot.current(), times)
    assert found.budget_w[ScopeKind.SITE][:, 0].tolist() == [np.inf, 4e4, 4e4, np.inf]
    assert ScopeKind.RACK not in found.budget_w
