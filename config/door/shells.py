"""The two ends of shells, on the event loop: whoever waits for what is said holds no thread."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec
import redis.exceptions

from admission.executors import relay
from admission.executors.relay import PREFIX, Ended, Relay, Taken
from config.door import bodies
from config.door.accounting import Bound, Budget, Pace
from config.door.answers import Answer
from config.door.refusals import refusal
from headroom.contracts import FieldError
from headroom.work.contract import MAX_FRAME_BYTES, ShellAnswer, ShellFrame, ShellSide

if TYPE_CHECKING:
    from config.door.protocol import HTTPProtocol
    from config.door.requests import Request

__all__ = ["Shells", "is_of_shells"]

#: Requests of shells that are open in this process: each end has two.
_MOST_OPEN = 512
#: As much as one request brings.
_MOST_BYTES = 16 * (MAX_FRAME_BYTES + 64)
_PATH = re.compile(r"/api/v1/shells/(?P<session>[0-9a-f-]{36})/(?P<side>user|node)\Z")
_CONNECTION = re.compile(r"[0-9a-f]{16,64}\Z")
_TYPE = "application/msgpack"

_frames = msgspec.msgpack.Decoder(list[ShellFrame])


def is_of_shells(request: Request) -> bool:
    """Say whether a request is of an end of a shell."""
    return request.token.startswith(PREFIX) and _PATH.match(request.path) is not None


class Shells:
    """Passes on what the ends of shells say to each other."""

    def __init__(self, budget: Budget, pace: Pace) -> None:
        self._budget = budget
        self._pace = pace
        self._open = Bound(4, _MOST_OPEN)
        #: made on the event loop that it belongs to
        self._relay: Relay | None = None

    @property
    def open(self) -> int:
        return self._open.open

    async def answer(self, request: Request, protocol: HTTPProtocol) -> Answer:
        """Answer one end. Raises :class:`~config.door.accounting.TooMany`."""
        found = _PATH.match(request.path)
        side = ShellSide(found["side"]) if found else ShellSide.USER
        session = found["session"] if found else ""
        if not relay.is_secret_of(request.token, session, side) or not request.is_by_tls:
            return _refusal(401, "unauthenticated", "this is not the token of that shell")
        asked = parse_qs(request.scope.query_string)
        connection = asked.get("connection", [""])[0]
        if not _CONNECTION.match(connection):
            return _refusal(400, "invalid_field", "connection is 16 to 64 hexadecimal digits")
        with self._open.one(f"{session}/{side}"):
            try:
                if request.method == "POST":
                    said = await self._taken(request, protocol, session, side, connection)
                else:
                    after = asked.get("after", ["0"])[0]
                    said = await self._said(session, side, connection, after)
            except Ended:
                return _refusal(410, "shell_over", "there is no such shell any more")
            except Taken:
                return _refusal(409, "shell_taken", "another connection has this end")
            except (msgspec.MsgspecError, ValueError) as exc:
                return _refusal(400, "invalid_field", f"these are no frames: {exc}"[:300])
            except (redis.exceptions.RedisError, OSError):
                return _refusal(503, "unavailable", "what is said is not passed on at the moment")
        headers = [("Content-Type", _TYPE), ("Cache-Control", "no-store")]
        return Answer(200, headers, msgspec.msgpack.encode(said))

    async def _taken(
        self, request: Request, protocol: HTTPProtocol, session: str, side: ShellSide, by: str
    ) -> ShellAnswer:
        length = request.length
        if length is None or length > _MOST_BYTES:
            raise ValueError(f"a request brings at most {_MOST_BYTES} bytes")
        with self._budget.share() as share:
            body = await bodies.read(protocol, length, self._pace, share)
        return await self._of_loop().put(session, side, by, _frames.decode(body))

    async def _said(self, session: str, side: ShellSide, by: str, after: str) -> ShellAnswer:
        if not re.fullmatch(r"[0-9]{1,18}", after):
            raise ValueError("after is the number of a frame")
        return await self._of_loop().get(session, side, by, int(after), relay.WAIT_S)

    def _of_loop(self) -> Relay:
        if self._relay is None:
            self._relay = Relay()
        return self._relay


def _refusal(status: int, code: str, message: str) -> Answer:
    retry_after_s = 1.0 if status == 503 else 0.0
    return refusal(FieldError(code=code, message=message), status, retry_after_s)
