"""Rows on one time axis: spans, moments and a line of readings. Pure.

All rows of a chart have the same start and end, and the same width on the page, so that what stands
below each other happened at once. Looks are CSS classes ``act-…`` of static/css/incidents.css; what
a row is stands beside it in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

#: Width of the drawing in its own units; the page stretches it.
WIDTH = 1000
_HEIGHT = 12
_LINE_HEIGHT = 56
#: Of its length, a live axis moves by so many steps.
_STEPS = 240
#: The narrowest bar that can still be seen.
_LEAST_WIDTH = 2.0


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasts, Unix s. ``end`` None: it goes on."""

    start: float
    end: float | None
    look: str
    title: str


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened at once, Unix s."""

    at: float
    look: str
    title: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The time that all rows show, Unix s."""

    start: float
    end: float

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2

    def x(self, at: float) -> float:
        """Return the x coordinate of ``at``, within the drawing."""
        share = (at - self.start) / max(self.end - self.start, 1e-9)
        return WIDTH * min(max(share, 0.0), 1.0)

    def steady(self) -> Axis:
        """Return the axis with ends rounded to steps, so that it is not drawn anew each second."""
        step = max((self.end - self.start) / _STEPS, 1.0)
        return Axis(math.floor(self.start / step) * step, math.ceil(self.end / step) * step)


def spans(axis: Axis, given: Sequence[Span], label: str) -> SafeString:
    """Return a row of bars."""
    return _drawing(_HEIGHT, label, (_bar(axis, each) for each in given))


def moments(axis: Axis, given: Sequence[Moment], label: str) -> SafeString:
    """Return a row of marks."""
    return _drawing(_HEIGHT, label, (_mark(axis, each) for each in given))


def line(
    axis: Axis,
    times: Sequence[float],
    values: Sequence[float | None],
    label: str,
    *,
    is_step: bool = False,
) -> SafeString:
    """Return a row with one line, from its least to its greatest value; it breaks at a None.

    ``is_step``: a value holds until the next one.
    """
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    drawn = _path(axis, times, values, low, high, is_step=is_step)
    path = format_html('<path class="act-line" d="{}"/>', drawn)
    return _drawing(_LINE_HEIGHT, label, [path])


def _path(
    axis: Axis,
    times: Sequence[float],
    values: Sequence[float | None],
    low: float,
    high: float,
    *,
    is_step: bool = False,
) -> str:
    size = high - low or 1.0
    parts: list[str] = []
    is_new = True
    for at, value in zip(times, values, strict=True):
        if value is None:
            is_new = True
            continue
        x, y = axis.x(at), (_LINE_HEIGHT - 4) * (1 - (value - low) / size) + 2
        if is_step and not is_new:
            parts.append(f"H{x:.1f}")
        parts.append(f"{'M' if is_new else 'L'}{x:.1f} {y:.1f}")
        is_new = False
    return " ".join(parts)


def _drawing(height: int, label: str, shapes: Iterable[SafeString]) -> SafeString:
    return format_html(
        '<svg class="axis-row axis-{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><rect class="spans-track" width="{}" height="{}"/>{}</svg>',
        "line" if height == _LINE_HEIGHT else "bars",
        WIDTH,
        height,
        label,
        WIDTH,
        height,
        format_html_join("", "{}", ((shape,) for shape in shapes)),
    )


def _bar(axis: Axis, span: Span) -> SafeString:
    start, end = axis.x(span.start), axis.x(axis.end if span.end is None else span.end)
    width = max(end - start, _LEAST_WIDTH)
    return format_html(
        '<rect class="act-{}" x="{}" y="1" width="{}" height="{}"><title>{}</title></rect>',
        span.look,
        f"{min(start, WIDTH - width):.1f}",
        f"{width:.1f}",
        _HEIGHT - 2,
        span.title,
    )


def _mark(axis: Axis, moment: Moment) -> SafeString:
    x = min(axis.x(moment.at), WIDTH - 3.0)
    return format_html(
        '<rect class="act-{}" x="{}" y="0" width="3" height="{}"><title>{}</title></rect>',
        moment.look,
        f"{x:.1f}",
        _HEIGHT,
        moment.title,
    )
