"""Series of a run as SVG: the fault's span shaded, budgets drawn, values over them in red. Pure.

A plot is as wide as its place. Lines stretch with it (``preserveAspectRatio="none"``) and texts do
not: they stand in drawings of their own, at shares of the width. The lines' coordinates are the
values themselves, so that the page's script reads from them what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.matrix.report import words
from lab.matrix.report.markup import Markup, el, joined
from lab.matrix.report.scales import Axis, thinned, time_ticks, value_axis
from lab.matrix.result import Cell, Series, Span

__all__ = ["figures"]

#: Of a plot, in pixels; its width is a number of its own.
HEIGHT, WIDTH = 150.0, 1000.0
LABEL_HEIGHT = 18.0
#: Points of a line: about as many as a plot has pixels on a small window.
_MOST_POINTS = 400
#: Lines that can be told apart by color and dashes.
_MOST_LINES = 4
#: Pixels of a letter of a label, and of a plot on a phone and on a desktop.
_LETTER, _NARROW, _WIDE = 6.6, 285.0, 480.0
#: Room between two labels, as a share of the plot.
_BETWEEN = 0.01


@dataclass(frozen=True)
class _Plot:
    """One plot: series that are drawn on the same axes."""

    name: str
    series: list[Series]
    spans: list[Span]
    end_s: float
    axis: Axis
    #: what values are divided by, and their unit then
    size: float
    unit: str

    def x(self, t_s: float) -> float:
        return min(max(t_s / self.end_s, 0.0), 1.0)

    def y(self, value: float) -> float:
        return HEIGHT * (1.0 - min(max(self.axis.share(value), 0.0), 1.0))


def figures(cell: Cell, key: str) -> Markup:
    """Return all plots of a cell. ``key`` is in their ids, which are unique in the page."""
    groups: dict[str, list[Series]] = {}
    for series in cell.series:
        groups.setdefault(series.plot or series.name, []).append(series)
    plots = [
        _plot(name, group[at : at + _MOST_LINES], cell)
        for name, group in groups.items()
        for at in range(0, len(group), _MOST_LINES)
    ]
    return joined(*(_figure(plot, f"{key}-{i}") for i, plot in enumerate(plots) if plot))


def _plot(name: str, series: list[Series], cell: Cell) -> _Plot | None:
    """Return the plot of series that go together; None: there is nothing to draw."""
    values = [value for each in series for value in each.values if value is not None]
    times = [each.t_s[-1] for each in series if each.t_s]
    end_s = max([*times, cell.simulated_s], default=0.0)
    if not values or end_s <= 0:
        return None
    budgets = [each.budget for each in series if each.budget is not None]
    size, unit = words.scaled(max(map(abs, [*values, *budgets])), series[0].unit)
    axis = value_axis(values, budgets, size)
    return _Plot(name, series, cell.spans, end_s, axis, size, unit)


def _figure(plot: _Plot, key: str) -> Markup:
    title = words.words_of(plot.name if len(plot.series) > 1 else plot.series[0].name)
    # Not "queued jobs, jobs".
    unit = f", {plot.unit}" if plot.unit and plot.unit not in title else None
    return el(
        "figure",
        el(
            "figcaption",
            el("span", el("b", title), unit, class_="plot-title"),
            _legend(plot),
            el("output", class_="readout", aria_live="off"),
        ),
        el(
            "div",
            _spans_row(plot),
            _value_labels(plot),
            el("div", _art(plot, key), _budget_labels(plot), class_="plot-art"),
            _time_labels(plot),
            class_="plot-grid",
        ),
        class_="plot",
        tabindex=0,
        role="group",
        aria_label=_in_words(plot, title),
        data_end=f"{plot.end_s:.6g}",
        data_size=f"{plot.size:g}",
        data_unit=plot.unit,
    )


def _legend(plot: _Plot) -> Markup | None:
    if len(plot.series) == 1:
        return None
    return el(
        "span",
        *(
            el(
                "span",
                el(
                    "svg",
                    el("path", d="M0 5H22", class_=f"line s{i}"),
                    width=22,
                    height=10,
                    aria_hidden="true",
                ),
                words.words_of(each.name),
                class_="key",
            )
            for i, each in enumerate(plot.series, 1)
        ),
        class_="legend",
    )


def _in_words(plot: _Plot, title: str) -> str:
    """Return the plot in words, for screen readers."""
    return f"{title}. {' '.join(_series_in_words(each) for each in plot.series)}"


def _series_in_words(series: Series) -> str:
    known = [value for value in series.values if value is not None]
    if not known:
        return f"{words.words_of(series.name)}: no value."
    low, high = (words.quantity(value, series.unit) for value in (min(known), max(known)))
    said = f"{words.words_of(series.name)}: from {low} to {high}"
    if series.budget is not None:
        said += f", budget {words.quantity(series.budget, series.unit)}"
        over = sum(value > series.budget for value in known)
        said += f", over it in {over} of {len(known)} points" if over else ", never over it"
    return said + "."


def _art(plot: _Plot, key: str) -> Markup:
    return el(
        "svg",
        *_shades(plot),
        *_grid(plot),
        *_lines(plot, key),
        *_budgets(plot),
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        preserveAspectRatio="none",
        class_="art",
        aria_hidden="true",
    )


def _shades(plot: _Plot) -> Iterator[Markup]:
    for span in plot.spans:
        left, right = WIDTH * plot.x(span.from_s), WIDTH * plot.x(span.to_s)
        # What lasts a moment is to be seen, too.
        width = max(right - left, 2.0)
        yield el("rect", x=_px(left), y=0, width=_px(width), height=f"{HEIGHT:g}", class_="fault")
        for edge in (left, left + width):
            yield el("path", d=f"M{_px(edge)} 0V{HEIGHT:g}", class_="fault-edge")


def _grid(plot: _Plot) -> Iterator[Markup]:
    for value in plot.axis.ticks:
        yield el("path", d=f"M0 {_px(plot.y(value))}H{WIDTH:g}", class_="grid")


def _lines(plot: _Plot, key: str) -> Iterator[Markup]:
    axis = plot.axis
    per_s = WIDTH / plot.end_s
    per_one = HEIGHT / (axis.high - axis.low)
    # From values to places, so that the coordinates below are the values.
    matrix = f"matrix({per_s:.8g} 0 0 {-per_one:.8g} 0 {HEIGHT + axis.low * per_one:.8g})"
    for i, series in enumerate(plot.series, 1):
        path = _path(thinned(series, _MOST_POINTS))
        name = words.words_of(series.name)
        yield el(
            "g",
            el("path", d=path, class_=f"line s{i}", data_name=name),
            transform=matrix,
        )
        peak = max((value for value in series.values if value is not None), default=-math.inf)
        if series.budget is None or peak <= series.budget:
            continue
        clip = f"over-{key}-{i}"
        height = _px(plot.y(series.budget))
        yield el("clipPath", el("rect", x=0, y=0, width=f"{WIDTH:g}", height=height), id=clip)
        over = el("g", el("path", d=path, class_="line over"), transform=matrix)
        yield el("g", over, clip_path=f"url(#{clip})")


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    parts = []
    is_down = False
    for t_s, value in points:
        if value is not None:
            parts.append(f"{'L' if is_down else 'M'}{t_s:.6g} {value:.6g}")
        is_down = value is not None
    return "".join(parts)


def _budgets(plot: _Plot) -> Iterator[Markup]:
    for value in _distinct_budgets(plot):
        yield el("path", d=f"M0 {_px(plot.y(value))}H{WIDTH:g}", class_="budget")


def _distinct_budgets(plot: _Plot) -> dict[float, str]:
    return {
        each.budget: each.budget_said or "budget" for each in plot.series if each.budget is not None
    }


def _budget_labels(plot: _Plot) -> Markup:
    labels = []
    for value, said in _distinct_budgets(plot).items():
        y = plot.y(value)
        # Under the line where there is no room over it.
        y = y - 4.0 if y > 16.0 else y + 13.0
        text = f"{said} {words.number(value / plot.size)}"
        labels.append(el("text", text, x="100%", dx=-3, y=_px(y), class_="budget-label"))
    return el("svg", *labels, width="100%", height=f"{HEIGHT:g}", class_="over-art",
              aria_hidden="true")  # fmt: skip


def _value_labels(plot: _Plot) -> Markup:
    texts = (
        el(
            "text",
            words.number(value / plot.size),
            x="100%",
            dx=-6,
            y=_px(plot.y(value) + 4.0),
        )
        for value in plot.axis.ticks
    )
    return el("svg", *texts, width="100%", height=f"{HEIGHT:g}", class_="y-labels",
              aria_hidden="true")  # fmt: skip


def _time_labels(plot: _Plot) -> Markup:
    return el(
        "svg",
        *(_time_label(t_s, plot.x(t_s)) for t_s in time_ticks(plot.end_s)),
        width="100%",
        height=f"{LABEL_HEIGHT:g}",
        class_="x-labels",
        aria_hidden="true",
    )  # fmt: skip


def _time_label(t_s: float, share: float) -> Markup:
    # The first and the last one stay inside the plot.
    anchor = "from" if share < 0.04 else "to" if share > 0.96 else "mid"
    return el("text", words.clock(t_s), x=_percent(share), y=13, class_=anchor)


def _spans_row(plot: _Plot) -> Markup | None:
    """Return the names of the faults over their spans, in as many lines as do not overlap."""
    if not plot.spans:
        return None
    labels, lanes = [], 1
    for size, room in (("wide", _WIDE), ("narrow", _NARROW)):
        found, used = _span_labels(plot, size, room)
        labels += found
        lanes = max(lanes, used)
    return el("svg", *labels, width="100%", height=f"{13 * lanes + 3}", class_="fault-labels",
              aria_hidden="true")  # fmt: skip


def _span_labels(plot: _Plot, size: str, room: float) -> tuple[list[Markup], int]:
    """Return labels for a plot that is ``room`` pixels wide, and how many lines they take."""
    ends: list[float] = []
    labels = []
    for span in sorted(plot.spans, key=lambda each: each.from_s):
        text = _clipped(words.words_of(span.name), room)
        width = len(text) * _LETTER / room
        # What begins late ends at the edge.
        begin = max(0.0, min(plot.x(span.from_s), 1.0 - width))
        lane = next((i for i, taken in enumerate(ends) if taken <= begin), len(ends))
        ends[lane : lane + 1] = [begin + width + _BETWEEN]
        labels.append(el("text", text, x=_percent(begin), y=11 + 13 * lane, class_=size))
    return labels, len(ends)


def _clipped(text: str, room: float) -> str:
    most = int(room / _LETTER)
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _px(value: float) -> str:
    return f"{value:.1f}"
