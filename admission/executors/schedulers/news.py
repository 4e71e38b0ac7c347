"""News between cycle and bridges: who waits is looked at soon, and orders are fetched soon.

A cycle that is asked for between two beats is short: it leaves out what goes by time, which the
next whole one does. Nothing hangs on it: what is lost with Valkey, the next beat and the next round
of a bridge do.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import cast

import redis.asyncio
import redis.exceptions
from celery import current_app
from django.conf import settings
from django.db import transaction

from telemetry import stream

__all__ = [
    "WAIT_S",
    "OrderNews",
    "ask_cycle",
    "follow_up",
    "is_cycle_asked",
    "is_whole_due",
    "orders_for",
    "taken_up",
]

#: How long a bridge that has no orders is kept waiting, s.
WAIT_S = 10.0
#: Set from when a cycle is asked for until one begins.
_ASKED = "admission:cycle-asked"
#: By then the beat has made one, ms.
_ASKED_MS = 2_000
#: Set from when a whole cycle begins until the next is due: before the next beat, though that one
#: comes late and this one early.
_WHOLE = "admission:cycle-whole"
_WHOLE_MS = 1_500
_KEPT_S = 86_400


def ask_cycle() -> None:
    """Once this is committed, have a cycle begin, or follow the one that is at work."""
    transaction.on_commit(_ask_cycle, robust=True)


def _ask_cycle() -> None:
    if stream.connection().set(_ASKED, 1, nx=True, px=_ASKED_MS):
        current_app.send_task("admission.tasks.cycle")


def taken_up() -> None:
    """Note that a cycle begins: what was asked before it, it sees."""
    with suppress(redis.exceptions.RedisError):
        stream.connection().delete(_ASKED)


def is_cycle_asked() -> bool:
    """Say whether a cycle was asked for since the last began."""
    with suppress(redis.exceptions.RedisError):
        return bool(stream.connection().exists(_ASKED))
    return False


def follow_up() -> None:
    """Have the cycle that is at work be followed by a whole one, if that is due meanwhile.

    What else was asked for before it began, it sees.
    """
    with suppress(redis.exceptions.RedisError):
        if not stream.connection().exists(_WHOLE):
            stream.connection().set(_ASKED, 1, px=_ASKED_MS)


def is_whole_due() -> bool:
    """Say whether the cycle that begins is to be whole; if so, the next need not be until a beat.

    Where Valkey is away, each is.
    """
    with suppress(redis.exceptions.RedisError):
        return bool(stream.connection().set(_WHOLE, 1, nx=True, px=_WHOLE_MS))
    return True


def orders_for(scheduler: str) -> None:
    """Once this is committed, tell the bridge of a scheduler that there are orders."""
    transaction.on_commit(partial(_orders_for, scheduler), robust=True)


def _orders_for(scheduler: str) -> None:
    key = _key(scheduler)
    with stream.connection().pipeline(transaction=False) as calls:
        calls.xadd(key, {"": ""}, maxlen=1, approximate=False)
        calls.expire(key, _KEPT_S)
        calls.execute()


class OrderNews:
    """Waits for orders, on the event loop: a bridge that waits holds no thread."""

    def __init__(self) -> None:
        self._client = redis.asyncio.Redis.from_url(
            settings.REDIS_URL, socket_timeout=WAIT_S + 5.0, socket_connect_timeout=2.0
        )

    async def wait(self, scheduler: str, after: str) -> str:
        """Return what is newest as soon as it is not ``after``; else ``after``.

        Raises ``RedisError``, also where ``after`` is nothing that was ever returned.
        """
        key = _key(scheduler)
        said = await self._client.xread({key: after}, count=1, block=int(WAIT_S * 1000))
        found = cast("list[tuple[bytes, list[tuple[bytes, object]]]]", said)
        return found[0][1][-1][0].decode() if found else after

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _key(scheduler: str) -> str:
    return f"scheduler:{{{scheduler}}}:orders"
