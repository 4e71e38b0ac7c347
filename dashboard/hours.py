"""What pages of accounts by the hour share: the ranges of time, and whether hours are late."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from telemetry import spans
from telemetry.spans import Span

__all__ = ["RANGES", "chosen", "is_late"]

#: What may be chosen, as it stands in the address, and in words.
RANGES = {"24h": "24 h", "7d": "7 days", "30d": "30 days"}
#: Hours are accounted for some minutes after they end: what is older is late.
_LATE = timedelta(hours=3)


def chosen(params: Mapping[str, str], now: datetime) -> tuple[str, Span]:
    """Return the range that a query string asks for, and its span; else the first range."""
    asked = params.get("range", "")
    found = asked if asked in RANGES else next(iter(RANGES))
    return found, spans.parse({"range": found}, now.timestamp())


def is_late(newest: datetime | None, now: datetime) -> bool:
    """Say whether the next hours are missing; ``newest``: the last there is, None: none was."""
    return newest is not None and now - newest > _LATE
