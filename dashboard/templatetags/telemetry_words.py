"""Readings and spans of time in words: ``{% load telemetry_words %}``."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from urllib.parse import urlencode

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dashboard import units
from dashboard.causes import Cause
from dashboard.exports import hides, measured
from headroom.jobs import words
from telemetry.trust.compare import Standing, Told

register = template.Library()

_GIB = 2**30
_MINUS = "\N{MINUS SIGN}"


@register.filter
@measured("GiB", _GIB)
def gib(size: float | None) -> str:
    """Return bytes as GiB with one decimal, without the unit; whole from 100 GiB on."""
    if size is None:
        return units.DASH
    return units.number(size / _GIB, 0 if size >= 100 * _GIB else 1)


@register.filter
@measured("MB/s", 1e6)
def megabytes(rate: float | None) -> str:
    """Return bytes per second as MB/s without the unit; one decimal below 100."""
    if rate is None:
        return units.DASH
    return units.number(rate / 1e6, 0 if rate >= 1e8 else 1)


def lasted(seconds: float) -> str:
    """Return a length of time, as the command line says it: ``12 min``, ``3 h 5 min``."""
    return words.lasting(seconds)


lasted_s = register.filter("lasted", measured("s")(lasted))


@register.filter
def ago(moment: datetime) -> str:
    """Return how long ago ``moment`` was, without the word."""
    return lasted_s((timezone.now() - moment).total_seconds())


@register.filter
@measured("s")
def signed_s(seconds: float | None) -> str:
    """Return a difference between clocks: ``+0.02 s``, or with a minus sign; a dash for none."""
    if seconds is None:
        return units.DASH
    size = abs(seconds)
    if size < 0.005:
        return "0.00 s"
    text = units.age(size) if size >= 10 else f"{size:.2f} s"
    return f"{_MINUS if seconds < 0 else '+'}{text}"


@register.simple_tag
def progress_words(done_s: float, whole_s: float) -> str:
    """Return how far something is: ``41 % of 24 h``. All of it only once it is done."""
    share = math.floor(100.0 * min(1.0, done_s / whole_s)) if whole_s > 0.0 else 0
    return f"{share} % of {lasted_s(whole_s)}"


@register.inclusion_tag("inc/progress.html")
def progress(done_s: float, whole_s: float, label: str) -> dict[str, object]:
    """Return the bar of something that takes long; ``label`` is for screen readers."""
    words = progress_words(done_s, whole_s)
    return {"done": round(done_s), "whole": round(whole_s), "label": label, "words": words}


@register.simple_tag
def moment(at: datetime) -> SafeString:
    """Return a <time> in UTC without saying so: for columns whose header does."""
    utc = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        utc.isoformat(timespec="seconds"),
        utc.strftime("%Y-%m-%d %H:%M:%S"),
        utc.strftime("%m-%d %H:%M:%S"),
    )


@register.simple_tag
def with_page(query: dict[str, str], number: int) -> str:
    """Return ``query`` with another page, as a query string."""
    return urlencode([*query.items(), *hides(), ("page", number)])


@register.simple_tag
def with_value(query: dict[str, str], name: str, value: str) -> str:
    """Return ``query`` with another value of one parameter (empty: without it), on page 1."""
    rest = [*((key, given) for key, given in query.items() if key != name), *hides()]
    return urlencode([*rest, (name, value)] if value else rest)


_SEVERITY_CLASS = {"critical": " error", "warning": " warning"}


@register.simple_tag
def severity_tag(token: str, expected: bool = False) -> SafeString:
    """Return a severity as a tag; of an expected event, that it is one."""
    if expected:
        title = "A power limit was lowered"
        return format_html('<span class="tag" title="{}">expected</span>', title)
    return format_html('<span class="tag{}">{}</span>', _SEVERITY_CLASS.get(token, ""), token)


@register.simple_tag
def cause_tag(cause: Cause, labeled: bool = False) -> SafeString:
    """Return a throttle cause by its token; on hover what it means, ``labeled``: after its name."""
    title = f"{cause.label}: {cause.meaning}" if labeled else cause.meaning
    html = '<span class="cause cause-{}" title="{}">{}</span>'
    return format_html(html, cause.token, title, cause.token)


@register.filter
@measured("Wh", 3600.0)
def watt_hours(joules: float | None) -> str:
    """Return J as Wh without the unit; one decimal below 100."""
    if joules is None:
        return units.DASH
    return units.number(joules / 3600, 0 if joules >= 360_000 else 1)


_SOURCES = {
    Told.ENERGY_COUNTER: "energy counters of its GPUs",
    Told.POWER_READING: "power readings of its GPUs",
    Told.NODE_METER: "its power meter",
    Told.RACK_METER: "the rack's meter, less the other nodes",
}
_STANDINGS = {
    Standing.AGREES: "agrees",
    Standing.ODD: "differs: the others agree",
    Standing.DISPUTED: "differs: one of them is off",
    Standing.ALONE: "nothing to compare with",
}


@register.filter
def power_source(told_by: Told) -> str:
    """Return who tells a power, in words."""
    return _SOURCES[told_by]


@register.filter
def power_standing(standing: Standing) -> str:
    """Return how a source stands among the others, in words."""
    return _STANDINGS[standing]
