"""Addresses of others to which secrets may be sent."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

__all__ = ["is_safe"]


def is_safe(url: str) -> bool:
    """Say whether nobody on the way can tamper with it: TLS, or this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        is_loopback = ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        is_loopback = parts.hostname == "localhost"
    return parts.scheme == "http" and is_loopback
