"""Lengths of time as rules write them: ``30s``, ``5m``, ``1h30m``, or plain seconds."""

from __future__ import annotations

import re

_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?[dhms])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")


def seconds(given: str | float) -> float:
    """Return a length of time in seconds. Raises ``ValueError`` with the way out."""
    if not isinstance(given, str):
        return float(given)
    text = given.replace(" ", "")
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{given!r} is no length of time: write 30s, 5m, 2h or 1h30m")
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
