"""Bridges of schedulers that wait for orders, on the event loop: they hold no thread."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec
import redis.exceptions

from admission.executors.schedulers.news import OrderNews
from config.door.answers import Answer
from config.door.refusals import Cause, Refused
from headroom.schedulers.contract import SchedulerNews

if TYPE_CHECKING:
    from config.door.requests import Request

__all__ = ["Orders", "is_for_orders"]

_PATH = re.compile(r"/api/v1/schedulers/([a-z0-9._-]{1,20})\Z")
_AFTER = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})?\Z")
_HEADERS = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]


def is_for_orders(request: Request) -> bool:
    """Say whether a request waits for orders of a scheduler."""
    return request.method == "GET" and _PATH.match(request.path) is not None


class Orders:
    """Tells bridges as soon as there are orders, and nothing of what they say."""

    def __init__(self) -> None:
        #: made on the event loop that it belongs to
        self._news: OrderNews | None = None

    async def answer(self, request: Request) -> Answer:
        """Answer a bridge when there are orders, or after some seconds."""
        found = _PATH.match(request.path)
        asked = parse_qs(request.scope.query_string).get("after", ["0"])[0]
        after = asked if _AFTER.match(asked) else "0"
        if self._news is None:
            self._news = OrderNews()
        try:
            last = await self._news.wait(found[1] if found else "", after)
        except (redis.exceptions.RedisError, OSError):
            raise Refused(Cause.UNAVAILABLE) from None
        return Answer(200, _HEADERS, msgspec.json.encode(SchedulerNews(last)))
