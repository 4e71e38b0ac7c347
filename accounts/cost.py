"""Limits on expensive reads: how long, how often and how many at once, for each user.

A view that may take seconds is marked with :func:`dear`. Each web process has few threads: of them
such views take some and never all, and one user takes fewer still. What is beyond is answered at
once with 503 and ``Retry-After``, so nobody waits in a thread. Slots are of a process, in memory:
whatever ends leaves none taken.

Lists are nearly always quick, and a page asks for several at once. So they begin without a slot
(:func:`dear_unless_quick`), and need one only where their statements turn out to take long.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import psycopg.errors
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from rest_framework.permissions import SAFE_METHODS
from rest_framework.throttling import BaseThrottle

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView

__all__ = [
    "Buckets",
    "Slots",
    "TooDear",
    "WriteMiddleware",
    "WriteThrottle",
    "dear",
    "dear_unless_quick",
]

F = TypeVar("F", bound=Callable[..., HttpResponseBase])


class TooDear(Exception):
    """A request is over its limit. ``retry_after_s``: None where it always will be."""

    def __init__(
        self, code: str, message: str, hint: str, *, status: int, retry_after_s: float | None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.status = status
        self.retry_after_s = retry_after_s


class StatementEnded(TooDear):
    """A statement was ended by its timeout."""


class Slots:
    """How many dear requests go on, in all and of each user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_user: Counter[int] = Counter()

    @contextmanager
    def hold(self, user_id: int) -> Iterator[None]:
        """Take a slot until the end of the block. Raises :class:`TooDear` where none is free."""
        self._take(user_id)
        try:
            yield
        finally:
            self._leave(user_id)

    def _take(self, user_id: int) -> None:
        with self._lock:
            for used, most, whose in (
                (self._of_user[user_id], settings.DEAR_REQUESTS_PER_USER, "you have"),
                (self._of_user.total(), settings.DEAR_REQUESTS_AT_ONCE, "all users together have"),
            ):
                if used >= most:
                    raise TooDear(
                        "too_many_at_once",
                        f"{whose} {used} requests of this kind under way;"
                        f" a web process takes {most} at once",
                        "wait for one to end; ask for one thing after the other",
                        status=503,
                        retry_after_s=1.0,
                    )
            self._of_user[user_id] += 1

    def _leave(self, user_id: int) -> None:
        with self._lock:
            self._of_user[user_id] -= 1
            if not self._of_user[user_id]:
                del self._of_user[user_id]


#: A sum of times may be off by so much.
_ROUNDING_S = 1e-6


class Buckets:
    """A bucket of requests for each user, refilled at a steady rate: when each is full again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._full_at: dict[int, float] = {}

    def take(self, user_id: int, now: float, *, per_s: float, at_once: int) -> float:
        """Take one request at ``now`` (s); return for how long there is none, s. 0: it was had."""
        with self._lock:
            full_at = max(self._full_at.get(user_id, now), now) + 1.0 / per_s
            wait_s = full_at - now - at_once / per_s
            if wait_s > _ROUNDING_S:
                return wait_s
            if len(self._full_at) > 10_000:
                self._full_at = {key: at for key, at in self._full_at.items() if at > now}
            self._full_at[user_id] = full_at
            return 0.0


_slots = Slots()
_reads, _writes = Buckets(), Buckets()
#: So many seconds' worth of requests may come at once.
_BURST_S = 20


def dear(narrow: str) -> Callable[[F], F]:
    """Mark a view, or a method of a REST view, as expensive: it takes a slot. Its user is known.

    ``narrow`` says which parameters make it cheaper, for whoever has asked for too much.
    """

    return _limited(_with_slot, narrow)


def dear_unless_quick(narrow: str) -> Callable[[F], F]:
    """Mark a reading view that takes a slot only once its statements have taken long.

    It is then begun anew.
    """
    return _limited(_without_slot_if_quick, narrow)


Answer: TypeAlias = Callable[[], HttpResponseBase]


def _limited(run: Callable[[int, str, Answer], HttpResponseBase], narrow: str) -> Callable[[F], F]:
    def decorate(view: F) -> F:
        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> HttpResponseBase:
            request = _request_of(args)
            user_id = request.user.pk or 0
            try:
                _check_rate(_reads, user_id, settings.DEAR_REQUESTS_PER_S)
                return run(user_id, narrow, functools.partial(view, *args, **kwargs))
            except TooDear as error:
                return _answer(request, error)

        return cast(F, limited)

    return decorate


def _with_slot(user_id: int, narrow: str, answer: Answer) -> HttpResponseBase:
    with _slots.hold(user_id), _statements_end(settings.QUERY_TIMEOUT_S, narrow):
        return answer()


def _without_slot_if_quick(user_id: int, narrow: str, answer: Answer) -> HttpResponseBase:
    with suppress(StatementEnded), _statements_end(settings.QUICK_QUERY_S, narrow):
        return answer()
    return _with_slot(user_id, narrow, answer)


class WriteThrottle(BaseThrottle):
    """Has each user change something through the REST API only so often."""

    _wait_s = 0.0

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Say whether the request only reads, or the user may write now."""
        user_id = request.user.pk if request.user else None
        if request.method in SAFE_METHODS or user_id is None:
            return True
        self._wait_s = _take(_writes, user_id, settings.WRITES_PER_S)
        return not self._wait_s

    def wait(self) -> float:
        """Return how long the user is to wait, s."""
        return self._wait_s


