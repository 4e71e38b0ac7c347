"""Filters for headroom: amounts, units and times in words: ``{% load headroom_words %}``."""

from __future__ import annotations

import math

from django import template

from dashboard import units
from dashboard.exports import measured, told
from dashboard.templatetags.telemetry_words import lasted
from policies.headroom.binding import quantity

register = template.Library()

_DAY_S = 86_400.0


@register.filter
@measured("s")
def full_in(seconds: float | None) -> str:
    """Return when something is used up: ``12 min``, ``now``, ``over a day``, or a dash for never.

    Slopes are of the last minutes: what they say of tomorrow is no news.
    """
    if seconds is None or math.isnan(seconds) or math.isinf(seconds):
        return units.DASH
    if seconds <= 0:
        return "now"
    return lasted(seconds) if seconds < _DAY_S else "over a day"


@register.filter
@measured("°C")
def degrees(value: float | None) -> str:
    """Return °C with one decimal, without the unit."""
    return units.number(value, 1)


@register.filter
@measured("bit/s")
def bits(value: float | None) -> str:
    """Return bit/s as people say it: ``12.5 Gbit/s``."""
    return units.DASH if value is None or math.isnan(value) else quantity(value, "bit/s")


@register.filter
@measured("bit/s", 1 / 8)
def network(rate: float | None) -> str:
    """Return bytes per second of a network in bits, as of its links: ``12.5 Gbit/s``."""
    return units.DASH if rate is None else quantity(8.0 * rate, "bit/s")


@register.filter
def amount(value: float | None, unit: str) -> str:
    """Return a quantity as people say it: ``41.2 kW``."""
    if value is None or math.isnan(value):
        return units.DASH
    return told(quantity(value, unit), value, unit)


@register.filter
@measured("kW", 1000.0)
def kw_off(watts: float | None) -> str:
    """Return an error, W, as kW with as many digits as small ones need, without the unit."""
    if watts is None or math.isnan(watts):
        return units.DASH
    return units.number(watts / 1000, 2 if abs(watts) < 1000 else 1)


@register.filter
def minus(whole: float, part: float) -> float:
    """Return the difference; NaN where either is unknown."""
    return whole - part


@register.filter
@measured("W/min", 1 / 60.0)
def per_minute(watts_per_s: float) -> str:
    """Return a slope as the change in a minute: ``+1.2 kW``."""
    change_w = 60.0 * watts_per_s
    sign = units.MINUS if change_w < 0 else "+"
    return f"{sign}{quantity(abs(change_w), 'W')}"
