"""Posting to addresses that people gave: bounded in time and size, and never to our own network.

Whoever may set an address could otherwise have the server fetch from what only the server reaches:
its own ports, machines beside it, the metadata service of a cloud. So names are resolved here, each
address that comes back is checked, and the connection goes to the very address that was checked.
Redirects are not followed.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

__all__ = [
    "Answer",
    "Forbidden",
    "SendingError",
    "Unreachable",
    "allowed_networks",
    "check_url",
    "post",
    "sign",
]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Of an answer no more is read than this, byte.
_MAX_ANSWER = 16_384
#: The longest that a server can ask us to wait, s.
MAX_RETRY_AFTER_S = 3600.0
#: Of the addresses of a name, so many are tried.
_MAX_ADDRESSES = 3
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class SendingError(Exception):
    """Nothing was sent, or nothing that counts. ``is_final``: trying again is of no use."""

    is_final = False


class Forbidden(SendingError):
    """The address is none that notifications may go to."""

    is_final = True


class Unreachable(SendingError):
    """There was no answer within the time."""


@dataclass(frozen=True)
class Answer:
    """The answer of the other side."""

    status: int
    text: str
    #: how long it asks us to wait, s
    retry_after_s: float | None = None

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_final(self) -> bool:
        """Say whether the same request would be refused again."""
        return 300 <= self.status < 500 and self.status not in (408, 425, 429)


def allowed_networks() -> tuple[Network, ...]:
    """Return the networks of NOTIFY_ALLOWED_NETWORKS. Raises ValueError."""
    return _networks(tuple(settings.NOTIFY_ALLOWED_NETWORKS))


@lru_cache(maxsize=8)
def _networks(texts: Sequence[str]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


def check_url(url: str) -> SplitResult:
    """Return the parts of ``url``. Raises Forbidden where no notification could ever go there.

    Names are not resolved: that is done each time something is sent.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises where it is none
    except ValueError as error:
        raise Forbidden(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Forbidden(f"{url!r} is no URL that begins with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise Forbidden("a URL with a user name in it would be shown: use the secret")
    if any(character <= " " or character == "\x7f" for character in url):
        raise Forbidden("a URL has no spaces or control characters")
    try:
        literal = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return parts
    _check_address(literal, parts.hostname)
    return parts


def _check_address(address: Address, host: str) -> None:
    meant = _meant(address)
    if any(meant in network for network in allowed_networks() if network.version == meant.version):
        return
    if not meant.is_global or meant.is_multicast or meant.is_reserved or meant.is_unspecified:
        raise Forbidden(
            f"{host} is at {address}, which is no public address. An operator of the server can "
            "allow its network by NOTIFY_ALLOWED_NETWORKS"
        )


def _meant(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, or ``address``."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _resolve(parts: SplitResult, port: int) -> list[Address]:
    """Return the addresses of a host, all of which may be used. Raises SendingError."""
    host = parts.hostname or ""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"{host}: {error}") from None
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    for address in addresses:
        _check_address(address, host)
    return addresses


def sign(secret: str, at: int, body: bytes) -> str:
    """Return the signature of a webhook: HMAC-SHA256 over "time.body", in hexadecimal digits."""
    return hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float | None = None
) -> Answer:
    """Post ``body`` and return the answer. Raises SendingError.

    All of it takes ``timeout_s`` (NOTIFY_TIMEOUT_S) and, for a name server that does not answer,
    what the system waits for that, however slowly the other side talks.
    """
    parts = check_url(url)
    request = _Request(parts, timeout_s or settings.NOTIFY_TIMEOUT_S)
    try:
        with request.connection() as connection:
            connection.request("POST", request.path, body, dict(headers))
            response = connection.getresponse()
            text = response.read(_MAX_ANSWER).decode("utf-8", "replace")
            if request.is_late:
                # What was cut off reads like an answer that ends there.
                raise TimeoutError
            return Answer(response.status, text, _seconds(response.getheader("Retry-After")))
    except (OSError, http.client.HTTPException) as error:
        if request.is_late or isinstance(error, TimeoutError):
            raise Unreachable(f"no answer within {request.timeout_s:g} s") from None
        raise Unreachable(f"{parts.hostname}: {error or type(error).__name__}") from None
    except (ValueError, UnicodeError) as error:  # a header that HTTP does not take
        raise Forbidden(str(error)) from None


def _seconds(text: str | None) -> float | None:
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 10):
        return None
    return min(float(text), MAX_RETRY_AFTER_S)


class _Request:
    """One connection, which is cut when its time is over."""

    def __init__(self, parts: SplitResult, timeout_s: float) -> None:
        self._parts = parts
        self.timeout_s = timeout_s
        self.is_late = False
        self._socket: socket.socket | None = None

    @cached_property
    def path(self) -> str:
        path = self._parts.path or "/"
        return f"{path}?{self._parts.query}" if self._parts.query else path

    @contextmanager
    def connection(self) -> Iterator[http.client.HTTPConnection]:
        """Connect to one of the checked addresses. A watchdog cuts it off at the end of its time.

        The socket's own timeout starts anew with each byte: alone it would let a server that sends
        one byte a second go on for ever.
        """
        watchdog = threading.Timer(self.timeout_s, self._cut)
        watchdog.daemon = True
        watchdog.start()
        try:
            connection = self._connect()
            try:
                yield connection
            finally:
                connection.close()
        finally:
            watchdog.cancel()
            if self._socket is not None:
                self._socket.close()

    def _connect(self) -> http.client.HTTPConnection:
        secure = self._parts.scheme == "https"
        port = self._parts.port or (443 if secure else 80)
        host = self._parts.hostname or ""
        self._socket = self._open(_resolve(self._parts, port), port)
        connection = http.client.HTTPConnection(host, port)
        if secure:
            wrapped = _tls().wrap_socket(
                self._socket, server_hostname=host, do_handshake_on_connect=False
            )
            # Before it talks, so that the watchdog can cut that off too.
            self._socket = wrapped
            wrapped.do_handshake()
            # So that the header names no port that the scheme implies.
            connection.default_port = 443
        connection.sock = self._socket
        return connection

    def _open(self, addresses: Sequence[Address], port: int) -> socket.socket:
        error: OSError = OSError("the name has no address")
        for address in addresses[:_MAX_ADDRESSES]:
            if self.is_late:
                break
            try:
                opened = socket.create_connection((str(address), port), self.timeout_s / 2)
            except OSError as failed:
                error = failed
            else:
                opened.settimeout(self.timeout_s)
                return opened
        raise error

    def _cut(self) -> None:
        self.is_late = True
        if self._socket is not None:
            try:
                # Of the base class: that of TLS would begin to talk to the other side.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return  # it is closed already


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
