from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headroom.agent.actuation.leases import LeaseBook
from headroom.agent.actuation.poller import LimitPoller
from headroom.client import Client
from headroom.contracts import Limit, LimitSet
from headroom.errors import Refused, Unauthorized, Unavailable
from tests.unit.headroom.actuation.builders import NODE, make_limit
from tests.unit.headroom.builders import Clock
from tests.unit.headroom.fake_server import Answer, FakeServer, refusal

LIMITS = ("GET", "/api/v1/limits")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(server.url, "hra_secret", timeout_s=5) as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def leases() -> LeaseBook:
    return LeaseBook(NODE)


@pytest.fixture
def poller(client: Client, leases: LeaseBook, clock: Clock) -> LimitPoller:
    return LimitPoller(client, leases, every_s=10, monotonic=clock, draw=lambda: 0.5)


def answer(*limits: Limit) -> LimitSet:
    return LimitSet(limits=list(limits), now=1_000_000.0, valid_for_s=60.0)


def test_what_the_server_says_is_in_force(
    server: FakeServer, poller: LimitPoller, leases: LeaseBook
) -> None:
    server.answers[LIMITS] = answer(make_limit(expires_at=1_000_030))
    assert poller.poll() == 10
    assert [limit.id for limit in leases.in_force(129)] == ["l1"]
    assert leases.in_force(130) == []
    assert server.requests[0].headers["Authorization"] == "Bearer hra_secret"


def test_a_server_that_knows_no_limits_withdraws_all(
    server: FakeServer, poller: LimitPoller, leases: LeaseBook
) -> None:
    server.answers[LIMITS] = answer(make_limit())
    poller.poll()
    server.answers[LIMITS] = Answer(404)
    assert poller.poll() == 10
    assert leases.in_force(101) == []


@pytest.mark.parametrize(
    "trouble",
    [Answer(503), Answer(0, drop=True), Answer(200, b"<html>"), refusal(401), refusal(400)],
    ids=["busy", "dead", "a proxy", "no token", "refused"],
)
def test_trouble_changes_nothing_and_is_backed_off_from(
    server: FakeServer, poller: LimitPoller, leases: LeaseBook, trouble: Answer
) -> None:
    server.answers[LIMITS] = answer(make_limit())
    poller.poll()
    server.answers[LIMITS] = trouble
    waits = [poller.poll() for _ in range(5)]
    assert waits[0] < waits[1] < waits[2] <= 60
    assert waits[4] <= 60
    assert [limit.id for limit in leases.in_force(101)] == ["l1"]
    assert leases.in_force(161) == []  # the last answer is too old
    server.answers[LIMITS] = answer(make_limit())
    assert poller.poll() == 10


def test_an_answer_without_its_clock_is_no_answer(
    server: FakeServer, poller: LimitPoller, leases: LeaseBook
) -> None:
    server.answers[LIMITS] = {"limits": [], "valid_for_s": 60}
    assert poller.poll() != 10


def test_fields_that_a_newer_server_adds_do_no_harm(
    server: FakeServer, poller: LimitPoller, leases: LeaseBook
) -> None:
    limit = {"id": "l1", "node": NODE, "kind": "power_cap_w", "value": 400, "expires_at": 2e6}
    server.answers[LIMITS] = {
        "limits": [{**limit, "reason": "heat"}],
        "now": 1e6,
        "valid_for_s": 60,
        "more": 1,
    }
    poller.poll()
    assert [each.value for each in leases.in_force(101)] == [400]


def test_the_client_tells_what_is_wrong(server: FakeServer, client: Client) -> None:
    assert client.limits() is None
    for status, error in ((401, Unauthorized), (400, Refused), (503, Unavailable)):
        server.answers[LIMITS] = refusal(status)
        with pytest.raises(error):
            client.limits()
    server.answers[LIMITS] = Answer(200, b"[]")
    with pytest.raises(Unavailable, match="no LimitSet"):
        client.limits()


def test_it_polls_for_as_long_as_the_context_lasts(
    server: FakeServer, client: Client, leases: LeaseBook
) -> None:
    with LimitPoller(client, leases, every_s=0.01):
        deadline = time.monotonic() + 60
        while len(server.requests) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    time.sleep(0.1)
    asked = len(server.requests)
    time.sleep(0.1)
    assert len(server.requests) == asked
