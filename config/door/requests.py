"""A request by its headers, and as a WSGI environment."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from django.conf import settings

from accounts import tokens
from accounts.addresses import address_of, network_of

if TYPE_CHECKING:
    from config.door.protocol import Scope

__all__ = ["Environ", "Readable", "Request"]

Environ: TypeAlias = dict[str, Any]


class Readable(Protocol):
    """The methods that ``wsgi.input`` needs."""

    def read(self, size: int = -1, /) -> bytes: ...

    def readline(self, size: int = -1, /) -> bytes: ...


#: What ways in that ask for an agent's token begin with.
_WAYS_OF_AGENTS = (
    "/api/v1/telemetry",
    "/api/v1/prometheus/",
    "/api/v1/otlp/",
    "/api/v1/limits",
    "/api/v1/work",
)
#: CGI has these two without HTTP_.
_PLAIN = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}
_BASE: Environ = {
    "GATEWAY_INTERFACE": "CGI/1.1",
    "SCRIPT_NAME": "",
    "SERVER_SOFTWARE": "Granian",
    "wsgi.errors": sys.stderr,
    "wsgi.input_terminated": True,
    "wsgi.multiprocess": True,
    "wsgi.multithread": True,
    "wsgi.run_once": False,
    "wsgi.version": (1, 0),
}


class Request:
    """A request whose body has not been read."""

    __slots__ = ("authorization", "headers", "length", "method", "path", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.headers = scope.headers
        self.method = scope.method
        self.path = scope.path
        self.authorization: str = self.headers.get("authorization", "")
        #: the bytes of its body, as announced; None: it comes in chunks, and nobody knows
        self.length = self._length()

    def _length(self) -> int | None:
        if "transfer-encoding" in self.headers:
            return None
        # More than digits does not come through the HTTP server.
        return int(self.headers.get("content-length", 0))

    @property
    def token(self) -> str:
        """The bearer token, or an empty string."""
        return tokens.from_header(self.authorization)

    @property
    def is_for_agents(self) -> bool:
        """Whether its path is for agents alone."""
        return self.path.startswith(_WAYS_OF_AGENTS)

    @property
    def is_by_tls(self) -> bool:
        """Whether it came by TLS where that is asked for."""
        return not settings.BEHIND_TLS or self.headers.get("x-forwarded-proto") == "https"

    @property
    def address(self) -> str | None:
        """The address of the sender."""
        forwarded = self._joined("x-forwarded-for") if settings.PROXY_COUNT else ""
        return address_of(forwarded, _host(self.scope.client), settings.PROXY_COUNT)

    @property
    def origin(self) -> str:
        """The network of the sender, by which requests without an agent's token are counted."""
        return network_of(self.address) or ""

    def _joined(self, name: str) -> str:
        return ",".join(value for given, value in self.headers.items() if given == name)

    def environ(self, body: bytes | Readable) -> Environ:
        """Return the request as a WSGI environment, with ``body``."""
        scope = self.scope
        server, _, port = scope.server.rpartition(":")
        environ = _BASE | {
            "REQUEST_METHOD": self.method,
            # WSGI has bytes of UTF-8, one to a character.
            "PATH_INFO": self.path.encode().decode("latin-1"),
            "QUERY_STRING": scope.query_string,
            "REMOTE_ADDR": _host(scope.client),
            "SERVER_NAME": server.strip("[]"),
            "SERVER_PORT": port,
            "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
            "wsgi.input": io.BytesIO(body) if isinstance(body, bytes) else body,
            "wsgi.url_scheme": scope.scheme,
        }
        for name, value in self.headers.items():
            self._add_header(environ, name, value)
        return environ

    @staticmethod
    def _add_header(environ: Environ, name: str, value: str) -> None:
        if "_" in name:
            # In CGI X_Forwarded_For would pass for X-Forwarded-For.
            return
        key = _PLAIN.get(name) or f"HTTP_{name.upper().replace('-', '_')}"
        given = environ.get(key)
        glue = "; " if name == "cookie" else ","
        environ[key] = value if given is None else f"{given}{glue}{value}"


def _host(address: str) -> str:
    """Return the host of ``host:port``, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")
