"""Answers to polls: small, compressed, and empty when nothing changed."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

import msgspec
import zstandard
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.cache import patch_vary_headers

from accounts.edge.visible import visible
from dashboard import exports

T = TypeVar("T")


class Made(Protocol):
    """A state of things to show, at one moment: dashboard.state.View, dashboard.moments.Moment."""

    @property
    def version(self) -> str:
        """The version of the state: changes with it."""

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return ``make()``, kept by ``key`` for as long as the state is shown."""


#: A view says by this header that its answer is the same for all who get it. The front door then
#: gives it to others whom Django has answered there, and never sends the header on. What depends
#: on its reader must not have it.
SHARED = "X-Headroom-Shared"
#: Shorter bodies are sent as they are, bytes.
_LEAST_BYTES = 200


def json_of(
    request: HttpRequest, view: Made, key: tuple[Hashable, ...], make: Callable[[], Any]
) -> HttpResponse:
    """Answer with JSON made once per view and ``key``, or 304 when the client has it."""
    etag = f'W/"{view.version}"'
    if request.headers.get("If-None-Match") == etag:
        response: HttpResponse = HttpResponseNotModified()
    else:
        response = _compressed(request, view, key, lambda: msgspec.json.encode(make()))
        response["Content-Type"] = "application/json"
    response["ETag"] = etag
    patch_vary_headers(response, ["Accept-Encoding", "Cookie"])
    return response


def panel_of(
    request: HttpRequest, view: Made, key: tuple[Hashable, ...], make: Callable[[], str]
) -> HttpResponse:
    """Answer with HTML made once per view and ``key``, the same for everybody; or 204."""
    if exports.is_going_on():
        return HttpResponse(make())
    if (same := unchanged(request, view.version)) is not None:
        return same
    return _compressed(request, view, key, lambda: make().encode())


def _compressed(
    request: HttpRequest, view: Made, key: tuple[Hashable, ...], make: Callable[[], bytes]
) -> HttpResponse:
    """Compress here and not by a middleware.

    These answers hold no secret that could be told by how well it compresses with what an attacker
    chooses (BREACH); whole pages do, their CSRF token.
    """
    body = view.once(("plain", *key), lambda: visible(make()))
    encoding = _encoding(request) if len(body) >= _LEAST_BYTES else ""
    if not encoding:
        return HttpResponse(body)
    response = HttpResponse(view.once((encoding, *key), lambda: _ENCODERS[encoding](body)))
    response["Content-Encoding"] = encoding
    return response


_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": lambda body: zstandard.ZstdCompressor(level=3).compress(body),
    "gzip": lambda body: gzip.compress(body, compresslevel=5, mtime=0),
}


def _encoding(request: HttpRequest) -> str:
    """Return the best encoding that the client takes, or nothing."""
    accepted: dict[str, str] = {}
    for part in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, parameter = part.partition(";")
        accepted[name.strip()] = parameter.replace(" ", "")
    for name in _ENCODERS:
        if name in accepted and accepted[name] not in ("q=0", "q=0.0"):
            return name
    return ""


def shared(response: HttpResponse) -> HttpResponse:
    """Mark an answer as shared: the same for all who get it."""
    response[SHARED] = "1"
    return response


def unchanged(request: HttpRequest, version: str) -> HttpResponse | None:
    """Return 204, by which htmx swaps nothing, when the client's ``?v=`` is the present version."""
    is_same = request.GET.get("v") == version and not exports.is_going_on()
    return HttpResponse(status=204) if is_same else None
