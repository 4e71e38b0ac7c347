"""Shared answers to polls, from memory: for the requests that open pages repeat.

Django answers the first requests of each session, and one request of all sessions each
``SHARED_S``. What it says may be shared if its view says so, by the header :data:`SHARED`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from django.conf import settings
from django.db import DatabaseError, close_old_connections

from accounts.sessions.standing import standing
from config.door import metrics
from config.door.answers import Answer
from config.door.lanes import Lane, LaneFull, WaitedTooLong
from dashboard.conditional import SHARED

if TYPE_CHECKING:
    from config.door.requests import Request

__all__ = ["Polls"]

#: How long an answer is shared, s.
SHARED_S = 0.5
#: A session that has ended, or whose user may less than before, is noticed within this, s, or when
#: the database has answered the look that was due.
STANDING_MAX_AGE_S = 2.0
#: A session that has not polled for this long is forgotten, s.
_FORGOTTEN_AFTER_S = 60.0
#: Sessions and answers that are kept at most.
_MOST_SESSIONS = 2000
_MOST_ANSWERS = 64

#: Asks Django: as the client did, or, with False, for all of it whatever the client has already.
Ask: TypeAlias = Callable[[bool], Awaitable[Answer]]


@dataclass(slots=True)
class _Viewer:
    """A session that polls."""

    #: when it last did (s of the loop's clock)
    polled_at: float
    #: what it stood for when that was last looked at; None: not yet
    standing: Hashable = None
    #: where Django has answered it while it stood for that
    paths: set[str] = field(default_factory=set)


class Viewers:
    """Sessions that Django has answered lately, and whether it would do so again.

    Django has to answer a session after its standing was looked at. While later looks find the
    same, it stood for the same when it was answered, and does so now.
    """

    def __init__(self, lane: Lane[Callable[[], Any], Any]) -> None:
        self._lane = lane
        self._known: dict[str, _Viewer] = {}
        self._looked_at = -math.inf
        self._look: asyncio.Task[bool] | None = None

    async def may(self, session: str, path: str, now: float) -> bool:
        """Say whether Django would answer the session as it did before.

        A look that is late is waited for: if all who poll went to Django instead, it would be later
        still.
        """
        if self._look is None and now - self._looked_at > STANDING_MAX_AGE_S / 2:
            self._look = asyncio.create_task(self._look_again(now))
        if (viewer := self._known.get(session)) is not None:
            viewer.polled_at = now
        is_late = now - self._looked_at > STANDING_MAX_AGE_S
        if self._look is not None and is_late and self._was_answered(session, path):
            is_late = not await asyncio.shield(self._look)
        return not is_late and self._was_answered(session, path)

    def _was_answered(self, session: str, path: str) -> bool:
        viewer = self._known.get(session)
        return viewer is not None and path in viewer.paths

    def standing_of(self, session: str) -> Hashable:
        """Return the standing of a session at the last look; None where nobody has looked."""
        viewer = self._known.get(session)
        return None if viewer is None else viewer.standing

    def answered(self, session: str, path: str, standing: Hashable, now: float) -> None:
        """Note that Django has answered the session, which stood for ``standing`` before that."""
        if session not in self._known and len(self._known) >= _MOST_SESSIONS:
            return
        viewer = self._known.setdefault(session, _Viewer(now))
        if standing is not None and viewer.standing == standing:
            viewer.paths.add(path)

    async def _look_again(self, now: float) -> bool:
        """Look at all sessions; return whether that was possible."""
        earliest = now - _FORGOTTEN_AFTER_S
        self._known = {key: each for key, each in self._known.items() if each.polled_at > earliest}
        # Who comes meanwhile is for the next look.
        sessions = list(self._known)
        try:
            found = await self._lane.do(partial(_standing, sessions))
        except (DatabaseError, LaneFull, WaitedTooLong):
            return False
        finally:
            self._look = None
        for session in sessions:
            self._note(session, found.get(session))
        self._looked_at = now
        return True

    def _note(self, session: str, standing: Hashable) -> None:
        if standing is None:  # it has ended
            del self._known[session]
        elif self._known[session].standing != standing:
            self._known[session] = _Viewer(self._known[session].polled_at, standing)


def _standing(keys: list[str]) -> dict[str, Hashable]:
    close_old_connections()
    return standing(keys)


@dataclass(frozen=True, slots=True)
class _Shared:
    """An answer and when it was made (s of the loop's clock)."""

    answer: Answer
    etag: str
    made_at: float


class Polls:
    """The shared answers, and the sessions that may have them."""

    def __init__(self, lane: Lane[Callable[[], Any], Any]) -> None:
        self._viewers = Viewers(lane)
        self._kept: dict[Hashable, _Shared] = {}
        self._making: dict[Hashable, asyncio.Task[_Shared | None]] = {}

    async def answer(self, request: Request, ask: Ask) -> Answer:
        """Return the answer to a GET: a shared one, or Django's own."""
        session = session_of(request.headers.get("cookie", ""))
        now = asyncio.get_running_loop().time()
        if session and await self._viewers.may(session, request.path, now):
            shared = await self._shared(request, ask)
            if shared is not None:
                metrics.SHARED.inc()
                return _as_asked(shared, request)
        standing = self._viewers.standing_of(session)
        answer, is_shared = _without_mark(await ask(True))
        if session and is_shared:
            self._viewers.answered(session, request.path, standing, now)
        return answer

    async def _shared(self, request: Request, ask: Ask) -> _Shared | None:
        """Return Django's answer of a moment ago, or of now, to all who ask this."""
        key = (request.path, request.scope.query_string, request.headers.get("accept-encoding"))
        kept = self._kept.get(key)
        if kept is not None and asyncio.get_running_loop().time() - kept.made_at <= SHARED_S:
            return kept
        if key not in self._making:
            self._making[key] = asyncio.create_task(self._make(key, ask))
        # However long it takes: who asks meanwhile waits for the same one.
        return await asyncio.shield(self._making[key])

    async def _make(self, key: Hashable, ask: Ask) -> _Shared | None:
        """Return Django's answer, unless it is for this one client alone."""
        try:
            answer, is_shared = _without_mark(await ask(False))
        finally:
            del self._making[key]
        if not is_shared or answer.status != 200 or answer.stream is not None:
            return None
        made_at = asyncio.get_running_loop().time()
        self._keep(key, _Shared(answer, _header(answer, "etag"), made_at))
        return self._kept[key]

    def _keep(self, key: Hashable, shared: _Shared) -> None:
        self._kept.pop(key, None)
        self._kept[key] = shared
        while len(self._kept) > _MOST_ANSWERS:
            del self._kept[next(iter(self._kept))]


def _as_asked(kept: _Shared, request: Request) -> Answer:
    """Return the shared answer, or 304 where the client has it."""
    if kept.etag and request.headers.get("if-none-match") == kept.etag:
        headers = [pair for pair in kept.answer.headers if not pair[0].startswith("Content-")]
        return Answer(304, headers)
    return kept.answer


def _without_mark(answer: Answer) -> tuple[Answer, bool]:
    """Return the answer without the header that marks it as shared, and whether it had it."""
    headers = [pair for pair in answer.headers if pair[0] != SHARED]
    is_shared = len(headers) < len(answer.headers)
    is_shared = is_shared and not any(name.lower() == "set-cookie" for name, _ in headers)
    return Answer(answer.status, headers, answer.body, answer.path, answer.stream), is_shared


def _header(answer: Answer, name: str) -> str:
    return next((value for given, value in answer.headers if given.lower() == name), "")


def session_of(cookies: str) -> str:
    """Return the session's key out of a Cookie header, or an empty string."""
    for part in cookies.split(";"):
        name, _, value = part.strip().partition("=")
        if name == settings.SESSION_COOKIE_NAME:
            return value
    return ""
