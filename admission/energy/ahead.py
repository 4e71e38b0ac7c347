"""What energy costs and emits in the hours ahead: what grids expect, else the tariffs in force."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from django.conf import settings

from admission.core.energy.ahead import Ahead, Floats
from admission.core.energy.rates import Terms, in_force
from admission.energy.models import GridHour
from admission.energy.rating import terms_by_site
from fleet.cache import Cache
from fleet.models import Site
from telemetry.rollups.spec import HOUR_S

__all__ = ["current", "invalidate", "read"]

#: As long as anybody may wait, and a day to run in.
_HOURS = 8 * 24
_SERVES_S = 60.0
_kept: Cache[Ahead] = Cache(_SERVES_S)


def current(now: float) -> Ahead:
    """Return what is known of the hours ahead, at most a minute old. Three queries, or none."""
    return _kept.get(lambda: read(now), now=now)


def invalidate() -> None:
    """Have the next look read anew what is known."""
    _kept.invalidate()


def read(now: float) -> Ahead:
    """Return what is known of the hours from that of ``now`` (Unix s) on. Three queries.

    Where a grid tells of any hour ahead, those of which it does not tell are not known: the tariff
    is what holds where nothing is told, and no forecast.
    """
    start = datetime.fromtimestamp(now // HOUR_S * HOUR_S, UTC)
    names = tuple(Site.objects.order_by("name").values_list("name", flat=True))
    price, carbon = (np.full((len(names), _HOURS), np.nan) for _ in range(2))
    told = GridHour.objects.filter(hour__gte=start, hour__lt=start + timedelta(hours=_HOURS))
    for site, hour, money, grams in told.values_list(
        "site__name", "hour", "price_per_kwh", "carbon_g_per_kwh"
    ):
        at = names.index(site), int((hour - start) / timedelta(hours=1))
        price[at] = np.nan if money is None else money
        carbon[at] = np.nan if grams is None else grams
    terms = terms_by_site()
    for row, name in enumerate(names):
        _fill(price[row], terms.get(name, []), start, "price_per_kwh")
        _fill(carbon[row], terms.get(name, []), start, "carbon_g_per_kwh")
    return Ahead(
        start=start.timestamp(), sites=names, price=price, carbon=carbon,
        currency=settings.ENERGY_CURRENCY,
    )  # fmt: skip


def _fill(rates: Floats, terms: Sequence[Terms], start: datetime, name: str) -> None:
    """Put the tariffs' rates in place, where a grid tells of no hour at all."""
    if not np.isnan(rates).all():
        return
    stated = [in_force(terms, start + timedelta(hours=hour)) for hour in range(len(rates))]
    rates[:] = [np.nan if each is None else _number(getattr(each, name)) for each in stated]


def _number(value: float | None) -> float:
    return np.nan if value is None else value
