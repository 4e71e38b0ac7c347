"""The carbon intensity and the day-ahead price of a grid, by the shape of Electricity Maps v3.

The token goes into the header ``auth-token``. It is never written to the log or the database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import TypeVar

import msgspec
import requests

from accounts.edge.answers import BadAnswer, read_within
from accounts.edge.safe_urls import is_safe
from admission.energy.actions import Told

__all__ = ["Access", "GridError", "forecast", "history", "price_forecast", "price_history"]

T = TypeVar("T")

_MOST_BYTES = 4 * 1024 * 1024
#: What is beyond is no intensity of a grid, g CO2e/kWh.
_MOST_G_PER_KWH = 5000.0
#: What is beyond is no price of one, money/kWh, below 0 or above.
_MOST_PER_KWH = 1000.0
_KWH_PER_MWH = 1000.0


class GridError(Exception):
    """The source cannot be reached, or its answer cannot be used. Says nothing secret."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Where the source is, and who asks."""

    url: str
    token: str
    timeout_s: float

    def __repr__(self) -> str:
        return f"Access({self.url!r})"


class _Point(msgspec.Struct, rename="camel"):
    carbon_intensity: float | None
    datetime: datetime


class _History(msgspec.Struct):
    zone: str
    history: list[_Point]


class _Forecast(msgspec.Struct):
    zone: str
    forecast: list[_Point]


class _Price(msgspec.Struct):
    value: float | None
    datetime: datetime
    unit: str = ""


class _PriceHistory(msgspec.Struct):
    zone: str
    history: list[_Price]
    unit: str = ""


class _PriceForecast(msgspec.Struct):
    zone: str
    forecast: list[_Price]
    unit: str = ""


def history(access: Access, zone: str) -> list[Told]:
    """Return what the last 24 h were, by the hour. Raises :class:`GridError`."""
    return _by_hour(_get(access, "carbon-intensity/history", zone, _History).history, zone)


def forecast(access: Access, zone: str) -> list[Told]:
    """Return what is expected of the hours ahead. Raises :class:`GridError`."""
    return _by_hour(_get(access, "carbon-intensity/forecast", zone, _Forecast).forecast, zone)


def price_history(access: Access, zone: str, currency: str) -> list[Told]:
    """Return what the day-ahead market asked for in the last 24 h, by the hour.

    Raises :class:`GridError`, also where it is not in ``currency``.
    """
    found = _get(access, "price-day-ahead/history", zone, _PriceHistory)
    return _prices(found.history, found.unit, zone, currency)


def price_forecast(access: Access, zone: str, currency: str) -> list[Told]:
    """Return what it asks for in the hours ahead. Raises as :func:`price_history`."""
    found = _get(access, "price-day-ahead/forecast", zone, _PriceForecast)
    return _prices(found.forecast, found.unit, zone, currency)


def _by_hour(points: Sequence[_Point], zone: str) -> list[Told]:
    """Return the mean intensity of each hour. Points that tell nothing yet are left out."""
    for point in points:
        grams = point.carbon_intensity
        if grams is not None and not 0.0 <= grams <= _MOST_G_PER_KWH:
            raise GridError(f"{zone}: carbonIntensity: {grams:g} is no intensity of a grid")
    found = _means([(point.datetime, point.carbon_intensity) for point in points], zone)
    return [Told(hour, carbon_g_per_kwh=grams) for hour, grams in found]


def _prices(points: Sequence[_Price], unit: str, zone: str, currency: str) -> list[Told]:
    for point in points:
        said = point.unit or unit
        if said != f"{currency}/MWh":
            raise GridError(f"{zone}: unit: {said[:20]!r} is not {currency}/MWh")
        if point.value is not None and not abs(point.value) <= _MOST_PER_KWH * _KWH_PER_MWH:
            raise GridError(f"{zone}: value: {point.value:g} is no price of a MWh")
    found = _means([(point.datetime, point.value) for point in points], zone)
    return [Told(hour, price_per_kwh=price / _KWH_PER_MWH) for hour, price in found]


def _means(
    points: Sequence[tuple[datetime, float | None]], zone: str
) -> list[tuple[datetime, float]]:
    """Return the mean of each hour, in order. Points that tell nothing yet are left out."""
    found: dict[datetime, list[float]] = defaultdict(list)
    for at, value in points:
        if at.tzinfo is None:
            raise GridError(f"{zone}: datetime: it has no offset from UTC")
        if value is not None:
            hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            found[hour].append(value)
    return [(hour, fmean(each)) for hour, each in sorted(found.items())]


def _get(access: Access, path: str, zone: str, kind: type[T]) -> T:
    if not is_safe(access.url):
        raise GridError(f"{access.url} is not https: the token is not sent there")
    what = f"{path} of {zone}"
    try:
        with requests.get(
            f"{access.url}/{path}", params={"zone": zone}, headers={"auth-token": access.token},
            timeout=access.timeout_s, stream=True, allow_redirects=False,
        ) as answer:  # fmt: skip
            if answer.status_code != 200:
                raise GridError(f"{what} was answered with {answer.status_code}")
            body = read_within(answer, _MOST_BYTES, 2.0 * access.timeout_s)
        found = msgspec.json.decode(body, type=kind)
    except requests.RequestException as error:
        raise GridError(f"{what} failed: {type(error).__name__}") from error
    except (BadAnswer, msgspec.DecodeError) as error:
        raise GridError(f"{what}: {error}") from error
    if getattr(found, "zone") != zone:  # noqa: B009 - all kinds have it
        raise GridError(f"{what}: the answer is of another zone")
    return found
