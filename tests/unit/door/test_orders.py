"""Bridges that wait for orders: who may, what they are told, and what becomes of those who go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis.exceptions

from admission.executors.schedulers import registered
from config.door import orders
from config.door.answers import Answer
from config.door.orders import Orders, is_for_orders
from config.door.protocol import ProtocolClosed
from config.door.refusals import Cause, Refused
from config.door.requests import Request
from tests.loops import run

PATH = "/api/v1/schedulers/hall-a"


def request(path: str = PATH, query: str = "", method: str = "GET") -> Request:
    scope = SimpleNamespace(path=path, method=method, query_string=query, headers={})
    return Request(cast(Any, scope))


class Lane:
    """Does at once what it is asked for."""

    async def do(self, work: Callable[[], Any]) -> Any:
        return work()


class News:
    """News of Valkey: those that ``come``, or a failure."""

    def __init__(self, comes: Callable[[], Awaitable[str]]) -> None:
        self._comes = comes
        self.asked: list[tuple[str, str]] = []
        self.is_given_up = False

    async def wait(self, scheduler: str, after: str) -> str:
        self.asked.append((scheduler, after))
        try:
            return await self._comes()
        except asyncio.CancelledError:
            self.is_given_up = True
            raise


class Client:
    """The other end of a request, which stays or has ``gone``."""

    def __init__(self, *, gone: bool = False) -> None:
        self._gone = gone

    async def client_disconnect(self) -> None:
        if not self._gone:
            await asyncio.Event().wait()


async def _never() -> str:
    await asyncio.Event().wait()
    return ""


async def _seven() -> str:
    return "7-0"


async def _fails() -> str:
    raise redis.exceptions.ConnectionError("away")


@pytest.fixture(autouse=True)
def of_agent_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "close_old_connections", lambda: None)
    monkeypatch.setattr(registered, "agent_of", {"hall-a": 5}.get)


def answered(news: News, client: Client, asked: Request, agent: int = 5) -> Answer:
    waiting = Orders(cast(Any, Lane()))
    waiting._news = cast(Any, news)
    scope = cast(Any, SimpleNamespace(agent_id=agent))

    async def answer() -> Answer:
        return await waiting.answer(asked, scope, cast(Any, client))

    return run(answer())


def test_only_who_asks_for_a_scheduler_waits() -> None:
    assert is_for_orders(request())
    assert not is_for_orders(request(method="POST"))
    assert not is_for_orders(request(path="/api/v1/schedulers/Hall"))
    assert not is_for_orders(request(path=f"{PATH}/jobs"))


@pytest.mark.parametrize(
    ("query", "after"), [("", "0"), ("after=17-3", "17-3"), ("after=17", "17")]
)
def test_a_bridge_is_told_what_to_ask_with_the_next_time(query: str, after: str) -> None:
    news = News(_seven)
    found = answered(news, Client(), request(query=query))
    assert (found.status, json.loads(found.body)) == (200, {"last": "7-0"})
    assert news.asked == [("hall-a", after)]
    assert ("Cache-Control", "no-store") in found.headers


@pytest.mark.parametrize("after", ["$", "-1", "7-", "1-2-3", "x" * 200, "7%00", "1" * 19])
def test_what_was_never_told_is_refused_with_its_field(after: str) -> None:
    news = News(_seven)
    found = answered(news, Client(), request(query=f"after={after}"))
    error = json.loads(found.body)["error"]
    assert (found.status, error["code"], error["field"]) == (400, "invalid_field", "after")
    assert news.asked == []


def test_another_agent_learns_nothing_of_when_a_scheduler_has_orders() -> None:
    news = News(_seven)
    found = answered(news, Client(), request(), agent=6)
    assert found.status == 403
    assert json.loads(found.body)["error"]["code"] == "scheduler_out_of_scope"
    assert news.asked == []


def test_a_bridge_may_wait_before_its_first_report() -> None:
    assert answered(News(_seven), Client(), request("/api/v1/schedulers/new")).status == 200


def test_who_has_gone_is_waited_for_by_nobody() -> None:
    news = News(_never)
    with pytest.raises(ProtocolClosed):
        answered(news, Client(gone=True), request())
    assert news.is_given_up


def test_without_valkey_a_bridge_comes_again_later() -> None:
    with pytest.raises(Refused) as refused:
        answered(News(_fails), Client(), request())
    assert refused.value.cause is Cause.UNAVAILABLE


def test_who_is_no_agent_is_told_what_it_takes() -> None:
    found = orders.unknown()
    assert found.status == 401
    assert ("WWW-Authenticate", "Bearer") in found.headers
