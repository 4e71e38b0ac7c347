"""Spans of time as bars on one row: where throttle events were, a lane for each cause. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from dashboard.causes import CAUSES, Cause
from headroom.contracts import ThrottleCause

#: Width of the drawing in its own units; the page stretches it.
WIDTH = 1000
_LANE = 9
_GAP = 2
#: The narrowest bar that can still be seen.
_LEAST_WIDTH = 2.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A cause from ``start`` to ``end`` (Unix s); ``end`` None: it goes on."""

    cause: ThrottleCause
    start: float
    end: float | None


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans in order, those that touch or overlap made into one."""
    out: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def row(bars: Sequence[Bar], start: float, end: float, label: str) -> SafeString:
    """Return an SVG of ``bars`` on the span from ``start`` to ``end``, a lane for each cause.

    Bars of one cause that overlap, such as those of many GPUs, are drawn as one.
    """
    lanes: dict[ThrottleCause, list[tuple[float, float]]] = defaultdict(list)
    for bar in bars:
        lanes[bar.cause].append((max(bar.start, start), min(bar.end or end, end)))
    height = max(len(lanes), 1) * (_LANE + _GAP) - _GAP
    shapes = [
        _rect(CAUSES[cause], lane, spans[0], spans[1], start, end)
        for lane, cause in enumerate(sorted(lanes))
        for spans in merged(lanes[cause])
    ]
    return format_html(
        '<svg class="spans lanes-{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><rect class="spans-track" width="{}" height="{}"/>{}</svg>',
        max(len(lanes), 1),
        WIDTH,
        height,
        label,
        WIDTH,
        height,
        format_html_join("", "{}", ((shape,) for shape in shapes)),
    )


def _rect(
    cause: Cause, lane: int, bar_start: float, bar_end: float, start: float, end: float
) -> SafeString:
    scale = WIDTH / (end - start)
    width = max((bar_end - bar_start) * scale, _LEAST_WIDTH)
    x = min((bar_start - start) * scale, WIDTH - width)
    return format_html(
        '<rect class="span-{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        cause.token,
        f"{x:.1f}",
        lane * (_LANE + _GAP),
        f"{width:.1f}",
        _LANE,
        cause.token,
    )
