"""The fast path for batches."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import resolve, reverse

#: What the middleware that are left out would say of an answer that no browser is to show.
GUARDS = (
    ("Content-Security-Policy", "default-src 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
#: Names of the URLs that go the fast path.
_SHORT = ("telemetry", "telemetry-layouts", "prometheus-write", "otlp-metrics")


class IngestMiddleware:
    """Answers ingest requests before the middleware that serves pages, from session to CSP.

    It has a token of its own and needs none of them, and together they cost as much as taking a
    batch. What has to hold for it too (TLS, metrics, logs) stands before this one in the settings.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._short = {path: resolve(path) for path in map(reverse, _SHORT)}

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        match = self._short.get(request.path_info)
        if match is None:
            return self._get_response(request)
        request.resolver_match = match
        return guarded(match.func(request))


def guarded(response: HttpResponseBase) -> HttpResponseBase:
    """Return an answer with the headers that the middleware which are left out would set."""
    if isinstance(response, HttpResponse):
        # Else the answer would be chunked, which is more than a thin client may know.
        response["Content-Length"] = str(len(response.content))
    for name, value in GUARDS:
        response[name] = value
    return response
