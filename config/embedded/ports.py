"""Ports on loopback for servers of our own."""

from __future__ import annotations

import random
import socket
from pathlib import Path

__all__ = ["choose_port", "port_is_free", "port_range"]

_LOWEST = 15_000
_TRIES = 200
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def port_range(ephemeral_range: Path = _EPHEMERAL_RANGE) -> range:
    """Return the ports to choose from: below those that the kernel gives to clients.

    A client that retries while its server restarts can be given the server's own port as
    its source port, connect to itself, and keep the server from ever coming back.
    """
    try:
        first_ephemeral = int(ephemeral_range.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first_ephemeral = 32_768
    if first_ephemeral - _LOWEST < _TRIES:
        return range(_LOWEST, 32_768)
    return range(_LOWEST, first_ephemeral)


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether a server could listen on `port` of `host` now."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # As servers do: what is left of closed connections does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


def choose_port() -> int:
    """Return a port of loopback that is free now."""
    candidates = random.SystemRandom().sample(port_range(), _TRIES)
    for port in candidates:
        if port_is_free(port):
            return port
    raise OSError(f"no free port on 127.0.0.1 among {_TRIES} tried")
