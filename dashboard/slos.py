"""Service levels as pages show them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from django.db.models import Count, Q
from django.db.models.functions import TruncHour
from django.utils.safestring import SafeString

from admission.slos import sampling
from admission.slos.budget import State
from admission.slos.document import Objective
from admission.slos.judging import SPEAKS_FOR_S
from admission.slos.measuring import SloStatus
from admission.slos.models import Slo
from dashboard import units
from dashboard.svg import axis, bar
from dashboard.templatetags.telemetry_words import lasted

#: The worst first.
_ORDER = [State.MISSED, State.BURNING_FAST, State.BURNING, State.MET, State.NO_EVENTS]
_WORDS = {
    State.MISSED: "missed",
    State.BURNING_FAST: "burning fast",
    State.BURNING: "burning",
    State.MET: "met",
    State.NO_EVENTS: "no events",
}
_TAGS = {State.MISSED: " error", State.BURNING_FAST: " error", State.BURNING: " warning"}
#: Bars of a chart, at most.
_BUCKETS = 168
#: Conditions are shown over this long: of the whole window it would be many samples.
_CONDITIONS_S = 86_400.0


@dataclass(frozen=True)
class Row:
    """An objective as a row of the list."""

    status: SloStatus

    @property
    def name(self) -> str:
        return self.status.slo.name

    @property
    def promise(self) -> str:
        return self.status.objective.sentence

    @property
    def window(self) -> str:
        return lasted(self.status.objective.window_s)

    @property
    def target(self) -> str:
        return share(self.status.objective.target)

    @property
    def good(self) -> str:
        return share(self.status.health.good_share)

    @property
    def words(self) -> str:
        return _WORDS[self.status.health.state]

    @property
    def tag(self) -> str:
        return _TAGS.get(self.status.health.state, "")

    @property
    def is_wrong(self) -> bool:
        return self.status.health.state in _TAGS

    @property
    def budget(self) -> SafeString:
        """The used part of the budget, as a bar; over the mark it is overdrawn."""
        left = self.status.health.budget_left
        used = 1.0 - left
        return bar.budget_bar(1.0, used, label=f"{units.percent(used)} of the budget used")

    @property
    def left(self) -> str:
        return units.percent(self.status.health.budget_left)

    @property
    def fast(self) -> str:
        return units.number(self.status.health.burn_rates["1h"], 1)

    @property
    def slow(self) -> str:
        return units.number(self.status.health.burn_rates["6h"], 1)

    @property
    def lasts(self) -> str:
        """How long the budget lasts; at most its window is shown."""
        lasts_s, window_s = self.status.health.lasts_s, self.status.objective.window_s
        if math.isnan(lasts_s):
            return units.DASH
        if lasts_s <= 0.0:
            return "used up"
        return lasted(lasts_s) if lasts_s < window_s else f"over {lasted(window_s)}"


def rows(statuses: Sequence[SloStatus]) -> list[Row]:
    """Return objectives, the worst first."""

    def worst_first(status: SloStatus) -> tuple[int, float, str]:
        left = status.health.budget_left
        place = _ORDER.index(status.health.state)
        return place, math.inf if math.isnan(left) else left, status.slo.name

    return [Row(status) for status in sorted(statuses, key=worst_first)]


def share(value: float) -> str:
    """Return a share with as many digits as targets have: ``99.95 %``; rounded down."""
    if math.isnan(value):
        return units.DASH
    return f"{math.floor(value * 1e4 + 1e-6) / 100:g} %"


# --- One objective -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chart:
    """Good and bad events over time, one bar for each span of some hours."""

    drawing: SafeString
    #: Unix s
    start: float
    end: float
    step: str


def chart(status: SloStatus, at: datetime) -> Chart:
    """Draw the events of an objective's window. One query."""
    window_s = status.objective.window_s
    step_h = max(1, math.ceil(window_s / 3600 / _BUCKETS))
    start = at - timedelta(seconds=window_s)
    spans = axis.Axis(start.timestamp(), at.timestamp()).steady()
    bars = [
        axis.Span(first, first + 3600 * step_h, *_look(good, bad, status.objective.target))
        for first, (good, bad) in _by_span(status.slo, start, step_h).items()
    ]
    step = f"{step_h} h" if step_h > 1 else "hour"
    label = f"{status.slo.name}: events in time and late, by {step}"
    return Chart(axis.spans(spans, bars, label), spans.start, spans.end, step)


def _by_span(slo: Slo, start: datetime, step_h: int) -> dict[float, tuple[int, int]]:
    """Return good and bad events by the start of their span, Unix s."""
    counted = (
        slo.judgments.filter(at__gte=start)
        .order_by()
        .annotate(hour=TruncHour("at"))
        .values_list("hour")
        .annotate(
            good=Count("pk", filter=Q(is_good=True)), bad=Count("pk", filter=Q(is_good=False))
        )
    )
    step_s = 3600.0 * step_h
    found: dict[float, list[int]] = defaultdict(lambda: [0, 0])
    for hour, good, bad in counted:
        here = found[hour.timestamp() // step_s * step_s]
        here[0] += good
        here[1] += bad
    return {first: (good, bad) for first, (good, bad) in sorted(found.items())}


def _look(good: int, bad: int, target: float) -> tuple[str, str]:
    """Return the look of a bar, and its words."""
    events = units.count(good + bad, "event")
    if not bad:
        return "info", f"{events}, all in time"
    look = "warning" if good / (good + bad) >= target else "critical"
    return look, f"{bad:,} of {events} late"


@dataclass(frozen=True)
class Held:
    """How much of the time an objective's condition held at a site."""

    site: str
    share: float


def held(objective: Objective, at: datetime) -> list[Held]:
    """Return the share of the last day in which the condition held at each site. One query."""
    if objective.when is None:
        return []
    samples = sampling.load(at - timedelta(seconds=_CONDITIONS_S), at)
    ends = np.append(samples.times, at.timestamp())
    spans_s = np.minimum(np.diff(ends), SPEAKS_FOR_S)
    if not spans_s.sum():
        return []
    holding = samples.holding(objective.when).T @ spans_s / spans_s.sum()
    return [Held(site, float(part)) for site, part in zip(samples.sites, holding, strict=True)]
