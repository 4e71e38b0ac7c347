"""The page of what is planned: its sentence, its rows, and where each leads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.urls import reverse

from accounts.models import User
from admission.calendar.committed import committed
from admission.calendar.figure import committed_row
from admission.calendar.planned import Kind, Planned, planned
from admission.core.ahead import Ahead
from dashboard import units
from dashboard.ranges import Choice
from dashboard.timeline import Extremes, figure_extremes
from fleet.snapshot import FleetArrays
from telemetry.spans import Span

__all__ = ["DAYS", "Page", "page"]

#: What may be chosen, in days.
DAYS = (1, 7, 30)
#: The pages of what is planned, where it has one.
_PAGES = {
    Kind.CURTAILMENT: "curtailment",
    Kind.RESTRICTION: "restriction",
    Kind.DEADLINE: "job-page",
}
_NOT_BY_ID = (Kind.DEADLINE,)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that is planned. ``takes`` is in words; ``is_now``: it has begun."""

    planned: Planned
    href: str
    begin_at: datetime
    end_at: datetime | None
    takes: str
    is_now: bool


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows. ``site`` is that of the chart; empty: there is none."""

    answer: str
    is_bad: bool
    lines: Sequence[Line]
    days: Sequence[Choice]
    sites: Sequence[Choice]
    site: str
    figure_url: str
    query: str
    length_s: float
    tightest: str
    #: least, mean and greatest of what the chart shows
    extremes: Sequence[Extremes]


def page(user: User, fleet: FleetArrays, span: Span, asked_site: str) -> Page:
    """Return what is planned in ``span``, which begins now, as ``user`` may know it. Queries."""
    found, sites = planned(user, fleet, span), committed(span)
    days = round(span.length_s / 86_400.0)
    site = asked_site if asked_site in sites else _first(sites)
    worst = _tightest(sites)
    return Page(
        answer=_answer(found, days),
        is_bad=worst is not None and worst[1] < 0.0,
        lines=[_line(each, span.start) for each in found],
        days=[Choice(_href(site, each), units.count(each, "day"), each == days) for each in DAYS],
        sites=[Choice(_href(each, days), each, each == site) for each in sorted(sites)],
        site=site,
        figure_url=f"{reverse('calendar-figure')}?{urlencode({'site': site})}" if site else "",
        query=urlencode({"days": days}),
        length_s=span.length_s,
        tightest=worst[0] if worst else "",
        extremes=figure_extremes([committed_row(sites[site])]) if site else (),
    )


def _href(site: str, days: int) -> str:
    return "?" + urlencode({"site": site, "days": days} if site else {"days": days})


def _first(sites: Mapping[str, Ahead]) -> str:
    """Return the site with the least left at some time, else the first by name, else nothing."""
    left = {name: _least_left(each) for name, each in sites.items()}
    return min(left, key=lambda name: (left[name], name), default="")


def _least_left(found: Ahead) -> float:
    at = found.tightest
    return math.inf if at is None else float(found.budget[at] - found.committed[at])


def _tightest(sites: Mapping[str, Ahead]) -> tuple[str, float] | None:
    """Return when which site has least left of its budget, in words, and how much that is, W."""
    name = _first(sites)
    at = sites[name].tightest if name else None
    if at is None:
        return None
    found = sites[name]
    need_w, have_w = float(found.committed[at]), float(found.budget[at])
    when = "now" if at == 0 else f"on {_at(float(found.at[at])):%a %Y-%m-%d at %H:%M} UTC"
    is_over = need_w > have_w
    text = (
        f"{name} {'is committed to more than it may draw' if is_over else 'has least left'} {when}:"
        f" {units.kilowatts(need_w)} of {units.kilowatts(have_w)} kW at most"
    )
    return text, have_w - need_w


def _answer(found: Sequence[Planned], days: int) -> str:
    within = f"in the next {units.count(days, 'day')}" if days > 1 else "in the next 24 h"
    if not found:
        return f"Nothing is planned {within}"
    are = "is" if len(found) == 1 else "are"
    return f"{units.count(len(found), 'thing')} {are} planned {within}"


def _line(each: Planned, now: float) -> Line:
    return Line(
        planned=each,
        href=_page_of(each),
        begin_at=_at(each.begin_at),
        end_at=None if each.end_at is None else _at(each.end_at),
        takes=_takes(each),
        is_now=each.begin_at <= now,
    )


def _page_of(each: Planned) -> str:
    view = _PAGES.get(each.kind)
    if view is None:
        return ""
    return reverse(view, args=[each.name if each.kind in _NOT_BY_ID else int(each.name)])


def _takes(each: Planned) -> str:
    if each.watts is None:
        return ""
    if each.kind is Kind.RESERVATION:
        return f"up to {units.kilowatts(each.watts)} kW more"
    return f"leaves {units.kilowatts(each.watts)} kW"


def _at(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)
