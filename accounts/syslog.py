"""Syslog (RFC 5424) over UDP, TCP, TLS or a Unix socket. Knows nothing of the database.

A stream is acknowledged by its end: after the last message we close our side, and a receiver that
has read to the end closes its own. One that died before that resets the connection, since it had
bytes that nobody read. Of a datagram nobody learns whether it arrived.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

from accounts.audit_chain import Exported

__all__ = ["PORTS", "Receiver", "Undelivered", "deliver", "message"]

PORTS = {"udp": 514, "tcp": 601, "tls": 6514}
#: Facility 13, log audit; severity 5, notice.
_PRIORITY = 13 * 8 + 5
#: The number that is kept for examples: we have none of our own.
_ID = "audit@32473"
#: A datagram takes no more, bytes.
_DATAGRAM = 60_000
_TIMEOUT_S = 10.0
#: How long to wait for word that nobody listens for datagrams, s.
_REFUSAL_S = 0.05


class Undelivered(Exception):
    """The receiver may not have all messages: send them again."""


@dataclass(frozen=True)
class Receiver:
    """The address that messages go to."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, url: str) -> Receiver:
        """Read ``udp://``, ``tcp://`` or ``tls://host:port``, or ``unix:///path``.

        Raises ValueError, which says what is wrong.
        """
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            return cls("unix", path=parts.path)
        if parts.scheme not in PORTS or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(
                f"{url!r} is none of udp://host:514, tcp://host:601, tls://host:6514, unix:///path"
            )
        return cls(parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme])

    @property
    def is_stream(self) -> bool:
        return self.scheme in ("tcp", "tls")


def message(link: Exported, hostname: str, *, is_stream: bool = True) -> bytes:
    """Return an entry as a message, with the hashes by which its receiver can check the chain.

    A datagram that would be too long is cut, and says so.
    """
    entry = json.loads(link.content or "{}")
    content = link.content.encode()
    is_cut = not is_stream and len(content) > _DATAGRAM
    facts = {
        "position": link.position,
        "previous": link.previous,
        "hash": link.hash,
        **({"cut": 1} if is_cut else {}),
    }
    told = " ".join(f'{name}="{value}"' for name, value in facts.items())
    head = (
        f"<{_PRIORITY}>1 {entry.get('at', '-')} {_word(hostname, 255)} headroom audit"
        f" {_word(entry.get('action', ''), 32)} [{_ID} {told}] "
    )
    return head.encode() + (content[:_DATAGRAM] if is_cut else content)


def _word(text: str, limit: int) -> str:
    """Return ``text`` as a field of a header: printable ASCII without spaces."""
    return "".join(each for each in text if "!" <= each <= "~")[:limit] or "-"


def deliver(receiver: Receiver, messages: Sequence[bytes], *, ca_file: str = "") -> None:
    """Send messages in their order. Raises :class:`Undelivered`."""
    try:
        if receiver.is_stream:
            _stream(receiver, messages, ca_file)
        else:
            _datagrams(receiver, messages)
    except OSError as error:
        raise Undelivered(f"{type(error).__name__}: {error}") from error


def _stream(receiver: Receiver, messages: Sequence[bytes], ca_file: str) -> None:
    address = (receiver.host, receiver.port)
    with closing(socket.create_connection(address, timeout=_TIMEOUT_S)) as plain:
        # Octets are counted, as RFC 6587 has it: a message may hold line breaks.
        framed = b"".join(b"%d %b" % (len(each), each) for each in messages)
        if receiver.scheme == "tls":
            context = ssl.create_default_context(cafile=ca_file or None)
            with context.wrap_socket(plain, server_hostname=receiver.host) as secure:
                secure.sendall(framed)
                _end_tls(secure)
        else:
            plain.sendall(framed)
            _still_open(plain)
            plain.shutdown(socket.SHUT_WR)
            _await_end(plain)


def _still_open(connected: socket.socket) -> None:
    if select.select([connected], [], [], 0)[0] and not connected.recv(1, socket.MSG_PEEK):
        raise Undelivered("it closed the connection before it had everything")


def _await_end(connected: socket.socket) -> None:
    """Wait until the receiver has closed its side, which it does when it has read ours."""
    deadline = time.monotonic() + _TIMEOUT_S
    while connected.recv(4096):
        if time.monotonic() > deadline:
            raise Undelivered("it sends without end")


def _end_tls(secure: ssl.SSLSocket) -> None:
    try:
        secure.unwrap()
    except ssl.SSLEOFError:
        # It has closed without a farewell, as many do. A reset is another error.
        pass
    except OSError as error:
        if error.errno:
            raise


def _datagrams(receiver: Receiver, messages: Sequence[bytes]) -> None:
    with closing(_datagram_socket(receiver)) as connected:
        for each in messages:
            connected.send(each)
        select.select([connected], [], [], _REFUSAL_S)
        if code := connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, "refused")


def _datagram_socket(receiver: Receiver) -> socket.socket:
    if receiver.scheme == "unix":
        family, address = socket.AF_UNIX, receiver.path
    else:
        found = socket.getaddrinfo(receiver.host, receiver.port, type=socket.SOCK_DGRAM)
        family, address = found[0][0], found[0][4]  # type: ignore[assignment]
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.settimeout(_TIMEOUT_S)
    try:
        made.connect(address)
    except OSError:
        made.close()
        raise
    return made
