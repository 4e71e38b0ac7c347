"""Refusal of the character NUL in requests, which Postgres takes nowhere.

One place for all that a request is made of but its body. Of bodies, forms are looked at here, and
documents where they are read (:mod:`accounts.edge.bodies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from config import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponseBase
    from django.utils.datastructures import MultiValueDict

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class NulMiddleware:
    """Answers 404 where NUL stands in the path, and 400 where it stands in anything else.

    It comes behind the check of the CSRF token, which reads forms before any view.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "\0" in request.path:
            return errors.not_found(request)
        if place := _place(request):
            return errors.refused(request, place, "NUL is no character of any value here.")
        return self._get_response(request)

    def process_view(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        if request.method != "POST" or request.content_type not in _FORMS:
            return None
        name = _field(request.POST) or _field(request.FILES)
        if name is None:
            return None
        return errors.refused(request, name, "NUL is no character of any value here.")


def _place(request: HttpRequest) -> str:
    """Return the part of the request that holds NUL; empty: none does."""
    query = request.META.get("QUERY_STRING", "")
    if "%00" in query or "\0" in query:
        return _field(request.GET) or "query"
    # A cookie in quotes has escapes.
    if any("\0" in value for value in request.COOKIES.values()):
        return "Cookie"
    return ""


def _field(fields: MultiValueDict[str, Any]) -> str | None:
    """Return the name of a field with NUL in its name or one of its values."""
    for name, values in fields.lists():
        texts = (name, *(v if isinstance(v, str) else str(v.name) for v in values))
        if any("\0" in text for text in texts):
            return name.replace("\0", "")
    return None