class WriteMiddleware:
    """Limits writes by forms of pages likewise. Requests with a token are the throttle's matter."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        is_form = request.method not in SAFE_METHODS and not request.path.startswith("/api/")
        if is_form and request.user.is_authenticated:
            wait_s = _take(_writes, request.user.pk, settings.WRITES_PER_S)
            if wait_s:
                return _answer(request, _too_often(settings.WRITES_PER_S, wait_s))
        return self._get_response(request)


def _request_of(args: tuple[Any, ...]) -> HttpRequest:
    """Return the request of a view, or of a method of one: the first argument, or the second."""
    return cast(HttpRequest, next(each for each in args[:2] if hasattr(each, "META")))


def _check_rate(buckets: Buckets, user_id: int, per_s: float) -> None:
    wait_s = _take(buckets, user_id, per_s)
    if wait_s:
        raise _too_often(per_s, wait_s)


def _take(buckets: Buckets, user_id: int, per_s: float) -> float:
    return buckets.take(user_id, time.monotonic(), per_s=per_s, at_once=_at_once(per_s))


def _at_once(per_s: float) -> int:
    return max(math.floor(per_s * _BURST_S), 1)


def _too_often(per_s: float, wait_s: float) -> TooDear:
    return TooDear(
        "too_many_requests",
        f"of requests of this kind you may make {per_s:g} a second, and {_at_once(per_s)} at once",
        "make fewer of them, or one after the other",
        status=429,
        retry_after_s=wait_s,
    )


@contextmanager
def _statements_end(after_s: float, narrow: str) -> Iterator[None]:
    """Have the database end statements that take longer.

    Raises :class:`StatementEnded` where one was ended. Two round trips.
    """
    _set_timeout(f"{after_s:g}s")
    try:
        yield
    except OperationalError as error:
        if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
            raise
        raise StatementEnded(
            "query_too_dear",
            f"the database was at it for {after_s:g} s, the most that it may be",
            f"ask for less: narrow {narrow}",
            status=503,
            retry_after_s=None,
        ) from error
    finally:
        # Within a transaction that has failed nothing can be set; its rollback does it.
        with suppress(DatabaseError):
            _set_timeout("0")


def _set_timeout(value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, false)", [value])


def _answer(request: HttpRequest, error: TooDear) -> HttpResponse:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    if request.path.startswith("/api/"):
        told = {"code": error.code, "message": str(error), "field": "", "hint": error.hint}
        return JsonResponse({"error": told}, status=error.status, headers=headers)
    text = f"{error}. {error.hint}.\n"
    return HttpResponse(text, status=error.status, content_type="text/plain", headers=headers)
