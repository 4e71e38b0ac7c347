"""Tariffs and figures of grids, as people and sources bring them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from accounts import audit
from accounts.models import User
from admission.energy import ahead, rating
from admission.energy.models import ClosedHour, GridHour, Tariff
from fleet.models import Site
from telemetry.rollups.spec import HOUR_S

__all__ = ["Told", "make_tariff", "take_grid"]

#: Hours are rated up to here: none is closed that far ahead.
_EVER = datetime(9999, 1, 1, tzinfo=UTC)
_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class Told:
    """What a grid tells of one hour: g CO2e/kWh and money/kWh; None: nothing."""

    hour: datetime
    carbon_g_per_kwh: float | None = None
    price_per_kwh: float | None = None


@transaction.atomic
def make_tariff(
    user: User, site: Site, begins_at: datetime, given: Mapping[str, Any], *, now: datetime
) -> Tariff:
    """Make a tariff; hours that it holds for are rated by it, and closed again for its PUE.

    Raises ValidationError, by field.
    """
    if begins_at.timestamp() % HOUR_S:
        raise ValidationError({"begins_at": "give a whole hour of UTC: rates are by the hour"})
    row = Tariff(site=site, begins_at=begins_at, made_by=user.get_username(), made_at=now, **given)
    row.full_clean()
    row.save()
    if row.pue is not None:
        ClosedHour.objects.filter(hour__gte=begins_at).update(again_at=now)
    rating.rate(begins_at, _EVER, [site.name])
    ahead.invalidate()
    told = {name: value for name, value in given.items() if value not in (None, "")}
    audit.record(user, "energy.tariff", str(row), **told)
    return row


@transaction.atomic
def take_grid(site: Site, told: Sequence[Told], source: GridHour.Source, *, now: datetime) -> int:
    """Take what the grid of a site tells, in place of what it told; return of how many hours.

    Hours that are ahead are forecasts. What is not told of an hour stays as it was.
    """
    known = {
        row.hour: row
        for row in GridHour.objects.filter(site=site, hour__in=[each.hour for each in told])
    }
    rows = [_row(site, each, source, known.get(each.hour), now) for each in told]
    GridHour.objects.bulk_create(
        rows, batch_size=_AT_ONCE, update_conflicts=True, unique_fields=["site", "hour"],
        update_fields=["carbon_g_per_kwh", "price_per_kwh", "source", "is_forecast"],
    )  # fmt: skip
    if told:
        first, last = min(each.hour for each in told), max(each.hour for each in told)
        rating.rate(first, last + timedelta(hours=1), [site.name])
        ahead.invalidate()
    return len(rows)


def _row(
    site: Site, told: Told, source: GridHour.Source, known: GridHour | None, now: datetime
) -> GridHour:
    carbon, price = told.carbon_g_per_kwh, told.price_per_kwh
    if known is not None:
        carbon = known.carbon_g_per_kwh if carbon is None else carbon
        price = known.price_per_kwh if price is None else price
    return GridHour(
        site=site, hour=told.hour, carbon_g_per_kwh=carbon, price_per_kwh=price, source=source,
        is_forecast=told.hour > now,
    )  # fmt: skip
