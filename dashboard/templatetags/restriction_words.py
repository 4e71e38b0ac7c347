"""Restrictions in words: ``{% load restriction_words %}``."""

from __future__ import annotations

from datetime import datetime

from django import template

from dashboard import restrictions
from dashboard.templatetags.telemetry_words import lasted_s
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction

register = template.Library()


@register.filter
def left(end: datetime, now: datetime) -> str:
    """Return how long it is from ``now`` until ``end``."""
    return lasted_s((end - now).total_seconds())


@register.filter
def value_of(row: Restriction) -> str:
    """Return the value of a restriction with its unit; empty where its kind takes none."""
    return restrictions.value_words(row.kind, row.value)


@register.filter
def state_words(row: Restriction, now: datetime) -> str:
    """Return the state by the clock, whether or not a sweep has passed."""
    can_expire = row.state in (Restriction.State.IN_FORCE, Restriction.State.PENDING_APPROVAL)
    if can_expire and row.expires_at <= now:
        return "expired"
    return row.get_state_display().lower()


@register.filter
def ended(row: Restriction) -> datetime:
    """Return when a restriction ended, or would have."""
    return row.ended_at or row.expires_at


@register.simple_tag
def restriction_kinds() -> list[str]:
    """Return all kinds of restrictions, with their documentation."""
    return [kind.value for kind in RestrictionKind]
