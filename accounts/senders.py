"""Is somebody known who sends a request? For who must be asked before its body is read."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.wsgi import WSGIRequest

from accounts import tokens
from accounts.models import ApiToken

__all__ = ["is_known"]


def is_known(environ: dict[str, Any]) -> bool:
    """Say whether a WSGI request has a user's API token or a live session. It reads no body.

    One query for a token, two for a session.
    """
    secret = tokens.from_header(environ.get("HTTP_AUTHORIZATION", ""))
    if secret:
        return ApiToken.opened_by(secret) is not None
    request = WSGIRequest(environ)
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if not key:
        return False
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    return bool(get_user(request).is_authenticated)
