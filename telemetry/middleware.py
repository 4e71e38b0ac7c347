"""The short way for batches."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from django.urls import resolve, reverse

from telemetry import views

#: What the middleware that are left out would say of an answer that no browser is to show.
_GUARDS = {"Content-Security-Policy": "default-src 'none'", "X-Frame-Options": "DENY"}


class IngestMiddleware:
    """Answers a batch before the middleware that serve pages: session, user, CSRF, CSP.

    A batch has a token of its own and needs none of them, and together they cost as much as taking
    it. What has to hold for it too (TLS, metrics, logs) stands before this one in the settings.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._path = reverse("telemetry")
        self._match = resolve(self._path)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info != self._path:
            return self._get_response(request)
        request.resolver_match = self._match
        response = views.push(request)
        for name, value in _GUARDS.items():
            response[name] = value
        return response
