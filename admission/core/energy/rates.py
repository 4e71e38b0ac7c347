"""What energy costs and emits, hour by hour: tariffs with dates, and the grid's own figures. Pure.

A tariff holds from its date until the next one of its site. What the grid tells of an hour goes
before the constants of the tariff.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

__all__ = ["MJ_PER_KWH", "Rates", "Terms", "in_force", "month_of", "rates_at"]

#: Millijoules in a kilowatt-hour.
MJ_PER_KWH = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a tariff from a date on. Money in the installation's currency; None: not stated.

    ``demand_per_kw`` is paid for each kW of the month's highest mean over
    ``demand_interval_min``, ``gpu_hour`` for each hour that a GPU is held.
    """

    begins_at: datetime
    price_per_kwh: float | None = None
    demand_per_kw: float | None = None
    demand_interval_min: int = 15
    gpu_hour: float | None = None
    carbon_g_per_kwh: float | None = None
    pue: float | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one hour at one site; None: not known. ``carbon_source`` says whose figure."""

    carbon_g_per_kwh: float | None
    carbon_source: str
    price_per_kwh: float | None
    gpu_hour: float | None


def in_force(terms: Sequence[Terms], at: datetime) -> Terms | None:
    """Return the terms that hold at a moment: of those in order of their dates the last begun."""
    place = bisect_right(terms, at, key=lambda each: each.begins_at)
    return terms[place - 1] if place else None


def rates_at(
    terms: Sequence[Terms], at: datetime, carbon: tuple[float, str] | None, price: float | None
) -> Rates:
    """Return the rates of the hour that begins ``at``.

    ``carbon`` (g CO2e/kWh, and whose figure that is) and ``price`` (money/kWh) are the grid's.
    """
    stated = in_force(terms, at) or Terms(begins_at=at)
    if carbon is None and stated.carbon_g_per_kwh is not None:
        carbon = stated.carbon_g_per_kwh, "tariff"
    grams, source = carbon or (None, "")
    return Rates(grams, source, stated.price_per_kwh if price is None else price, stated.gpu_hour)


def month_of(at: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the start and the end of the calendar month of a moment, in a site's time zone."""
    local = at.astimezone(zone)
    start = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start, end
