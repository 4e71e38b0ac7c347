"""Phases, placements and estimates in words: ``{% load job_words %}``."""

from __future__ import annotations

import math
from datetime import datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dashboard import jobs, reasons, units
from dashboard.exports import measured
from dashboard.templatetags.telemetry_words import lasted_s
from headroom.jobs import words
from telemetry.models import CheckpointFact

register = template.Library()


@register.simple_tag
def state_mark(state: str) -> SafeString:
    """Return a state as its mark and its word."""
    mark, look = jobs.STATES.get(state, ("", "later"))
    return format_html(
        '<span class="state state-{}"><span aria-hidden="true">{}</span> {}</span>',
        look,
        mark,
        state,
    )


@register.simple_tag
def reason_token(token: str) -> SafeString | str:
    """Return a reason's token, with its meaning as its title; a dash for none."""
    if not token:
        return format_html('<span class="dim">{}</span>', units.DASH)
    return format_html(
        '<span class="token" title="{}">{}</span>', reasons.meaning(token) or token, token
    )


@register.filter
def between(low_s: float | None, high_s: float | None) -> str:
    """Return when something is to start, as the command line says it; a dash: not known."""
    return words.between(low_s, high_s) or units.DASH


@register.simple_tag
def likely(low_s: float | None, high_s: float | None, basis: str) -> str:
    """Return when something is likely to start, or that nobody can say so, as a sentence begins."""
    text = words.likely(words.between(low_s, high_s), basis)
    return text[0].upper() + text[1:]


_OUTCOMES = {
    "succeeded": ("✓", "done"),
    "failed": ("✕", "failed"),
    "lost": ("✕", "failed"),
}


@register.simple_tag
def outcome_mark(outcome: str) -> SafeString:
    """Return how an attempt ended as a mark and its word."""
    mark, look = _OUTCOMES.get(outcome, ("□", "paused"))
    return format_html(
        '<span class="state state-{}"><span aria-hidden="true">{}</span> {}</span>',
        look,
        mark,
        outcome or "unknown",
    )


@register.filter
def until(moment: datetime, now: datetime) -> str:
    """Return how long it is from ``now`` until ``moment``."""
    return lasted_s((moment - now).total_seconds())


@register.filter
def span(start: datetime, end: datetime) -> str:
    """Return how long it is from ``start`` to ``end``."""
    return lasted_s((end - start).total_seconds())


@register.filter
def spaced(token: str) -> str:
    """Return a token as words: ``no effect`` for ``no_effect``."""
    return token.replace("_", " ").replace("-", " ").lower()


@register.filter
@measured("GPU-h", 3600.0)
def gpu_hours(gpu_s: float | None) -> str:
    """Return GPU seconds as GPU hours, without the unit; a dash for none."""
    return units.number(gpu_s / 3600, 1) if gpu_s else units.DASH


register.filter("asked", jobs.asked)


@register.filter
@measured("% slower", 0.01)
def slower(share: float) -> str:
    """Return a predicted slowdown: ``4 % slower``, ``as fast``."""
    return f"{units.number(share * 100, 0 if share >= 0.0095 else 1)} % slower" if share else ""


@register.simple_tag
def share_bar(share: float, mark: float = math.nan) -> SafeString:
    """Return a share of a quota as a bar, over where it is more than all; nothing for none.

    With ``mark`` the bar's scale is the larger of the two, and ``mark`` stands as a line.
    """
    if math.isnan(share):
        return SafeString("")
    scale = max(share, mark, 1e-9) if not math.isnan(mark) else max(min(share, 2.0), 1.0)
    load, limit = 200 * min(share, scale) / scale, 200 * (1.0 if math.isnan(mark) else mark) / scale
    over = max(load - limit, 0.0) if math.isnan(mark) else 0.0
    return format_html(
        '<svg class="bar" viewBox="0 0 200 12" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="bar-track" width="200" height="12"/>'
        '<rect class="bar-load" y="2" width="{}" height="8"/>'
        '<rect class="bar-over" x="{}" y="2" width="{}" height="8"/>'
        '<line class="{}" x1="{}" x2="{}" y1="-1" y2="13"/></svg>',
        f"{load - over:.1f}",
        f"{limit:.1f}",
        f"{over:.1f}",
        "bar-limit" if math.isnan(mark) else "bar-measured",
        f"{limit:.1f}",
        f"{limit:.1f}",
    )


@register.filter
def behind(fact: CheckpointFact) -> str:
    """Return how far the checkpoints of a site are behind, as the command line says it."""
    names = ("lag_checkpoints", "lag_steps", "lag_s", "lag_bytes")
    return words.behind({name: getattr(fact, name) for name in names})
