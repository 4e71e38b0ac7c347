"""The fast path for requests that machines repeat all the time: before Django.

What Django does for a request costs more than such an answer. Whatever is not a plain good request
is handed on to the view of the same address.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias

from django.conf import settings

from telemetry.ingest.errors import JSON
from telemetry.middleware import GUARDS

__all__ = ["Application", "Environ", "FastPath"]

Environ: TypeAlias = dict[str, Any]
Application: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

_HEADERS = [("Content-Type", JSON), ("Cache-Control", "no-store"), *GUARDS]


class FastPath(ABC):
    """A WSGI application that answers GETs of ``path`` and hands all else to ``behind``.

    ``answered`` is called with the seconds that each answer took, for the metrics of HTTP.
    """

    path: ClassVar[str]

    def __init__(self, behind: Application, answered: Callable[[float], None]) -> None:
        self._behind = behind
        self._answered = answered

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != self.path or not _may_be_answered(environ):
            return self._behind(environ, start_response)
        started = time.perf_counter()
        try:
            body = self.answer(environ)
        except Exception:
            # It is tried once more where what is wrong has an answer.
            body = None
        if body is None:
            return self._behind(environ, start_response)
        self._answered(time.perf_counter() - started)
        start_response("200 OK", [*_HEADERS, ("Content-Length", str(len(body)))])
        return [body]

    @abstractmethod
    def answer(self, environ: Environ) -> bytes | None:
        """Return the body of the answer, as JSON; None: it is for the view. May raise anything."""


def _may_be_answered(environ: Environ) -> bool:
    """Say whether it is a GET, by TLS where that is asked for."""
    is_safe = not settings.BEHIND_TLS or environ.get("HTTP_X_FORWARDED_PROTO") == "https"
    return environ["REQUEST_METHOD"] == "GET" and is_safe
