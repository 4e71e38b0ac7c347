"""The REST API of a VTN, as far as a VEN needs it: OAuth 2 client credentials, events, reports.

A token is kept by the process until it is about to end, or the VTN refuses it. Neither it nor the
secret is ever written to the log or the database.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session

from accounts.edge.answers import BadAnswer, read_within
from accounts.edge.safe_urls import is_safe
from admission.curtailments.openadr.events import Event, Program

__all__ = ["Access", "Vtn", "VtnError"]

T = TypeVar("T")

#: The most that one answer may hold, and the pages that are asked for.
_MOST_BYTES = 4 * 1024 * 1024
_PAGE, _MOST_PAGES = 50, 40
#: A token that ended early or was taken back is refused with either: 3.0.1 knows no 401.
_REFUSED = (401, 403)
#: A token is fetched anew so long before it ends, s; without an end it serves for so long.
_EARLY_S, _SERVES_S = 30.0, 600.0


class VtnError(Exception):
    """The VTN cannot be reached, or its answer cannot be used. Says nothing secret."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Where the VTN is, and who asks."""

    url: str
    token_url: str
    client_id: str
    secret: str
    scopes: str
    timeout_s: float

    def __repr__(self) -> str:
        return f"Access({self.url!r}, {self.client_id!r})"


class Vtn:
    """A VTN. One token for all requests."""

    def __init__(self, access: Access) -> None:
        """Raises :class:`VtnError` for addresses that secrets must not be sent to."""
        for url in (access.url, access.token_url):
            if not is_safe(url):
                raise VtnError(f"{url} is not https")
        self._access = access
        self._token, self._until = "", 0.0

    def programs(self) -> list[Program]:
        """Return the programs of the VTN. Raises :class:`VtnError`."""
        return self._pages("programs", {}, Program)

    def events(self, program_id: str) -> list[Event]:
        """Return the events of a program. Raises :class:`VtnError`."""
        return self._pages("events", {"programID": program_id}, Event)

    def report(self, body: dict[str, Any]) -> None:
        """Send a report; one that is there already is left. Raises :class:`VtnError`."""
        self._request("POST", "reports", json=body, accepted=(200, 201, 409))

    def _pages(self, path: str, params: dict[str, Any], kind: type[T]) -> list[T]:
        found: list[T] = []
        for page in range(_MOST_PAGES):
            asked = {**params, "skip": page * _PAGE, "limit": _PAGE}
            body = self._request("GET", path, params=asked)
            try:
                here: Sequence[T] = msgspec.json.decode(body, type=list[kind])  # type: ignore[valid-type]
            except msgspec.DecodeError as error:
                raise VtnError(f"{path}: the answer cannot be read: {error}") from error
            found += here
            if len(here) < _PAGE:
                return found
        raise VtnError(f"{path}: there are more than {_MOST_PAGES * _PAGE}")

    def _request(
        self, method: str, path: str, *, accepted: Sequence[int] = (200,), **given: Any
    ) -> bytes:
        status, body = self._send(method, path, **given)
        if status in _REFUSED:
            self._token = ""
            status, body = self._send(method, path, **given)
        if status not in accepted:
            raise VtnError(f"{method} {path} was answered with {status}")
        return body

    def _send(self, method: str, path: str, **given: Any) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._fresh_token()}", "Accept": "application/json"}
        try:
            with requests.request(
                method, f"{self._access.url.rstrip('/')}/{path}", headers=headers,
                timeout=self._access.timeout_s, stream=True, allow_redirects=False, **given,
            ) as answer:  # fmt: skip
                return answer.status_code, self._read(answer, path)
        except requests.RequestException as error:
            # Its text may hold the address with all that is asked, but no header.
            raise VtnError(f"{method} {path} failed: {type(error).__name__}") from error

    def _read(self, answer: requests.Response, path: str) -> bytes:
        try:
            return read_within(answer, _MOST_BYTES, 2.0 * self._access.timeout_s)
        except BadAnswer as error:
            raise VtnError(f"{path}: {error}") from error

    def _fresh_token(self) -> str:
        if self._token and time.monotonic() < self._until:
            return self._token
        access = self._access
        try:
            with OAuth2Session(
                access.client_id, access.secret, scope=access.scopes or None,
                token_endpoint_auth_method="client_secret_post",  # noqa: S106 - a method's name
                default_timeout=access.timeout_s,
            ) as session:  # fmt: skip
                found = session.fetch_token(access.token_url, grant_type="client_credentials")
        except OAuthError as error:
            raise VtnError(f"no token: {error.error}") from error
        except (requests.RequestException, ValueError) as error:
            raise VtnError(f"no token: {type(error).__name__}") from error
        token, lasts_s = found.get("access_token"), found.get("expires_in")
        if not isinstance(token, str) or not token:
            raise VtnError("no token: the answer has none")
        serves_s = float(lasts_s) if isinstance(lasts_s, int | float) else _SERVES_S
        self._token, self._until = token, time.monotonic() + max(serves_s - _EARLY_S, 1.0)
        return token
