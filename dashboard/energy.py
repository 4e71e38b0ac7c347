"""The page of energy: what the fleet, its sites and its projects came to, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.urls import reverse

from accounts.models import User
from admission.core.energy.budgets import Measure
from admission.core.energy.rates import MJ_PER_KWH
from admission.energy import budgets, demand, reports
from admission.energy.demand import Drawer, Month
from admission.energy.models import Budget
from admission.energy.reports import By, Report, Row
from admission.jobs.models import Job, Project
from dashboard import exports, hours, units
from telemetry.spans import Span

__all__ = ["BudgetLine", "Line", "Page", "budget_lines", "of_job", "page"]

_MOST_LINES = 100
#: So many of those that drew a peak are named.
_MOST_DRAWERS = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One site or project. Parts are in kWh, in the order of the page's columns.

    None: nothing was read of it.
    """

    name: str
    kwh: float | None
    parts: tuple[float | None, ...]
    carbon_kg: float | None
    money: float | None
    gpu_h: float
    pue: float | None
    basis: str
    covered: float | None


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """How a budget stands. ``used`` and ``forecast`` are shares of it; None: not known."""

    number: int
    project: str
    #: the page of the project
    href: str
    amount: float
    unit: str
    until: datetime
    used: float
    is_least: bool
    is_over: bool
    forecast: float | None
    #: shares at which it warns, the least first
    warn_at: tuple[float, ...]
    open_hours: int
    known: float | None
    #: of the time of its GPUs, what no reading tells of
    unread: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandLine:
    """How the demand charge of the month that goes on stands at a site. None: there is no peak yet.

    ``projects`` and ``racks`` are those that drew most at the peak, in words; ``missing`` says what
    of the month was not read.
    """

    site: str
    interval_min: int | None
    next_kw: float | None
    closed_hours: int
    hours: int
    missing: str
    peak_w: float | None = None
    at: datetime | None = None
    charge: float | None = None
    is_shared_by_hour: bool = False
    projects: str = ""
    racks: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the page shows. ``residual`` is a share of the energy; None: of nothing."""

    answer: str
    is_empty: bool
    is_own: bool
    newest: datetime | None
    is_late: bool
    hours: int
    missing: int
    carbon_known: float | None
    price_known: float | None
    currency: str
    sites: Sequence[Line]
    projects: Sequence[Line]
    others: int
    budgets: Sequence[BudgetLine]
    demand: Sequence[DemandLine]


def page(user: User, span: Span, now: datetime) -> Page:
    """Return the page of a span.

    Eleven queries, two for each period of budgets, and five for each site with a demand charge.
    """
    projects = reports.report(By.PROJECT, span, user)
    sites = projects if projects.is_own else reports.report(By.SITE, span, user)
    total = reports.total_of(sites.rows)
    expected = int((min(sites.end, now) - sites.start) / timedelta(hours=1))
    lines = [_line(row) for row in projects.rows]
    return Page(
        answer=_answer(total, sites),
        is_empty=sites.newest is None,
        is_own=projects.is_own,
        newest=sites.newest,
        is_late=hours.is_late(sites.newest, now),
        hours=sites.hours,
        missing=max(expected - sites.hours, 0),
        carbon_known=_share(total.carbon_mj, total.mj),
        price_known=_share(total.price_mj, total.mj),
        currency=settings.ENERGY_CURRENCY,
        sites=[] if projects.is_own else [_line(row) for row in sites.rows],
        projects=lines[: exports.most(_MOST_LINES)],
        others=max(len(lines) - _MOST_LINES, 0),
        budgets=budget_lines(user, now),
        demand=[] if projects.is_own else list(map(_demand_line, demand.months(now))),
    )


def budget_lines(user: User, now: datetime, project: Project | None = None) -> list[BudgetLine]:
    """Return the budgets in force that a reader may know of, those that are used most first.

    ``project``: of which; None: of all. Three queries, and two for each period.
    """
    rows = Budget.objects.visible_to(user).in_force(now).select_related("project")
    if project is not None:
        rows = rows.filter(project=project)
    found = [
        BudgetLine(
            row.pk, row.project.name, reverse("project", args=[row.project.name]), row.amount,
            budgets.UNITS[Measure(row.measure)], stands.end - timedelta(hours=1), stands.share,
            stands.is_least, stands.warned is not None, stands.forecast_share,
            tuple(sorted(row.warn_at)), stands.open_hours, stands.known,
            stands.unread,
        )
        for row, stands in budgets.standings(rows[:_MOST_LINES], now)
    ]  # fmt: skip
    return sorted(found, key=lambda line: -line.used)


def _demand_line(month: Month) -> DemandLine:
    line = DemandLine(
        site=month.site, interval_min=month.interval_min, next_kw=month.next_kw,
        closed_hours=month.closed_hours, hours=month.hours, missing=_missing(month),
    )  # fmt: skip
    peak = month.peak
    if peak is None:
        return line
    return replace(
        line, interval_min=peak.length_s // 60, peak_w=peak.mean_w, at=peak.at, charge=peak.charge,
        is_shared_by_hour=peak.is_shared_by_hour, projects=_drawn([*peak.projects, peak.rest]),
        racks=_drawn(peak.racks),
    )  # fmt: skip


def _missing(month: Month) -> str:
    """Say what of a month that goes on was not read; "": nothing is missing."""
    lacking = month.past_hours - month.closed_hours
    said = [f"{lacking:,} hours not closed"] if lacking > 0 else []
    if month.hours_by_mean:
        said.append(f"{month.hours_by_mean:,} hours by their mean alone")
    if month.covered is not None and month.covered < 1.0:
        said.append(f"{_percent(1.0 - month.covered)} of GPU time not read")
    return ", ".join(said)


def _drawn(drawers: Sequence[Drawer]) -> str:
    """Say who drew most of a peak."""
    most = sorted(drawers, key=lambda each: -each.share)[:_MOST_DRAWERS]
    return ", ".join(
        f"{each.name or 'no job'} {units.percent(each.share)}" for each in most if each.share > 0
    )


def of_job(job: Job) -> str:
    """Return what a job came to in closed hours, in words; "" where there are none. One query."""
    found = reports.of_job(job.name)
    if found is None:
        return ""
    return " · ".join([f"{units.number(found.kwh, _digits(found.kwh))} kWh", *_rates(found)])


def _answer(total: Row, report: Report) -> str:
    if report.newest is None:
        return "No hour is closed yet"
    if not total.mj:
        return "Nothing was read in these hours"
    words = [f"{units.number(total.kwh, _digits(total.kwh))} kWh", *_rates(total)]
    if total.pue is not None:
        words.append(f"PUE {units.number(total.pue, 2)}, {total.basis}")
    if "residual" in total.parts_mj and total.mj > 0:
        words.append(_residual(total.parts_mj["residual"] / total.mj))
    return " · ".join(words)


def _rates(row: Row) -> list[str]:
    words = []
    if row.carbon_mj:
        words.append(f"{units.number(row.carbon_kg, _digits(row.carbon_kg))} kg CO2e")
    if row.price_mj or row.cost:
        words.append(f"{units.number(row.cost, 2)} {settings.ENERGY_CURRENCY}")
    return words


def _residual(share: float) -> str:
    """Say what the parts leave of the meter's energy: less than nothing where they tell of more."""
    if share < 0.0:
        return f"its parts come to {_percent(-share)} more than the meter"
    return f"{_percent(share)} that no part explains"


def _percent(share: float) -> str:
    """Return a share with a decimal: residuals are small, and that they are is the point."""
    return f"{units.number(100.0 * share, 1)} %"


def _digits(value: float) -> int:
    return 0 if abs(value) >= 100.0 else 2


def _line(row: Row) -> Line:
    return Line(
        name=row.name,
        kwh=row.kwh if row.mj else None,
        parts=tuple(mj / MJ_PER_KWH if row.mj else None for mj in row.parts_mj.values()),
        carbon_kg=row.carbon_kg if row.carbon_mj else None,
        money=row.cost if row.price_mj or row.cost else None,
        gpu_h=row.gpu_h,
        pue=row.pue,
        basis=row.basis,
        covered=_share(row.covered_ms, row.gpu_ms),
    )


def _share(part: int | None, whole: int) -> float | None:
    return None if part is None or whole <= 0 else part / whole
