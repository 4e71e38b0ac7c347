"""Follows the grids of sites whose tariff names a zone: what was, and what is expected."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

import structlog
from django.conf import settings

from admission.energy import electricity_maps
from admission.energy.actions import Told, take_grid
from admission.energy.electricity_maps import Access, GridError
from admission.energy.models import GridHour, Tariff

__all__ = ["follow"]

log = structlog.get_logger(__name__)


def follow(now: datetime) -> bool:
    """Ask for all sites, where a source is set; False: at least one was asked in vain.

    Hours that are over go first: without a forecast they count all the same.
    """
    if not settings.ELECTRICITYMAPS_URL:
        return True
    access = Access(
        url=settings.ELECTRICITYMAPS_URL,
        token=settings.ELECTRICITYMAPS_TOKEN,
        timeout_s=settings.ELECTRICITYMAPS_TIMEOUT_S,
    )
    begun = Tariff.objects.filter(begins_at__lte=now).select_related("site")
    newest = {row.site_id: row for row in begun.order_by("begins_at")}
    asked = [_ask(access, row, now) for row in newest.values() if row.zone]
    return all(asked)


def _ask(access: Access, tariff: Tariff, now: datetime) -> bool:
    """Take what is told of one site; False: what was cannot be had."""
    carbon = _take(
        tariff, now,
        partial(electricity_maps.history, access, tariff.zone),
        partial(electricity_maps.forecast, access, tariff.zone),
    )  # fmt: skip
    if not tariff.is_spot:
        return carbon
    priced = access, tariff.zone, settings.ENERGY_CURRENCY
    price = _take(
        tariff, now,
        partial(electricity_maps.price_history, *priced),
        partial(electricity_maps.price_forecast, *priced),
    )  # fmt: skip
    return carbon and price


def _take(
    tariff: Tariff,
    now: datetime,
    history: Callable[[], list[Told]],
    forecast: Callable[[], list[Told]],
) -> bool:
    source = GridHour.Source.ELECTRICITY_MAPS
    try:
        told = history()
    except GridError as error:
        log.warning("grid_away", site=tariff.site.name, why=str(error))
        return False
    take_grid(tariff.site, told, source, now=now)
    try:
        ahead = forecast()
    except GridError as error:
        # Not every token may ask for it.
        log.info("no_grid_forecast", site=tariff.site.name, why=str(error))
        return True
    take_grid(tariff.site, [each for each in ahead if each.hour > now], source, now=now)
    return True
