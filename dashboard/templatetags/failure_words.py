"""Failure rates in templates: ``{% load failure_words %}``."""

from __future__ import annotations

from django import template

from dashboard import failures
from dashboard.exports import measured, told

register = template.Library()

#: Rates are per hour, and told of 1,000 devices in a year.
_PER_YEAR = 1.0 / (1000.0 * failures.HOURS_PER_YEAR)

register.filter("per_year", measured("", _PER_YEAR)(failures.per_year))
register.filter("every", measured("h")(failures.every))
register.filter("at_least", measured("h")(failures.at_least))


@register.simple_tag
def share(value: float) -> str:
    """Return a share in percent, with digits where it is small: ``0.13 %``."""
    percent = 100.0 * value
    text = "under 0.01 %" if 0.0 < percent < 0.01 else f"{percent:.2f} %"
    return told(text, percent, "%")
