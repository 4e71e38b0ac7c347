"""Speaking with the identity provider: OpenID Connect, authorization code with PKCE."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

import msgspec
import requests
from authlib.common.security import generate_token
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from django.conf import settings
from django.core.cache import cache
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from accounts.edge.safe_urls import is_safe
from accounts.sign_on import tokens
from accounts.sign_on.errors import ProviderAwayError, SignOnError, TokenRefusedError

if TYPE_CHECKING:
    from joserfc.jwk import KeySetSerialization

__all__ = ["Metadata", "Secrets", "ask", "discover", "end_session_url", "is_configured", "redeem"]

#: What the provider says of itself is asked for again after this long, s.
_KEPT_S = 300
_METADATA, _KEYS, _AWAY = "sign_on.metadata", "sign_on.keys", "sign_on.away"
#: One that did not answer is left alone for this long, s: whoever asks would hold a thread.
_LEFT_ALONE_S = 5


class Metadata(msgspec.Struct, frozen=True):
    """The fields of the provider's discovery document that are used here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


@dataclass(frozen=True)
class Secrets:
    """The secrets of one sign-on: for us, in the ID token, at the token endpoint."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def make(cls) -> Secrets:
        return cls(generate_token(32), generate_token(32), generate_token(64))


def is_configured() -> bool:
    """Say whether there is a provider."""
    return bool(settings.OIDC_ISSUER and settings.OIDC_CLIENT_ID)


def discover() -> Metadata:
    """Return the provider's metadata, at most five minutes old."""
    away = cache.get(_AWAY)
    if away is not None:
        raise ProviderAwayError(away)
    try:
        return cast("Metadata", cache.get_or_set(_METADATA, _fetch_metadata, _KEPT_S))
    except ProviderAwayError as error:
        cache.set(_AWAY, error.detail, _LEFT_ALONE_S)
        raise


def ask(secrets: Secrets, back: str) -> str:
    """Return the URL of the provider for a browser that is to come back to ``back``."""
    metadata = discover()
    with _client(metadata, back) as client:
        url, _ = client.create_authorization_url(
            metadata.authorization_endpoint,
            state=secrets.state,
            nonce=secrets.nonce,
            code_verifier=secrets.verifier,
        )
    return str(url)


def redeem(code: str, secrets: Secrets, back: str) -> dict[str, Any]:
    """Return the claims about the person who came back with ``code``."""
    metadata = discover()
    with _client(metadata, back) as client:
        token = _answered(lambda: _fetch_token(client, metadata, code, secrets))
        claims = _read(token, metadata, secrets)
        if settings.OIDC_GROUPS_CLAIM not in claims and metadata.userinfo_endpoint:
            claims = {**_user_info(client, metadata.userinfo_endpoint, claims["sub"]), **claims}
    return claims


def end_session_url(back: str) -> str | None:
    """Return the URL that ends the session at the provider, if it has one."""
    endpoint = discover().end_session_endpoint
    if endpoint is None or not is_safe(endpoint):
        return None
    query = urlencode({"client_id": settings.OIDC_CLIENT_ID, "post_logout_redirect_uri": back})
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"


def _client(metadata: Metadata, back: str) -> OAuth2Session:
    basic = "client_secret_basic" in metadata.token_endpoint_auth_methods_supported
    method = "client_secret_basic" if basic else "client_secret_post"
    return OAuth2Session(
        settings.OIDC_CLIENT_ID,
        settings.OIDC_CLIENT_SECRET or None,
        token_endpoint_auth_method=method if settings.OIDC_CLIENT_SECRET else "none",
        scope=" ".join(settings.OIDC_SCOPES),
        redirect_uri=back,
        code_challenge_method="S256",
        default_timeout=settings.OIDC_TIMEOUT_S,
    )


def _fetch_token(
    client: OAuth2Session, metadata: Metadata, code: str, secrets: Secrets
) -> dict[str, Any]:
    try:
        token: dict[str, Any] = client.fetch_token(
            metadata.token_endpoint,
            grant_type="authorization_code",
            code=code,
            code_verifier=secrets.verifier,
        )
    except OAuthError as error:
        raise SignOnError(
            "code_refused", "The identity provider took the sign-on back. Begin again."
        ) from error
    return token


def _read(token: dict[str, Any], metadata: Metadata, secrets: Secrets) -> dict[str, Any]:
    id_token, access_token = token.get("id_token"), token.get("access_token")
    if not isinstance(id_token, str) or not isinstance(access_token, str):
        raise TokenRefusedError("no_id_token")
    expected = tokens.Expected(
        issuer=metadata.issuer,
        client_id=settings.OIDC_CLIENT_ID,
        nonce=secrets.nonce,
        access_token=access_token,
        clock_skew_s=settings.OIDC_CLOCK_SKEW_S,
    )
    try:
        return tokens.read(id_token, _keys(metadata), expected, int(time.time()))
    except tokens.UnknownKeyError:
        cache.delete(_KEYS)
    try:
        return tokens.read(id_token, _keys(metadata), expected, int(time.time()))
    except tokens.UnknownKeyError:
        raise TokenRefusedError("bad_signature") from None


def _user_info(client: OAuth2Session, endpoint: str, subject: str) -> dict[str, Any]:
    """Return the provider's claims about ``subject`` beside the ID token."""
    claims = _answered(lambda: _json(client.get(_safe(endpoint))))
    if claims.get("sub") != subject:
        raise TokenRefusedError("bad_userinfo")
    return claims


def _keys(metadata: Metadata) -> KeySet:
    document = cache.get_or_set(_KEYS, lambda: _fetch(metadata.jwks_uri), _KEPT_S)
    try:
        return KeySet.import_key_set(cast("KeySetSerialization", document))
    except (JoseError, KeyError, TypeError, ValueError) as error:
        raise ProviderAwayError(f"{metadata.jwks_uri} is no set of keys") from error


def _fetch_metadata() -> Metadata:
    url = f"{settings.OIDC_ISSUER}/.well-known/openid-configuration"
    try:
        metadata = msgspec.convert(_fetch(url), Metadata)
    except msgspec.ValidationError as error:
        raise ProviderAwayError(f"{url}: {error}") from error
    if metadata.issuer.rstrip("/") != settings.OIDC_ISSUER:
        raise ProviderAwayError(f"{url} is of another issuer: {metadata.issuer}")
    for each in (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri):
        _safe(each)
    return metadata


def _fetch(url: str) -> dict[str, Any]:
    return _answered(lambda: _json(requests.get(_safe(url), timeout=settings.OIDC_TIMEOUT_S)))


def _json(response: requests.Response) -> dict[str, Any]:
    response.raise_for_status()
    return msgspec.convert(response.json(), dict[str, Any])


def _answered(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the provider's answer; all faults on the way are raised as the provider being away."""
    try:
        return call()
    except (requests.RequestException, msgspec.ValidationError, ValueError) as error:
        raise ProviderAwayError(str(error)) from error


def _safe(url: str) -> str:
    if not is_safe(url):
        raise ProviderAwayError(f"{url} is not https")
    return url
