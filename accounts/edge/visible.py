"""Odd characters made visible: names that are older than the check of names stay readable.

A control character shows nothing, and one that turns the direction of writing shows another name
than there is. On pages, and in what pages poll, each stands as ``⟨U+202E⟩``: nothing that HTML
or JSON would read. The REST API tells names as they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponseBase

#: In UTF-8. Line breaks and tabs are how a page is written.
_ODD = re.compile(
    rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xaa-\xae]"
    rb"|\xe2\x81[\xa6-\xa9]"
)


def visible(body: bytes) -> bytes:
    """Return a page, or JSON, with odd characters spelled out. Other answers stay as they are."""
    return _ODD.sub(_spelled, body)


def _spelled(match: re.Match[bytes]) -> bytes:
    return f"⟨U+{ord(match[0].decode()):04X}⟩".encode()


class VisibleMiddleware:
    """Spells odd characters out on every page that is not compressed already."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        is_page = response.get("Content-Type", "").startswith("text/html")
        if is_page and not response.streaming and "Content-Encoding" not in response:
            page = getattr(response, "content", b"")
            shown = visible(page)
            if shown != page:
                response.content = shown  # type: ignore[attr-defined]
        return response
