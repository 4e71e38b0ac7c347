"""The guard of pages: the capability that a view requires."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, HttpResponseBase

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest

    from accounts.roles import Capability


class View(Protocol):
    def __call__(
        self, request: HttpRequest, /, *args: object, **kwargs: object
    ) -> HttpResponseBase: ...


def requires(capability: Capability) -> Callable[[Callable[..., HttpResponseBase]], View]:
    """Let only users with ``capability`` through.

    Others get the 403 page; who is not logged in goes to the login page and back here after it.
    """

    def decorate(view: Callable[..., HttpResponseBase]) -> View:
        @functools.wraps(view)
        def guarded(request: HttpRequest, /, *args: object, **kwargs: object) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _to_login(request)
            if not request.user.can(capability):
                raise PermissionDenied(request.user.why_not(capability))
            return view(request, *args, **kwargs)

        return guarded

    return decorate


def _to_login(request: HttpRequest) -> HttpResponseBase:
    """Send the browser to the login page, also when only a part of a page was asked for.

    Else the login form would be swapped into a panel, or read as data, once a session has ended.
    """
    if request.headers.get("HX-Request") == "true":
        page = urlsplit(request.headers.get("HX-Current-URL", ""))
        back = f"{page.path}?{page.query}" if page.query else page.path
        response = HttpResponse(status=401)
        response["HX-Redirect"] = redirect_to_login(back or "/").url
        return response
    if request.headers.get("Sec-Fetch-Dest") == "empty":
        return HttpResponse("not logged in\n", status=401, content_type="text/plain")
    return redirect_to_login(request.get_full_path())
