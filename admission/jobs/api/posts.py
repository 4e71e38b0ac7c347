"""The fast paths for jobs that are submitted with a token.

What Django does for a request costs as much as the job itself. Submissions that come at the same
moment share one thread and one transaction, before Django. Whatever is not plainly right is handed
on, past what serves pages: the view says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from django.db import DataError, IntegrityError
from django.http import HttpRequest, HttpResponseBase
from django.urls import resolve, reverse
from django.utils import timezone
from rest_framework.renderers import JSONRenderer

from accounts import tokens
from accounts.models import ApiToken
from admission.jobs.api import answers
from admission.jobs.saving import NewJob
from admission.jobs.submission import Submission, submit_all
from headroom.jobs import reading
from headroom.jobs.reading import SpecError
from telemetry.middleware import GUARDS, guarded

__all__ = ["HEADERS", "PATH", "Post", "SubmissionMiddleware", "Taken", "is_one", "take_all"]

PATH: Final = "/api/v1/jobs"
#: Of the answer to a job that was taken, which is 201.
HEADERS: Final = [
    ("Content-Type", reading.JSON),
    ("Cache-Control", "private, no-store"),
    *GUARDS,
]
#: Answers are JSON. Who asks for anything else hears so from the view.
_ACCEPTED = ("", "*/*", reading.JSON)


@dataclass(frozen=True, slots=True)
class Post:
    """A submission as it came. ``address`` is that of its sender."""

    secret: str
    idempotency_key: str
    body: bytes
    address: str | None


@dataclass(frozen=True, slots=True)
class Taken:
    """The body of the answer to a job that was taken, and the key of its user."""

    body: bytes
    user_id: int


class Headers(Protocol):
    """Headers of a request, their names in small letters."""

    def get(self, name: str, default: str, /) -> Any: ...


def is_one(method: str, path: str, query: str, headers: Headers) -> bool:
    """Say whether a request may be taken here: a job as JSON, with the token of a user."""
    if method != "POST" or path != PATH or query or headers.get("content-encoding", ""):
        return False
    secret = tokens.from_header(headers.get("authorization", ""))
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return (
        secret.startswith(tokens.USER_PREFIX)
        and kind == reading.JSON
        and headers.get("accept", "") in _ACCEPTED
        and _is_for_us(headers.get("host", ""), headers.get("x-forwarded-host", ""))
    )


@lru_cache(maxsize=64)
def _is_for_us(host: str, forwarded: str) -> bool:
    request = HttpRequest()
    request.META = {"HTTP_HOST": host} | ({"HTTP_X_FORWARDED_HOST": forwarded} if forwarded else {})
    try:
        request.get_host()
    except Exception:  # what Django says of it, it says to the client
        return False
    return True


def take_all(posts: Sequence[Post]) -> list[Taken | None]:
    """Take the good ones among ``posts``; None for each that is handed on.

    Raises what the database raises where nobody knows what became of them.
    """
    found = _submissions(posts)
    taken: list[Taken | None] = [None] * len(posts)
    try:
        new = submit_all(list(found.values()))
    except (DataError, IntegrityError):
        # Postgres refused to store something of one, and so all. Alone the others pass.
        return taken
    for (place, given), made in zip(found.items(), new, strict=True):
        if made is not None:
            taken[place] = Taken(_answer(made), given.user.pk)
    return taken


def _submissions(posts: Sequence[Post]) -> dict[int, Submission]:
    """Return, by place, those that can be read, of users who are known. One query."""
    known = ApiToken.opened_by_any({post.secret for post in posts})
    found = {}
    for place, post in enumerate(posts):
        token = known.get(post.secret)
        if token is None:
            continue
        try:
            spec = reading.read(post.body)
        except SpecError:
            continue
        token.note_use(post.address)
        key = post.idempotency_key[:200]
        found[place] = Submission(spec, token.user, timezone.now(), key)
    return found


def _answer(new: NewJob) -> bytes:
    rendered: bytes = JSONRenderer().render(answers.job(new.job, new.phases))
    return rendered


# --- Through Django -----------------------------------------------------------------------------


class SubmissionMiddleware:
    """Has a job taken before the middleware that serve pages, from session to CSP.

    Thousands are submitted within a minute, and who brings a token needs none of them. Who it is,
    what they may do, and what is wrong is the view's matter here as there.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._path = reverse("job-list")
        self._match = resolve(self._path)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not self._is_submission(request):
            return self._get_response(request)
        request.get_host()  # raises DisallowedHost, as it does on the long way
        request.resolver_match = self._match
        return guarded(self._match.func(request).render())

    def _is_submission(self, request: HttpRequest) -> bool:
        if request.path_info != self._path or request.method != "POST":
            return False
        secret = tokens.from_header(request.headers.get("Authorization", ""))
        # Whatever comes with another one may yet be known by its session.
        return secret.startswith(tokens.USER_PREFIX)
