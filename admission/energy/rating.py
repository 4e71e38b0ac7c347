"""Rates of hours that are closed: what the grid told of them, else the tariff that held.

They are written beside the energy of each site's hour, so that a report is one join; and written
anew where a tariff or the grid's figures come later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
from django.db.models import F, Q, QuerySet

from admission.core.energy.peaks import HourDraw, Peak, peak_of
from admission.core.energy.rates import Terms, in_force, month_of, rates_at
from admission.energy.models import GridHour, SiteHour, Tariff
from fleet.models import Site
from fleet.snapshot import FleetArrays
from fleet.tables import Floats

__all__ = ["rate", "stated_pue", "terms_by_site", "zones"]

_AT_ONCE = 2_000
_FIELDS = ("carbon_g_per_kwh", "carbon_source", "price_per_kwh", "gpu_hour")
_NO_PEAK = {"demand": 0.0, "peak_at": None, "peak_s": None, "peak_w": None, "peak_mj": None}


def terms_by_site() -> dict[str, list[Terms]]:
    """Return the tariffs of each site, in order of their dates. One query."""
    found: dict[str, list[Terms]] = defaultdict(list)
    for row in Tariff.objects.select_related("site").order_by("begins_at"):
        found[row.site.name].append(row.terms())
    return found


def stated_pue(fleet: FleetArrays, hour: datetime) -> Floats:
    """Return the PUE that is stated for each site at an hour, NaN where none is. One query."""
    by_site = terms_by_site()
    stated = [in_force(by_site.get(name, []), hour) for name in fleet.sites.names.tolist()]
    return np.array(
        [np.nan if each is None or each.pue is None else each.pue for each in stated], dtype=float
    )


def rate(start: datetime, end: datetime, sites: Sequence[str] | None = None) -> None:
    """Write the rates of hours from ``start`` up to ``end``; ``sites``: of which, None: of all.

    Three queries, one for some thousand hours, and four for each month and site.
    """
    by_site = terms_by_site()
    hours = SiteHour.objects.filter(hour__gte=start, hour__lt=end).order_by("hour")
    grid = GridHour.objects.filter(hour__gte=start, hour__lt=end, is_forecast=False)
    if sites is not None:
        hours, grid = hours.filter(site__in=sites), grid.filter(site__name__in=sites)
    told = {(row.site.name, row.hour): row for row in grid.select_related("site")}
    rows = list(hours)
    for row in rows:
        _rate_one(row, by_site.get(row.site, []), told.get((row.site, row.hour)))
    SiteHour.objects.bulk_update(rows, _FIELDS, batch_size=_AT_ONCE)
    _charge_demand(rows, by_site)


def _rate_one(row: SiteHour, terms: Sequence[Terms], told: GridHour | None) -> None:
    carbon = price = None
    if told is not None:
        price = told.price_per_kwh
        if told.carbon_g_per_kwh is not None:
            carbon = told.carbon_g_per_kwh, told.source
    found = rates_at(terms, row.hour, carbon, price)
    for name in _FIELDS:
        setattr(row, name, getattr(found, name))


def zones() -> dict[str, ZoneInfo]:
    """Return the time zone of each site. One query."""
    return {name: ZoneInfo(zone) for name, zone in Site.objects.values_list("name", "time_zone")}


def _charge_demand(rows: Iterable[SiteHour], by_site: dict[str, list[Terms]]) -> None:
    """Put the demand charge of each month that is touched on the hour in which its peak is.

    An hour is of the month in which it begins at its site.
    """
    zone_of, utc = zones(), ZoneInfo("UTC")
    months = {(row.site, *month_of(row.hour, zone_of.get(row.site, utc))) for row in rows}
    for site, start, end in months:
        hours = SiteHour.objects.filter(site=site, hour__gte=start, hour__lt=end)
        _mark(hours, peak_of(_draws(hours), by_site.get(site, [])))


def _draws(hours: QuerySet[SiteHour]) -> Iterator[HourDraw]:
    total = F("jobs_mj") + F("idle_mj") + F("unmanaged_mj") + F("residual_mj")
    for row in hours.annotate(total=total).values_list("hour", "total", "five_minutes_mj"):
        yield HourDraw(*row)


def _mark(hours: QuerySet[SiteHour], peak: Peak | None) -> None:
    """Have one of the hours of a month carry its peak, and no other. Three updates."""
    marked = hours.filter(~Q(demand=0.0) | Q(peak_at__isnull=False))
    if peak is None:
        marked.update(**_NO_PEAK)
        return
    marked.exclude(hour=peak.hour).update(**_NO_PEAK)
    told = {"peak_at": peak.at, "peak_s": peak.length_s, "peak_w": peak.mean_w}
    # Who drew it is found out anew where it is another one.
    hours.filter(hour=peak.hour).exclude(**told).update(**told, peak_mj=None)
    hours.filter(hour=peak.hour).update(demand=peak.charge)
