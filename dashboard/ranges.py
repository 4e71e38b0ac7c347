"""The range picker: the span of time that a page shows, and how, as its URL says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as made
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
#: The zone in which times are told, as in the URL, and in words.
ZONES = (("utc", "UTC"), ("local", "local time"))
#: What a span is compared with, as in the URL, and in words. static/js/timeline.js knows the same.
COMPARISONS = (
    ("before", "the range before"),
    ("24h", "24 h earlier"),
    ("7d", "7 d earlier"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several ways to show a page: a link, its words, and whether it is the present one."""

    href: str
    words: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class RangePicker:
    """The state of the picker. ``error`` is the fault of the URL; the default holds then.

    ``life``: of what has a beginning and maybe an end, such as an attempt, all of its time. It is
    shown where nothing is asked for, and ranges end with it.
    """

    span: Span
    error: str = ""
    field: str = ""
    zone: str = "utc"
    #: one of ``COMPARISONS``; empty: with nothing
    compared: str = ""
    #: other parameters of the page, which its links keep
    kept: Mapping[str, str] = made(default_factory=dict)
    life: Span | None = None

    @property
    def presets(self) -> list[tuple[str, str, bool]]:
        """Value, words, and whether it is the one in force."""
        whole = [("", "all", self.is_whole)] if self.life else []
        return whole + [(value, words, value == self.span.range) for value, words in PRESETS]

    @property
    def ranges(self) -> list[Choice]:
        """The presets as links."""
        return [
            Choice(self._href({"range": value} if value else {}), words, chosen)
            for value, words, chosen in self.presets
        ]

    @property
    def modes(self) -> list[Choice]:
        """Whether the span ends at each "now", or stays as it is; none where it is all over."""
        if self.life and not self.life.live:
            return []
        live = {} if self.is_whole else {"range": self.span.range or f"{self.span.length_s:.0f}s"}
        return [
            Choice(self._href(live), "live", self.span.live),
            Choice(self._href(self._ends), "fixed", not self.span.live),
        ]

    @property
    def zones(self) -> list[Choice]:
        """The zones in which times may be told."""
        return [
            Choice(self._href(self._asked, zone=zone), words, zone == self.zone)
            for zone, words in ZONES
        ]

    @property
    def comparisons(self) -> list[Choice]:
        """The links that compare with an earlier range; that of the chosen one, no more."""
        return [
            Choice(
                self._href(self._asked, compared="" if value == self.compared else value),
                words,
                value == self.compared,
            )
            for value, words in COMPARISONS
        ]

    @property
    def hidden(self) -> dict[str, str]:
        """Parameters that a form for another span keeps."""
        return self._how(self.zone, self.compared)

    @property
    def is_whole(self) -> bool:
        return self.span == self.life

    @property
    def is_custom(self) -> bool:
        return not self.is_whole and self.span.range not in dict(PRESETS)

    @property
    def query(self) -> str:
        """The span as a query string: links that carry it stay live where the page is live."""
        return urlencode(self._asked)

    @property
    def from_value(self) -> str:
        """For an ``<input type="datetime-local">``, UTC."""
        return _iso(self.span.start)

    @property
    def to_value(self) -> str:
        return _iso(self.span.end)

    @property
    def _ends(self) -> dict[str, str]:
        return {"from": _iso(self.span.start), "to": _iso(self.span.end)}

    @property
    def _asked(self) -> dict[str, str]:
        if self.is_whole:
            return {}
        if self.span.range:
            return {"range": self.span.range}
        return {"from": _iso(self.span.start)} if self.span.live else self._ends

    def _href(self, span: Mapping[str, str], *, zone: str = "", compared: str | None = None) -> str:
        beside = self.compared if compared is None else compared
        return "?" + urlencode({**span, **self._how(zone or self.zone, beside)})

    def _how(self, zone: str, compared: str) -> dict[str, str]:
        return {
            **self.kept,
            **({} if zone == "utc" else {"zone": zone}),
            **({"compare": compared} if compared else {}),
        }


def read(
    params: Mapping[str, str],
    now: float,
    default: str = spans.DEFAULT_RANGE,
    *,
    keep: Collection[str] = (),
    life: Span | None = None,
) -> RangePicker:
    """Return the picker for a query string. A form that was left empty asks for the default.

    ``keep``: names of other parameters of the page. ``life``: as that of the picker.
    """
    kept = {name: params[name] for name in keep if params.get(name)}
    usual = life or spans.parse({}, now, default)
    zone, compare = params.get("zone", "utc"), params.get("compare", "")
    try:
        if zone not in dict(ZONES):
            raise ParameterError("zone", f"give one of {', '.join(dict(ZONES))}")
        known = dict(COMPARISONS)
        if compare and compare not in known:
            raise ParameterError("compare", f"give one of {', '.join(known)}, or leave it out")
        asked = any(params.get(name) for name in ("range", "from", "to"))
        span = spans.parse(params, life.end if life else now, default) if asked else usual
    except ParameterError as error:
        return RangePicker(usual, str(error), error.field, kept=kept, life=life)
    return RangePicker(
        span if life is None else _within(span, life),
        zone=zone, compared=compare, kept=kept, life=life,
    )  # fmt: skip


def _within(span: Span, life: Span) -> Span:
    """Return ``span``, which is live no more where what it is of has ended."""
    return replace(span, live=span.live and life.live) if span != life else life


def _iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def as_params(picker: RangePicker) -> dict[str, str]:
    """Return ``picker.query`` as parameters, for a panel to ask for the same span again."""
    return dict(parse_qsl(picker.query))
