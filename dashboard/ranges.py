"""The range picker: the span of time that a page shows, as its URL says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode

from telemetry import spans
from telemetry.spans import ParameterError, Span

#: Value in the URL, and words.
PRESETS = (
    ("15m", "15 min"),
    ("1h", "1 h"),
    ("6h", "6 h"),
    ("24h", "24 h"),
    ("7d", "7 d"),
    ("30d", "30 d"),
)


@dataclass(frozen=True, slots=True)
class RangePicker:
    """The state of the picker. ``error`` is the fault of the URL; the default holds then."""

    span: Span
    error: str = ""
    field: str = ""

    @property
    def presets(self) -> list[tuple[str, str, bool]]:
        """Value, words, and whether it is the one in force."""
        return [(value, words, value == self.span.range) for value, words in PRESETS]

    @property
    def is_custom(self) -> bool:
        return self.span.range not in dict(PRESETS)

    @property
    def query(self) -> str:
        """The span as a query string: links that carry it stay live where the page is live."""
        if self.span.range:
            return urlencode({"range": self.span.range})
        ends = {"from": _iso(self.span.start)}
        return urlencode(ends if self.span.live else {**ends, "to": _iso(self.span.end)})

    @property
    def from_value(self) -> str:
        """For an ``<input type="datetime-local">``, UTC."""
        return _iso(self.span.start)

    @property
    def to_value(self) -> str:
        return _iso(self.span.end)


def read(params: Mapping[str, str], now: float, default: str = spans.DEFAULT_RANGE) -> RangePicker:
    """Return the picker for a query string. A form that was left empty asks for the default."""
    try:
        return RangePicker(spans.parse(params, now, default))
    except ParameterError as error:
        return RangePicker(spans.parse({}, now, default), str(error), error.field)


def _iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def as_params(picker: RangePicker) -> dict[str, str]:
    """Return ``picker.query`` as parameters, for a panel to ask for the same span again."""
    return dict(parse_qsl(picker.query))
