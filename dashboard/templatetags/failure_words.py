"""Failure rates in templates: ``{% load failure_words %}``."""

from __future__ import annotations

from django import template

from dashboard import failures

register = template.Library()

register.filter("per_year", failures.per_year)
register.filter("every", failures.every)


@register.simple_tag
def share(value: float) -> str:
    """Return a share in percent, with digits where it is small: ``0.13 %``."""
    percent = 100.0 * value
    return "under 0.01 %" if 0.0 < percent < 0.01 else f"{percent:.2f} %"
