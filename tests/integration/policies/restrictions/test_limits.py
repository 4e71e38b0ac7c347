"""``GET /api/v1/limits``, by Django and by the way before it."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from django.db import OperationalError
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from fleet import snapshot
from fleet.models import Link, Site
from headroom.contracts import LimitSet
from headroom.traffic import TrafficClass
from policies.restrictions import limits, store
from policies.restrictions.fast_path import LimitsFastPath
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction, RestrictionGeneration
from policies.traffic import Share, TrafficPolicy
from tests.builders.accounts import api_client, bearer
from tests.builders.agents import make_agent
from tests.builders.fleet import SmallFleet
from tests.integration.policies.restrictions.conftest import make_wanted, now

pytestmark = pytest.mark.django_db
URL = "/api/v1/limits"


@pytest.fixture
def token(fleet: SmallFleet) -> str:
    """Of an agent of one node of rack oslo/A01."""
    return make_agent("n1", nodes=[fleet.nodes["oslo-a01-n1"]])[1]


def ask(token: str) -> LimitSet:
    limits.invalidate()
    answer = Client().get(URL, headers=bearer(token))
    assert answer.status_code == 200, answer.content
    return msgspec.json.decode(answer.content, type=LimitSet)


def test_an_agent_is_told_what_holds_for_its_node(fleet: SmallFleet, token: str) -> None:
    row, _ = store.apply([make_wanted(), make_wanted("rack oslo/A02")], now=now())
    told = ask(token)
    (limit,) = told.limits
    assert (limit.id, limit.node, limit.kind) == (row.limit_id, "oslo-a01-n1", "power_cap_w")
    assert (limit.value, limit.gpu) == (560.0, None)
    assert limit.expires_at == pytest.approx(row.expires_at.timestamp(), abs=1e-3)
    assert told.valid_for_s == 120.0
    assert told.now == pytest.approx(time.time(), abs=5.0)


def test_the_id_stays_the_same_while_it_is_renewed(fleet: SmallFleet, token: str) -> None:
    store.apply([make_wanted(for_s=60)], now=now())
    first = ask(token).limits[0]
    store.apply([make_wanted(for_s=120)], now=now())
    second = ask(token).limits[0]
    assert first.id == second.id
    assert second.expires_at > first.expires_at


def test_an_agent_of_a_site_is_told_of_all_its_nodes(fleet: SmallFleet) -> None:
    store.apply([make_wanted(), make_wanted("rack bergen/A01")], now=now())
    _, token = make_agent("oslo", sites=[fleet.sites["oslo"]])
    assert {limit.node for limit in ask(token).limits} == {"oslo-a01-n1", "oslo-a01-n2"}


def test_what_is_held_or_over_is_not_told(fleet: SmallFleet, token: str) -> None:
    (held,) = store.apply([make_wanted("site oslo", value=300.0)], now=now())
    assert held.state == Restriction.State.PENDING_APPROVAL
    assert ask(token).limits == []
    store.apply([make_wanted()], now=now())
    assert len(ask(token).limits) == 1
    store.release("rule:rack-power", now=now(), by="system", why="cleared")
    assert ask(token).limits == []


def test_a_change_is_told_within_a_second_and_without_a_query_before(
    fleet: SmallFleet, token: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = Client(headers=bearer(token))
    ask(token)
    with django_assert_num_queries(0):
        assert client.get(URL).status_code == 200
    store.apply([make_wanted()], now=now())
    assert limits.MAX_AGE_S <= 1.0
    limits._tables.recheck()  # as it does by itself at that age
    assert len(msgspec.json.decode(client.get(URL).content)["limits"]) == 1


def test_a_lease_that_ends_is_told_no_longer(fleet: SmallFleet, token: str) -> None:
    (row,) = store.apply([make_wanted()], now=now())
    assert len(ask(token).limits) == 1
    with patch("policies.restrictions.views.time") as clock:
        clock.time.return_value = row.expires_at.timestamp()
        answer = Client().get(URL, headers=bearer(token))
    assert msgspec.json.decode(answer.content)["limits"] == []


def test_more_limits_than_an_answer_holds_are_refused_and_not_cut(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.apply([make_wanted()], now=now())
    monkeypatch.setattr(limits, "MOST", 1)
    limits.invalidate()
    _, token = make_agent("oslo", sites=[fleet.sites["oslo"]])
    answer = Client().get(URL, headers=bearer(token))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_many_limits"


@pytest.mark.parametrize("headers", [{}, bearer("hra_" + "x" * 43), bearer("hru_x")])
def test_who_is_no_agent_is_told_nothing(fleet: SmallFleet, headers: dict[str, str]) -> None:
    answer = Client().get(URL, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthorized"


def test_a_users_token_is_none_of_an_agent(fleet: SmallFleet) -> None:
    assert api_client().get(URL).status_code == 401


def test_a_database_that_is_away_is_an_outage_and_not_the_end_of_limits(
    fleet: SmallFleet, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise OperationalError

    monkeypatch.setattr(RestrictionGeneration, "current", fail)
    answer = Client().get(URL, headers=bearer(token))
    assert answer.status_code == 503
    assert answer["Retry-After"]


# --- The way before Django ------------------------------------------------------------------------


class Behind:
    """Stands for Django."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.asked.append(environ["PATH_INFO"])
        return [b"behind"]


