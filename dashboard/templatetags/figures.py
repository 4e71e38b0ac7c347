"""Numbers, bars and levels in templates: ``{% load figures %}``."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dashboard import scale, units
from dashboard.exports import measured
from dashboard.svg import bar

register = template.Library()

register.filter("kw", measured("kW", 1000.0)(units.kilowatts))
register.filter("pct", measured("%", 0.01)(units.percent))
register.filter("celsius", measured("°C")(units.celsius))
register.filter("age", measured("s")(units.age))
register.filter("level", scale.css)


@register.filter
@measured("")
def figure(value: float | None, digits: int = 0) -> str:
    """Return ``1,234.5``, or a dash."""
    return units.number(value, digits)


@register.filter
def counted(amount: int, words: str) -> str:
    """Return ``3 racks`` for ``{{ 3|counted:"rack" }}``; irregular: ``"entry,entries"``."""
    one, _, many = words.partition(",")
    return units.count(amount, one, many)


@register.filter
def row_words(name: str) -> str:
    """Return ``row A`` for ``A``, and ``row-01`` as it is."""
    return name if name.lower().startswith("row") else f"row {name}"


@register.filter
def absolute(value: float) -> float:
    return abs(value)


@register.filter
def known(value: float | None) -> bool:
    """Say whether a number is known."""
    return value is not None and not math.isnan(value)


@register.simple_tag
def budget_bar(
    limit_w: float,
    committed_w: float,
    measured_w: float = math.nan,
    enforced_w: float = math.nan,
    label: str = "",
) -> SafeString:
    """Return the bar of dashboard/svg/bar.py."""
    return bar.budget_bar(
        limit_w, committed_w, measured_w=measured_w, enforced_w=enforced_w, label=label
    )


@register.simple_tag
def clipped(text: str, href: str, *key: str | int) -> SafeString:
    """Return a text that is clipped where it is too long; where there is a page of it, as a link.

    ``key``: the parts of the link's id, which keeps the focus when a panel is swapped.
    """
    if not href:
        return format_html('<span class="clip" title="{0}">{0}</span>', text)
    return format_html(
        '<a class="clip" id="{2}" href="{1}" title="{0}">{0}</a>',
        text,
        href,
        "-".join(map(str, key)),
    )


@register.simple_tag
def utc(moment: datetime | float | None, style: str = "%H:%M:%S") -> SafeString | str:
    """Return a <time> in UTC, saying so; a dash for none. Takes a datetime or Unix s."""
    if moment is None:
        return units.DASH
    at = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    at = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}">{} UTC</time>',
        at.isoformat(timespec="seconds"),
        at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        at.strftime(style),
    )


@register.simple_tag
def span_end(unix: float) -> SafeString:
    """Return a <time> with its date, in UTC; js/range_picker.js tells it in local time if asked."""
    at = datetime.fromtimestamp(unix, UTC)
    return format_html(
        '<time datetime="{}" data-at="{}">{} UTC</time>',
        at.isoformat(timespec="seconds"),
        f"{unix:.0f}",
        at.strftime("%Y-%m-%d %H:%M:%S"),
    )


@register.inclusion_tag("inc/legend_scale.html")
def legend_scale() -> dict[str, object]:
    """Draw the eleven levels in a row, none left to all left."""
    return {"levels": [(i * 16, f"m{i}") for i in range(scale.TOP + 1)]}
