"""Authentication of the REST API: by a user's token, or else the session of the pages."""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from accounts import tokens
from accounts.addresses import client_address
from accounts.models import ApiToken, User


class ApiTokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer hru_…``. An agent's token opens only the telemetry endpoints."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return the token's user, or None where the request carries no token of a user."""
        secret = tokens.from_header(request.headers.get("Authorization", ""))
        if not secret or secret.startswith(tokens.AGENT_PREFIX):
            return None
        token = ApiToken.opened_by(secret)
        if token is None:
            raise AuthenticationFailed("This token is unknown, over or revoked.", "token_refused")
        token.note_use(client_address(request))
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """Return the header WWW-Authenticate of a 401."""
        return 'Bearer realm="headroom"'
