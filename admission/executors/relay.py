"""What the two ends of a shell say to each other, on its way through Valkey.

Each end numbers its frames. What it sends again, since an answer was lost, is taken once, and what
the other end has not taken yet is bounded: a sender that is faster waits, and with it, at the
machine, whatever writes into the terminal. Nothing is kept of what was taken.

One end of a shell holds one secret, made of the server's key, and the first connection that comes
with it: a secret that leaks is of no use beside whoever came first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio
from django.conf import settings
from django.utils.crypto import constant_time_compare, salted_hmac

from headroom.work.contract import ShellAnswer, ShellFrame, ShellKind, ShellSide
from telemetry import stream

__all__ = [
    "KEPT_S",
    "PREFIX",
    "WAIT_S",
    "Ended",
    "Relay",
    "Standing",
    "Taken",
    "begin",
    "is_secret_of",
    "over",
    "secret_of",
    "standing",
]

#: What a token of an end begins with.
PREFIX = "hrs_"
#: A session that nobody touches is forgotten after this, s: whoever looks after it does so sooner.
KEPT_S = 86_400
#: After its end both sides may still ask how it ended, s.
_OVER_KEPT_S = 120
#: How long an end that has nothing to read is kept waiting, s.
WAIT_S = 10.0
#: Frames that the other end has not taken yet.
_WINDOW = 32
_OTHER = {ShellSide.USER: ShellSide.NODE, ShellSide.NODE: ShellSide.USER}


class Ended(Exception):
    """There is no such session, or it was forgotten since its end."""


class Taken(Exception):
    """Another connection has come for this end."""


@dataclass(frozen=True)
class Standing:
    """How a session stands; times are Unix s, and 0 where that never was."""

    is_known: bool
    begun_at: float = 0.0
    #: when each end was heard last, and when either said anything
    node_seen_at: float = 0.0
    user_seen_at: float = 0.0
    data_at: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    over: str | None = None
    exit_code: int | None = None


def secret_of(session: str, side: ShellSide) -> str:
    """Return the secret of one end of a session."""
    made = salted_hmac("headroom.shell", f"{session}/{side}", algorithm="sha256")
    return PREFIX + made.hexdigest()


def is_secret_of(secret: str, session: str, side: ShellSide) -> bool:
    """Say whether ``secret`` is that of this end."""
    return constant_time_compare(secret, secret_of(session, side))


# --- Whoever looks after them --------------------------------------------------------------------


def begin(session: str, now: float) -> None:
    """Have both ends find a session."""
    client = stream.connection()
    key = _key(session)
    client.hset(key, mapping={"user_seen": now, "data_at": now})
    client.expire(key, KEPT_S)


def standing(session: str) -> Standing:
    """Return how a session stands."""
    found = cast(dict[bytes, bytes], stream.connection().hgetall(_key(session)))
    if not found:
        return Standing(is_known=False)
    return _standing({name.decode(): value.decode() for name, value in found.items()})


def over(session: str, why: str) -> None:
    """End a session, unless it has ended."""
    client = stream.connection()
    client.hsetnx(_key(session), "over", why)
    for key in (_key(session), *(_frames(session, side) for side in ShellSide)):
        client.expire(key, _OVER_KEPT_S)


def _standing(found: Mapping[str, str]) -> Standing:
    def number(name: str) -> float:
        return float(found.get(name, 0))

    return Standing(
        is_known=True,
        begun_at=number("begun"),
        node_seen_at=number("node_seen"),
        user_seen_at=number("user_seen"),
        data_at=number("data_at"),
        bytes_in=int(number("bytes_user")),
        bytes_out=int(number("bytes_node")),
        over=found.get("over"),
        exit_code=int(found["exit"]) if "exit" in found else None,
    )


# --- The two ends --------------------------------------------------------------------------------

# Takes frames that follow those that are there, as far as there is room; returns the last number.
_PUT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
if redis.call('HSETNX', KEYS[1], ARGV[1] .. '_is', ARGV[2]) == 0
    and redis.call('HGET', KEYS[1], ARGV[1] .. '_is') ~= ARGV[2] then return -2 end
redis.call('HSET', KEYS[1], ARGV[1] .. '_seen', ARGV[3])
if ARGV[1] == 'node' then redis.call('HSETNX', KEYS[1], 'begun', ARGV[3]) end
local last = tonumber(redis.call('HGET', KEYS[1], ARGV[1] .. '_last') or '0')
if redis.call('HEXISTS', KEYS[1], 'over') == 1 then return last end
local room = tonumber(ARGV[4]) - redis.call('XLEN', KEYS[2])
for i = 6, #ARGV, 3 do
    local number = tonumber(ARGV[i])
    if number == last + 1 and room > 0 then
        redis.call('XADD', KEYS[2], ARGV[i] .. '-0', ARGV[i + 1], ARGV[i + 2])
        last, room = number, room - 1
        if ARGV[i + 1] == 'data' then
            redis.call('HINCRBY', KEYS[1], 'bytes_' .. ARGV[1], #ARGV[i + 2])
            redis.call('HSET', KEYS[1], 'data_at', ARGV[3])
        elseif ARGV[i + 1] == 'exit' then
            redis.call('HSET', KEYS[1], 'exit', ARGV[i + 2])
        elseif ARGV[i + 1] == 'over' then
            redis.call('HSETNX', KEYS[1], 'over', ARGV[i + 2])
        end
    end
end
redis.call('HSET', KEYS[1], ARGV[1] .. '_last', last)
redis.call('EXPIRE', KEYS[2], ARGV[5])
return last
"""


