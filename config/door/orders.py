"""Bridges of schedulers that wait for orders, on the event loop: they hold no thread."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
import redis.exceptions
from django.db import close_old_connections

from admission.executors.schedulers import registered
from admission.executors.schedulers.news import OrderNews
from config.door.answers import Answer
from config.door.protocol import ProtocolClosed
from config.door.refusals import Cause, Refused, refusal
from headroom.contracts import FieldError
from headroom.schedulers.contract import SchedulerNews

if TYPE_CHECKING:
    from collections.abc import Callable

    from config.door.lanes import Lane
    from config.door.protocol import HTTPProtocol
    from config.door.requests import Request
    from telemetry.directory import AgentScope

__all__ = ["Orders", "is_for_orders", "unknown"]

_PATH = re.compile(r"/api/v1/schedulers/([a-z0-9._-]{1,20})\Z")
_AFTER = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})?\Z")
_HEADERS = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]


def is_for_orders(request: Request) -> bool:
    """Say whether a request waits for orders of a scheduler."""
    return request.method == "GET" and _PATH.match(request.path) is not None


def unknown() -> Answer:
    """Return the answer to who waits and is no agent."""
    error = FieldError(
        code="unauthorized", message="no agent has this token, or it was revoked",
        field="Authorization", hint="the bridge has the token of its scheduler's agent",
    )  # fmt: skip
    return refusal(error, 401)


class Orders:
    """Tells bridges as soon as there are orders, and nothing of what they say."""

    def __init__(self, lane: Lane[Callable[[], Any], Any]) -> None:
        #: for looks at the database
        self._lane = lane
        #: made on the event loop that it belongs to
        self._news: OrderNews | None = None

    async def answer(self, request: Request, agent: AgentScope, protocol: HTTPProtocol) -> Answer:
        """Answer a bridge when there are orders, or after some seconds."""
        found = _PATH.match(request.path)
        name = found[1] if found else ""
        after = parse_qs(request.scope.query_string).get("after", ["0"])[0]
        if not _AFTER.match(after):
            error = FieldError(
                code="invalid_field", message=f"{after[:40]!r} is nothing that was ever told",
                field="after", hint="give what the last answer said, or 0",
            )  # fmt: skip
            return refusal(error, 400)
        # One that has told of nothing yet is nobody's, and has no orders.
        if await self._lane.do(partial(_owner, name)) not in (agent.agent_id, None):
            error = FieldError(
                code="scheduler_out_of_scope",
                message=f"another agent speaks for the scheduler {name!r}", field="name",
                hint="give its bridge the token of that agent, or another name",
            )  # fmt: skip
            return refusal(error, 403)
        last = await self._wait(name, after, protocol)
        return Answer(200, _HEADERS, msgspec.json.encode(SchedulerNews(last)))

    async def _wait(self, name: str, after: str, protocol: HTTPProtocol) -> str:
        """Wait for orders while the client does: who has gone keeps nobody from waiting."""
        self._news = self._news or OrderNews()
        heard = asyncio.ensure_future(self._news.wait(name, after))
        left = asyncio.ensure_future(protocol.client_disconnect())
        try:
            await asyncio.wait({heard, left}, return_when=asyncio.FIRST_COMPLETED)
            if not heard.done():
                raise ProtocolClosed
            return heard.result()
        except (redis.exceptions.RedisError, OSError):
            raise Refused(Cause.UNAVAILABLE) from None
        finally:
            heard.cancel()
            left.cancel()


def _owner(name: str) -> int | None:
    close_old_connections()
    return registered.agent_of(name)
