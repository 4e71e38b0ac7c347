"""Whose polls may be answered from memory: sessions that Django has answered as they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

import pytest
from django.db import DatabaseError

from config.door import polls
from config.door.polls import STANDING_MAX_AGE_S, Viewers
from tests.loops import run


class Stores:
    """Stands in for the lane and the database behind it."""

    def __init__(self, **standing: Hashable) -> None:
        self.standing: dict[str, Hashable] = dict(standing)
        self.is_away = False
        self.meanwhile: Callable[[], None] = lambda: None
        self.answers = asyncio.Event()
        self.answers.set()

    async def do(self, look: Callable[[], Any]) -> Any:
        await self.answers.wait()
        if self.is_away:
            raise DatabaseError
        found = {key: self.standing[key] for key in look() if key in self.standing}
        self.meanwhile()
        return found


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polls, "_standing", lambda keys: keys)


async def poll(viewers: Viewers, session: str, now: float, path: str = "/live/fleet") -> bool:
    """Poll as a browser does: by Django, which answers, where memory may not. Return which."""
    if await viewers.may(session, path, now):
        return True
    standing = viewers.standing_of(session)
    viewers.answered(session, path, standing, now)
    await settled()
    return False


async def settled() -> None:
    """Let the look that may have begun come to its end."""
    for _ in range(4):
        await asyncio.sleep(0)


def test_a_session_that_was_looked_at_and_then_answered_is_answered_from_memory() -> None:
    async def ask() -> None:
        viewers = Viewers(Stores(ann="viewer"))  # type: ignore[arg-type]
        assert [await poll(viewers, "ann", now / 4) for now in range(8)][-4:] == [True] * 4
        assert not await poll(viewers, "ann", 2.0, "/live/fleet/panel")

    run(ask())


def test_an_answer_of_before_the_look_counts_for_nothing() -> None:
    async def ask() -> None:
        stores = Stores(ann="operator")
        viewers = Viewers(stores)  # type: ignore[arg-type]
        viewers.answered("ann", "/live/fleet", viewers.standing_of("ann"), 0.0)
        stores.standing["ann"] = "nobody"
        for now in (0.1, 1.2, 2.3, 3.4):
            assert not await viewers.may("ann", "/live/fleet", now)
            await settled()
        assert viewers.standing_of("ann") == "nobody"

    run(ask())


@pytest.mark.parametrize("after", [None, "another"])
def test_a_session_that_ends_or_means_somebody_else_asks_django(after: str | None) -> None:
    async def ask() -> None:
        stores = Stores(ann="viewer")
        viewers = Viewers(stores)  # type: ignore[arg-type]
        for now in range(8):
            await poll(viewers, "ann", now / 4)
        stores.standing = {} if after is None else {"ann": after}
        await settled()
        assert not await poll(viewers, "ann", 1.8 + STANDING_MAX_AGE_S)

    run(ask())


def test_who_comes_while_sessions_are_looked_at_is_not_forgotten() -> None:
    async def ask() -> None:
        stores = Stores(ann="viewer", bob="viewer")
        viewers = Viewers(stores)  # type: ignore[arg-type]
        stores.meanwhile = lambda: viewers.answered("bob", "/live/fleet", None, 0.0)
        await poll(viewers, "ann", 0.0)
        assert viewers.standing_of("bob") is None
        await poll(viewers, "ann", 1.1)
        assert viewers.standing_of("bob") == "viewer"

    run(ask())


def test_a_look_that_is_late_is_waited_for() -> None:
    async def ask() -> None:
        stores = Stores(ann="viewer", bob="viewer")
        viewers = Viewers(stores)  # type: ignore[arg-type]
        for now in range(8):
            await poll(viewers, "ann", now / 4)
            await poll(viewers, "bob", now / 4)
        await settled()
        stores.answers.clear()
        late = 2.0 + STANDING_MAX_AGE_S
        asked = [asyncio.create_task(viewers.may(s, "/live/fleet", late)) for s in ("ann", "bob")]
        await settled()
        assert not any(each.done() for each in asked)
        del stores.standing["bob"]
        stores.answers.set()
        assert await asyncio.gather(*asked) == [True, False]

    run(ask())


def test_nobody_is_answered_from_memory_while_the_database_is_away() -> None:
    async def ask() -> None:
        stores = Stores(ann="viewer")
        viewers = Viewers(stores)  # type: ignore[arg-type]
        for now in range(8):
            await poll(viewers, "ann", now / 4)
        assert await viewers.may("ann", "/live/fleet", 2.0)
        stores.is_away = True
        assert not await poll(viewers, "ann", 2.0 + 2 * STANDING_MAX_AGE_S)

    run(ask())


def test_a_session_that_polls_no_more_is_forgotten() -> None:
    async def ask() -> None:
        viewers = Viewers(Stores(ann="viewer", bob="viewer"))  # type: ignore[arg-type]
        for now in range(8):
            await poll(viewers, "ann", now / 4)
        await settled()
        await poll(viewers, "bob", 100.0)
        assert viewers.standing_of("ann") is None

    run(ask())
