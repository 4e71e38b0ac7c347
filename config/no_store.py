"""``Cache-Control`` for all answers: neither browsers nor proxies keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest, HttpResponseBase

#: Polls that are answered with 304 do not need a cache either: the page holds the ETag itself.
NO_STORE: Final = "private, no-store"


class NoStoreMiddleware:
    """Sets ``Cache-Control: private, no-store`` on every answer of a view.

    Also where nobody is logged in, since what a page shows may change with that. Files under
    /static/ are answered before this one, and may be kept for good.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if "no-store" not in response.get("Cache-Control", ""):
            response["Cache-Control"] = NO_STORE
        return response
