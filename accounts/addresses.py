"""The address and the network of the client of a request, and our own address as people call it."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from django.http import HttpRequest


def client_address(request: HttpRequest) -> str | None:
    """Return the client's IP address, or None where there is none (a unix socket, a test)."""
    forwarded = request.headers.get("X-Forwarded-For", "")
    return address_of(forwarded, request.META.get("REMOTE_ADDR", ""), settings.PROXY_COUNT)


def address_of(forwarded: str, peer: str, proxies: int) -> str | None:
    """Return the IP address of a client whose request came from ``peer`` through ``proxies``.

    X-Forwarded-For, ``forwarded``, counts only as far as our own proxies wrote it: each of them
    appends the address that it was called from, and whatever stands left of those is hearsay.
    """
    hops = [part.strip() for part in forwarded.split(",") if part.strip()]
    hops.append(peer)
    behind = min(proxies, len(hops) - 1)
    try:
        return str(ipaddress.ip_address(hops[-1 - behind]))
    except ValueError:
        return None


def client_network(request: HttpRequest) -> str | None:
    """Return the network of one client, as :func:`network_of` has it."""
    return network_of(client_address(request))


#: A household or a virtual machine is given at least so much of IPv6, bits.
_IPV6_PREFIX = 64


def network_of(address: str | None) -> str | None:
    """Return the network that counts as one sender: an IPv4 address, or an IPv6 /64's first one.

    Whoever has one address of IPv6 has 2**64 of them.
    """
    if address is None:
        return None
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_PREFIX), strict=False).network_address)


def public_url(request: HttpRequest, path: str) -> str:
    """Return the URL of a page of ours: under ``PUBLIC_URL``, else as the request called us."""
    return settings.PUBLIC_URL + path if settings.PUBLIC_URL else request.build_absolute_uri(path)
