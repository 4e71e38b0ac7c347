"""Webhook: all there is to tell as JSON, signed."""

from __future__ import annotations

from typing import Any

import msgspec

from policies.incidents.channels.content import Content, Destination, HttpRequest, json_request
from policies.incidents.outgoing import check_url, sign

__all__ = ["check", "prepare"]

#: Of the body. Fields are added within a version, never changed.
VERSION = 1
TIME_HEADER = "X-Headroom-Timestamp"
SIGNATURE_HEADER = "X-Headroom-Signature"


def check(destination: Destination) -> None:
    check_url(destination.target)


def prepare(content: Content, destination: Destination, now: float) -> HttpRequest:
    """Return the request. With a secret it is signed at ``now`` (Unix s): see ``outgoing.sign``."""
    value: dict[str, Any] = {"version": VERSION, **msgspec.to_builtins(content)}
    request = json_request(destination.target, value, content.key)
    if destination.secret:
        signature = sign(destination.secret, int(now), request.body)
        request.headers[TIME_HEADER] = str(int(now))
        request.headers[SIGNATURE_HEADER] = f"v1={signature}"
    return request
