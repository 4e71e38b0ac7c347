"""One budget as one bar: committed filled, measured a line, enforced dashed, the limit red."""

from __future__ import annotations

import math

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from dashboard import units

_WIDTH = 200
_HEIGHT = 12


def budget_bar(
    limit_w: float,
    committed_w: float,
    *,
    measured_w: float = math.nan,
    enforced_w: float = math.nan,
    label: str = "",
) -> SafeString:
    """Return an SVG. All in W; NaN is not drawn. The scale grows with values over the limit."""
    known = [value for value in (limit_w, committed_w, measured_w) if not math.isnan(value)]
    # An enforced sum far above the budget is common: it may push the scale, but not without end.
    reach = [*known, min(enforced_w, 1.25 * limit_w)] if not math.isnan(enforced_w) else known
    full = max([*reach, 1.0])
    parts = [
        f'<rect class="bar-track" width="{_x(limit_w, full)}" height="{_HEIGHT}"/>',
        f'<rect class="bar-load" y="2" width="{_x(min(committed_w, limit_w), full)}"'
        f' height="{_HEIGHT - 4}"/>',
    ]
    if committed_w > limit_w:
        at = _x(limit_w, full)
        parts.append(
            f'<rect class="bar-over" x="{at}" y="2" width="{_x(committed_w - limit_w, full)}"'
            f' height="{_HEIGHT - 4}"/>'
        )
    parts.append(_mark("bar-limit", limit_w, full))
    parts.append(_mark("bar-enforced", enforced_w, full))
    parts.append(_mark("bar-measured", measured_w, full))
    return format_html(
        '<svg class="bar" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>',
        _WIDTH,
        _HEIGHT,
        label or describe(limit_w, committed_w, measured_w, enforced_w),
        mark_safe("".join(parts)),  # noqa: S308 - made of numbers and our own words
    )


def describe(
    limit_w: float,
    committed_w: float,
    measured_w: float = math.nan,
    enforced_w: float = math.nan,
) -> str:
    """Return the bar in words."""
    words = [f"committed {units.kilowatts(committed_w)} kW of {units.kilowatts(limit_w)} kW"]
    if not math.isnan(measured_w):
        words.append(f"measured {units.kilowatts(measured_w)} kW")
    if not math.isnan(enforced_w):
        words.append(f"enforced limit {units.kilowatts(enforced_w)} kW")
    return ", ".join(words)


def _x(value_w: float, full_w: float) -> str:
    if math.isnan(value_w):
        return "0"
    return f"{min(max(value_w, 0.0) / full_w, 1.0) * _WIDTH:.2f}"


def _mark(css: str, value_w: float, full_w: float) -> str:
    if math.isnan(value_w):
        return ""
    at = _x(value_w, full_w)
    return f'<line class="{css}" x1="{at}" x2="{at}" y1="-1" y2="{_HEIGHT + 1}"/>'
