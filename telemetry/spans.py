"""Spans of time as they stand in a query string: ``range=1h``, or ``from=…&to=…``.

Pages and API read them the same way, so that a page's URL and its CSV link agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from accounts.edge.parameters import as_moment

#: The longest span that may be asked for, s.
MAX_SPAN_S = 366 * 86_400.0
#: The shortest one, s.
MIN_SPAN_S = 1.0
DEFAULT_RANGE = "1h"

_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RANGE = re.compile(r"([1-9][0-9]{0,5})([smhd])")
#: With as many decimals as answers have, which are those of a double.
_UNIX = re.compile(r"[0-9]{1,10}(\.[0-9]{1,30})?")


class ParameterError(ValueError):
    """A parameter of a query string is wrong. ``field`` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Span:
    """From ``start`` up to, not including, ``end``: Unix s. ``live``: it ends at each "now"."""

    start: float
    end: float
    live: bool = False
    #: As it was asked for, such as ``1h``; empty where ``from`` was given.
    range: str = ""

    @property
    def length_s(self) -> float:
        return self.end - self.start

    @property
    def start_at(self) -> datetime:
        return datetime.fromtimestamp(self.start, UTC)

    @property
    def end_at(self) -> datetime:
        return datetime.fromtimestamp(self.end, UTC)


def parse(params: Mapping[str, str], now: float, default: str = DEFAULT_RANGE) -> Span:
    """Read the span of a query string. Raises :class:`ParameterError`.

    ``range`` ends now; ``from`` without ``to`` ends now as well.
    """
    begin, end = params.get("from", ""), params.get("to", "")
    text = params.get("range", "")
    if not begin and not end:
        return _back_from(now, text or default)
    if text:
        raise ParameterError("range", "give either range, or from and to")
    if not begin:
        raise ParameterError("from", "to needs from: the span would have no start")
    start_s = moment(begin, "from")
    return _checked(Span(start_s, moment(end, "to") if end else now, live=not end))


def _back_from(now: float, text: str) -> Span:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ParameterError("range", f"{text[:40]!r} is no length of time such as 15m, 6h or 2d")
    length_s = int(match[1]) * _UNIT_S[match[2]]
    if length_s > MAX_SPAN_S:
        raise ParameterError("range", f"{text} is longer than {MAX_SPAN_S / 86_400:.0f} days")
    return Span(now - length_s, now, live=True, range=text)


def _checked(span: Span) -> Span:
    if span.length_s < MIN_SPAN_S:
        raise ParameterError("to", f"the end must be {MIN_SPAN_S:g} s or more after the start")
    if span.length_s > MAX_SPAN_S:
        raise ParameterError("from", f"the span is longer than {MAX_SPAN_S / 86_400:.0f} days")
    return span


def moment(text: str, field: str) -> float:
    """Read Unix seconds or ISO 8601 (UTC unless it says otherwise), as Unix s.

    Raises :class:`ParameterError`.
    """
    if _UNIX.fullmatch(text):
        return float(text)
    try:
        # An unescaped "+00:00" arrives with a space in the plus sign's place.
        at = as_moment(datetime.fromisoformat(re.sub(r" (\d\d:?\d\d)$", r"+\1", text)))
    except ValueError:
        raise ParameterError(
            field, f"{text[:40]!r} is no time: give Unix seconds or ISO 8601"
        ) from None
    return at.timestamp()