def request(
    gate: LimitsFastPath, token: str, *, method: str = "GET", path: str = URL
) -> tuple[list[str], bytes]:
    statuses: list[str] = []
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "HTTP_AUTHORIZATION": f"Bearer {token}",
        "wsgi.input": io.BytesIO(),
    }
    start: Callable[..., None] = lambda status, headers: statuses.append(status)  # noqa: E731
    return statuses, b"".join(gate(environ, start))


def test_a_good_request_is_answered_before_django(fleet: SmallFleet, token: str) -> None:
    store.apply([make_wanted()], now=now())
    behind = Behind()
    seconds: list[float] = []
    gate = LimitsFastPath(behind, seconds.append)
    statuses, body = request(gate, token)
    assert (statuses, behind.asked, len(seconds)) == (["200 OK"], [], 1)
    assert len(msgspec.json.decode(body, type=LimitSet).limits) == 1


def test_all_else_goes_to_django(fleet: SmallFleet, token: str) -> None:
    behind = Behind()
    gate = LimitsFastPath(behind, lambda seconds: None)
    for token_, method, path in (
        ("hra_x", "GET", URL),
        (token, "POST", URL),
        (token, "GET", "/api/v1/agents"),
    ):
        assert request(gate, token_, method=method, path=path) == ([], b"behind")
    assert len(behind.asked) == 3


# --- Shares of links ------------------------------------------------------------------------------


def ask_for(token: str, query: str) -> LimitSet:
    limits.invalidate()
    answer = Client().get(f"{URL}?{query}", headers=bearer(token))
    assert answer.status_code == 200, answer.content
    return msgspec.json.decode(answer.content, type=LimitSet)


def make_wan(fleet: SmallFleet) -> Link:
    made = Link.objects.create(
        name="oslo-bergen",
        kind="wan",
        site=fleet.sites["oslo"],
        peer_site=fleet.sites["bergen"],
        capacity_bits_per_s=10e9,
        latency_s=0.01,
        control_share=0.1,
    )
    snapshot.invalidate()
    return made


def test_an_agent_is_told_the_shares_of_links_that_it_names(fleet: SmallFleet, token: str) -> None:
    link = make_wan(fleet)
    assert ask(token).links == []
    (lease,) = ask_for(token, "link=oslo-bergen&link=nowhere").links
    assert (lease.id, lease.link, lease.share) == (f"traffic-{link.pk}", "oslo-bergen", 1.0)
    assert lease.capacity_bits_per_s == 10e9
    control = next(each for each in lease.classes if each.name == "control")
    assert control.guaranteed == 0.1
    assert lease.expires_at > time.time() + 250


def test_a_link_share_is_a_lease_of_its_own(fleet: SmallFleet, token: str) -> None:
    make_wan(fleet)
    share = RestrictionKind.LINK_SHARE
    (row,) = store.apply([make_wanted("link oslo-bergen", kind=share, value=0.25)], now=now())
    told = {each.id: each.share for each in ask_for(token, "link=oslo-bergen").links}
    assert told[row.limit_id] == 0.25
    assert sorted(told.values()) == [0.25, 1.0]
    store.release("rule:rack-power", now=now(), by="system", why="cleared")
    assert [each.share for each in ask_for(token, "link=oslo-bergen").links] == [1.0]


def test_links_of_other_sites_are_not_told_of(fleet: SmallFleet) -> None:
    make_wan(fleet)
    elsewhere = Site.objects.create(name="tromso")
    _, token = make_agent("tromso", sites=[elsewhere])
    assert ask_for(token, "link=oslo-bergen").links == []
    _, token = make_agent("bergen", sites=[fleet.sites["bergen"]])
    assert len(ask_for(token, "link=oslo-bergen").links) == 1


def test_who_sets_no_caps_gets_none_and_is_not_counted_on(fleet: SmallFleet, token: str) -> None:
    store.apply([make_wanted()], now=now())
    asked: list[int] = []
    with patch("policies.caps.askers.note", lambda agent, at: asked.append(agent)):
        assert ask_for(token, "gpus=0").limits == []
        assert asked == []
        assert len(ask_for(token, "link=a").limits) == 1
        assert len(asked) == 1


def test_an_agent_that_names_too_many_links_is_refused(fleet: SmallFleet, token: str) -> None:
    query = "&".join(f"link=l{number}" for number in range(100))
    answer = Client().get(f"{URL}?{query}", headers=bearer(token))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_many_limits"


def test_shares_of_the_policy_in_force_are_told(fleet: SmallFleet, token: str) -> None:
    make_wan(fleet)
    policy = TrafficPolicy(kinds={"wan": {TrafficClass.CHECKPOINT: Share(0.3, 0.6)}})
    with patch("policies.traffic.current", lambda: policy):
        (lease,) = ask_for(token, "link=oslo-bergen").links
    found = next(each for each in lease.classes if each.name == "checkpoint")
    assert (found.guaranteed, found.most) == (0.3, 0.6)
