"""One Redfish service: authentication, and GET."""

from __future__ import annotations

import contextlib
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from headroom.agent.sources.http import Http
from headroom.agent.sources.periodic import SourceError
from headroom.agent.sources.redfish.readings import Document

__all__ = ["Credentials", "Service"]

_SESSIONS = "/redfish/v1/SessionService/Sessions"
#: How long a service that refuses our password is left alone, s: many lock an account after a few
#: wrong ones.
_LOCKED_OUT_S = 600.0


@dataclass(frozen=True)
class Credentials:
    """A user of the service. The password is never shown."""

    username: str
    password: str = field(repr=False)


class Service:
    """One service. With ``auth`` session, one session is opened, kept, and closed in the end."""

    def __init__(
        self,
        url: str,
        http: Http,
        *,
        credentials: Credentials | None,
        auth: Literal["session", "basic"],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._http = http
        self._credentials = credentials
        self._auth = auth
        self._monotonic = monotonic
        self._token = ""
        self._session = ""
        self._not_before = 0.0

    def get(self, path: str) -> Document:
        """Return the resource at ``path``. Raises :class:`SourceError`."""
        if self._monotonic() < self._not_before:
            raise SourceError(f"{self._url} refused the user name or password; left alone for now")
        status, body = self._get(path)
        if status == 401 and self._token:  # the session is over
            self._token = ""
            status, body = self._get(path)
        if status == 401:
            raise self._locked_out()
        if status != 200:
            raise SourceError(f"{self._url}{path} answers {status}")
        return self._decoded(path, body)

    def close(self) -> None:
        """Close the session, for services keep but a few, and the connection."""
        if self._token and self._session:
            with contextlib.suppress(SourceError):
                self._http.request("DELETE", self._url + self._session, headers=self._headers())
        self._token = ""
        self._http.close()

    def _get(self, path: str) -> tuple[int, bytes]:
        status, _, body = self._http.request("GET", self._url + path, headers=self._headers())
        return status, body

    def _headers(self) -> Mapping[str, str]:
        known = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._credentials is None:
            return known
        if self._auth == "basic":
            pair = f"{self._credentials.username}:{self._credentials.password}"
            return known | {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
        if not self._token:
            self._log_in(self._credentials)
        return known | {"X-Auth-Token": self._token}

    def _log_in(self, credentials: Credentials) -> None:
        document = {"UserName": credentials.username, "Password": credentials.password}
        status, headers, body = self._http.request(
            "POST",
            self._url + _SESSIONS,
            headers={"Content-Type": "application/json", "OData-Version": "4.0"},
            body=msgspec.json.encode(document),
        )
        if status in (400, 401, 403):
            raise self._locked_out()
        token = headers.get("X-Auth-Token")
        if status not in (200, 201) or not token:
            raise SourceError(f"{self._url} opens no session: it answers {status}")
        self._token = token
        # A path, or a whole URL: of another host it would be nobody's business.
        self._session = urlsplit(headers.get("Location") or _place_of(body)).path

    def _locked_out(self) -> SourceError:
        self._token = ""
        self._not_before = self._monotonic() + _LOCKED_OUT_S
        return SourceError(
            f"{self._url} refuses the user name or password; "
            f"tried again in {_LOCKED_OUT_S / 60:.0f} min"
        )

    def _decoded(self, path: str, body: bytes) -> Document:
        try:
            found = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise SourceError(f"{self._url}{path} is no JSON: {exc}") from exc
        if not isinstance(found, dict):
            raise SourceError(f"{self._url}{path} is no resource")
        return found


def _place_of(body: bytes) -> str:
    """Return where a session that was opened lies, as its resource says; "" where it does not."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    place = found.get("@odata.id") if isinstance(found, dict) else None
    return place if isinstance(place, str) else ""