class Relay:
    """The sessions for those who hold an end, on the event loop."""

    def __init__(self, client: redis.asyncio.Redis | None = None) -> None:
        self._client = client or redis.asyncio.Redis.from_url(
            settings.REDIS_URL, socket_timeout=WAIT_S + 5.0, socket_connect_timeout=2.0
        )
        self._put = self._client.register_script(_PUT)

    async def put(
        self, session: str, side: ShellSide, connection: str, frames: Sequence[ShellFrame]
    ) -> ShellAnswer:
        """Take frames of ``side``; the answer says up to which number they were.

        Raises :class:`Ended` and :class:`Taken`.
        """
        given: list[Any] = [side.value, connection, f"{time.time():.3f}", _WINDOW, KEPT_S]
        for each in frames:
            given += [each.number, each.kind.value, each.data]
        last = int(await self._put(keys=[_key(session), _frames(session, side)], args=given))
        if last == -1:
            raise Ended
        if last == -2:
            raise Taken
        return await self._answer(session, last=last)

    async def get(
        self, session: str, side: ShellSide, connection: str, after: int, wait_s: float
    ) -> ShellAnswer:
        """Return what the other end has said after frame ``after``, or nothing after ``wait_s``.

        Raises :class:`Ended` and :class:`Taken`.
        """
        await self.put(session, side, connection, [])
        key = _frames(session, _OTHER[side])
        await self._client.xtrim(key, minid=f"{after + 1}-0", approximate=False)
        known = await self._answer(session)
        block = None if known.over is not None else max(int(wait_s * 1000), 1)
        said = await self._client.xread({key: f"{after}-0"}, count=_WINDOW, block=block)
        found = cast("list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]", said)
        frames = [
            ShellFrame(number=int(at.split(b"-")[0]), kind=ShellKind(kind.decode()), data=data)
            for at, fields in (found[0][1] if found else ())
            for kind, data in fields.items()
        ]
        return await self._answer(session, frames=frames)

    async def _answer(
        self, session: str, *, last: int = 0, frames: Sequence[ShellFrame] = ()
    ) -> ShellAnswer:
        known = await self._client.hmget(_key(session), ["over", "exit"])
        why, code = cast("list[bytes | None]", known)
        return ShellAnswer(
            last=last,
            frames=list(frames),
            over=None if why is None else why.decode(),
            exit_code=None if code is None else int(code),
        )


def _key(session: str) -> str:
    return f"shell:{{{session}}}"


def _frames(session: str, side: ShellSide) -> str:
    return f"shell:{{{session}}}:{side}"
