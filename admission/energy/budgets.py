"""Budgets of projects: how they stand, who is told, and who makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from accounts import audit
from accounts.models import User
from admission.core.energy.budgets import Measure, Spent, Standing, period_of, standing
from admission.energy import metrics, reports
from admission.energy.models import Budget
from admission.energy.reports import Row
from admission.jobs.models import Project
from policies.firings import Firing, Severity
from policies.incidents.grouping import FINGERPRINT
from policies.incidents.incoming import NOWHERE
from policies.incidents.keeping import keep

__all__ = ["UNITS", "end", "follow", "make", "standings"]

_PREFIX = "budget:"
#: What forecasts go by.
_RECENT = timedelta(days=7)
UNITS = {
    Measure.KWH: "kWh",
    Measure.CARBON_KG: "kg CO2e",
    Measure.MONEY: settings.ENERGY_CURRENCY,
}


@transaction.atomic
def make(user: User, project: Project, given: Mapping[str, Any], *, now: datetime) -> Budget:
    """Make a budget. Raises ValidationError, by field."""
    row = Budget(project=project, made_by=user.get_username(), made_at=now, **given)
    row.full_clean()
    row.save()
    audit.record(user, "energy.budget", str(row), **audit.changes(None, audit.state(row)))
    return row


@transaction.atomic
def end(user: User, budget: Budget, *, now: datetime) -> Budget:
    """End a budget; one that was ended stays as it is."""
    if Budget.objects.filter(pk=budget.pk, ended_at=None).update(ended_at=now):
        audit.record(user, "energy.budget.end", str(budget), id=budget.pk)
        metrics.show_budget(budget.pk, None)
    budget.refresh_from_db()
    return budget


# --- How they stand ------------------------------------------------------------------------------


def standings(budgets: Iterable[Budget], now: datetime) -> list[tuple[Budget, Standing]]:
    """Return how budgets, whose projects are read, stand. Two queries, and two for each period."""
    rows = list(budgets)
    names = sorted({row.project.name for row in rows})
    since = now - _RECENT
    recent, recent_hours = _spent((since, now), names)
    by_period: dict[tuple[datetime, datetime], tuple[dict[str, Row], int]] = {}
    found = []
    for row in rows:
        period = period_of(row.begins_at, row.ends_at, now)
        if period not in by_period:
            by_period[period] = _spent(period, names)
        used, closed = by_period[period]
        name, measure = row.project.name, Measure(row.measure)
        spent = Spent(
            used=_of(used.get(name), measure), known=_known(used.get(name), measure),
            unread=used[name].unread if name in used else None,
            lump=_lump(used.get(name), measure), closed_hours=closed,
            recent=_of(recent.get(name), measure) - _lump(recent.get(name), measure),
            recent_hours=recent_hours,
        )  # fmt: skip
        found.append((row, standing(row.amount, row.warn_at, period, spent, now)))
    return found


def _spent(period: tuple[datetime, datetime], names: Sequence[str]) -> tuple[dict[str, Row], int]:
    return reports.of_projects(*period, names), reports.closed_hours(*period)


def _of(row: Row | None, measure: Measure) -> float:
    """Return what a project came to, in the unit of a budget."""
    if row is None:
        return 0.0
    return {Measure.KWH: row.kwh, Measure.CARBON_KG: row.carbon_kg, Measure.MONEY: row.cost}[
        measure
    ]


def _lump(row: Row | None, measure: Measure) -> float:
    return row.money["demand"] if row is not None and measure is Measure.MONEY else 0.0


def _known(row: Row | None, measure: Measure) -> float | None:
    if row is None or row.mj <= 0:
        return None
    known_mj = {
        Measure.KWH: row.mj, Measure.CARBON_KG: row.carbon_mj, Measure.MONEY: row.price_mj,
    }  # fmt: skip
    return known_mj[measure] / row.mj


# --- Who is told ---------------------------------------------------------------------------------


def follow(now: datetime) -> None:
    """Open an incident for each budget that has passed a share to warn at, and show all of them.

    Repeated, it changes nothing. An incident is for all who see incidents, so it has the number of
    the budget, and not the project that it is of.
    """
    found = standings(Budget.objects.in_force(now).select_related("project"), now)
    for row, stands in found:
        metrics.show_budget(row.pk, stands)
    keep(_PREFIX, dict(_firings(found, now)), now)


def _firings(
    found: Iterable[tuple[Budget, Standing]], now: datetime
) -> Iterator[tuple[str, Firing]]:
    for row, stands in found:
        if stands.warned is None:
            continue
        name = f"{_PREFIX}{row.pk}:{stands.start:%Y-%m-%d}:{stands.warned:g}"
        yield (
            name,
            Firing(
                rule=f"{_PREFIX}{row.pk}", version=0, scope=NOWHERE, severity=Severity.WARNING,
                since=now, at=now, summary=_summary(row, stands),
                values={"share": stands.share, "warn_at": stands.warned},
                labels={FINGERPRINT: name},
            ),
        )  # fmt: skip


def _summary(row: Budget, stands: Standing) -> str:
    least = "at least " if stands.is_least else ""
    of = f"{stands.used:,.1f} of {row.amount:,g} {UNITS[Measure(row.measure)]}"
    said = f"Budget {row.pk} is used to {least}{100 * stands.share:.0f} %: {of}"
    if stands.forecast_share is None:
        return said
    forecast = f"{100 * stands.forecast_share:.0f} % are forecast"
    return f"{said}; {forecast} by {stands.end:%Y-%m-%d %H:%M} UTC"
