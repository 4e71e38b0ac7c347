"""What polls share: one answer of Django's for all who ask meanwhile, and nobody's own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from config.door.answers import Answer
from config.door.polls import Polls
from dashboard.conditional import SHARED
from tests.loops import run


class Viewers:
    """Everybody was answered before."""

    async def may(self, *_given: object) -> bool:
        return True

    def standing_of(self, _session: str) -> None:
        return None

    def answered(self, *_given: object) -> None:
        pass


class Django:
    """Answers when it is told to."""

    def __init__(self, *headers: tuple[str, str], status: int = 200) -> None:
        self.answer = Answer(status, list(headers), b"racks")
        self.asked: list[bool] = []
        self.may_answer = asyncio.Event()

    async def __call__(self, is_conditional: bool) -> Answer:
        self.asked.append(is_conditional)
        await self.may_answer.wait()
        return self.answer


def request(session: str) -> Any:
    return SimpleNamespace(
        path="/live/fleet",
        headers={"cookie": f"sessionid={session}"},
        scope=SimpleNamespace(query_string=""),
    )


def polls() -> Polls:
    made = Polls(lane=None)  # type: ignore[arg-type]
    made._viewers = Viewers()  # type: ignore[assignment]
    return made


async def ask_at_once(django: Django, people: int) -> list[Answer]:
    shared = polls()
    asked = [asyncio.create_task(shared.answer(request(f"s{i}"), django)) for i in range(people)]
    await asyncio.sleep(0.7)  # longer than an answer is kept for
    django.may_answer.set()
    return await asyncio.gather(*asked)


def test_all_who_ask_while_an_answer_is_made_get_that_one_however_long_it_takes() -> None:
    async def ask() -> None:
        django = Django((SHARED, "1"))
        assert [each.body for each in await ask_at_once(django, 50)] == [b"racks"] * 50
        assert django.asked == [False]

    run(ask())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param([], 200, id="what depends on its reader"),
        pytest.param([(SHARED, "1"), ("Set-Cookie", "sessionid=theirs")], 200, id="a cookie"),
        pytest.param([(SHARED, "1")], 503, id="a refusal"),
    ],
)
def test_an_answer_for_one_alone_is_given_to_nobody_else(
    headers: list[tuple[str, str]], status: int
) -> None:
    async def ask() -> None:
        django = Django(*headers, status=status)
        await ask_at_once(django, 5)
        # One tried for all, and then each for himself.
        assert django.asked == [False, *[True] * 5]

    run(ask())
