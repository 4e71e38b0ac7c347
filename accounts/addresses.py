"""Where a request came from."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from django.http import HttpRequest


def client_address(request: HttpRequest) -> str | None:
    """Return the client's IP address, or None where there is none (a unix socket, a test).

    X-Forwarded-For counts only as far as our own proxies wrote it: each of the ``PROXY_COUNT``
    appends the address that it was called from, and whatever stands left of those is hearsay.
    """
    forwarded = request.headers.get("X-Forwarded-For", "").split(",")
    hops = [part.strip() for part in forwarded if part.strip()]
    hops.append(request.META.get("REMOTE_ADDR", ""))
    behind = min(settings.PROXY_COUNT, len(hops) - 1)
    address = hops[-1 - behind]
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return None
