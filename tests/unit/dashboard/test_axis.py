"""Rows on one time axis."""

from __future__ import annotations

import re

import pytest

from dashboard.svg import axis
from dashboard.svg.axis import Axis, Moment, Span

AXIS = Axis(1000.0, 2000.0)


def boxes_of(svg: str) -> list[tuple[float, float]]:
    """Return x and width of what is drawn, without the track."""
    found = re.findall(r'class="act-[^"]+" x="([\d.]+)" y="\d" width="([\d.]+)"', svg)
    return [(float(x), float(width)) for x, width in found]


def test_a_bar_stands_where_it_was() -> None:
    svg = axis.spans(AXIS, [Span(1100.0, 1300.0, "warning", "hot")], "fired once")
    assert boxes_of(svg) == [(100.0, 200.0)]
    assert 'class="act-warning"' in svg
    assert "<title>hot</title>" in svg
    assert 'aria-label="fired once"' in svg


@pytest.mark.parametrize(
    ("span", "box"),
    [
        (Span(1500.0, None, "info", ""), (500.0, 500.0)),
        (Span(0.0, 1100.0, "info", ""), (0.0, 100.0)),
        (Span(1900.0, 9000.0, "info", ""), (900.0, 100.0)),
        (Span(1500.0, 1500.0, "info", ""), (500.0, 2.0)),
        (Span(5000.0, 6000.0, "info", ""), (998.0, 2.0)),
    ],
    ids=["goes on", "began before", "ends after", "too short to be seen", "outside"],
)
def test_a_bar_stays_within_the_drawing(span: Span, box: tuple[float, float]) -> None:
    assert boxes_of(axis.spans(AXIS, [span], "")) == [box]


def test_a_moment_at_the_end_can_be_seen() -> None:
    assert boxes_of(axis.moments(AXIS, [Moment(2000.0, "page", "")], "")) == [(997.0, 3.0)]


def test_a_line_goes_from_its_least_to_its_greatest_and_breaks_where_nothing_is_known() -> None:
    svg = axis.line(AXIS, [1000.0, 1250.0, 1500.0, 2000.0], [10.0, 20.0, None, 10.0], "heat")
    assert 'd="M0.0 54.0 L250.0 2.0 M1000.0 54.0"' in svg


def test_a_step_holds_until_the_next() -> None:
    svg = axis.line(AXIS, [1000.0, 1500.0], [0.0, 2.0], "", is_step=True)
    assert 'd="M0.0 54.0 H500.0 L500.0 2.0"' in svg


def test_a_line_of_nothing_and_one_that_never_changes_are_drawn() -> None:
    assert 'd=""' in axis.line(AXIS, [], [], "")
    assert 'd="M0.0 54.0 L1000.0 54.0"' in axis.line(AXIS, [1000.0, 2000.0], [5.0, 5.0], "")


def test_what_it_says_is_escaped() -> None:
    svg = axis.spans(AXIS, [Span(1000.0, 2000.0, "info", "<b>")], '"><script>')
    assert "<b>" not in svg
    assert "<script>" not in svg


def test_a_live_axis_moves_in_steps_and_keeps_both_ends_inside() -> None:
    first, second = Axis(1000.0, 3400.0).steady(), Axis(1001.0, 3401.0).steady()
    assert (first.start, first.end) == (1000.0, 3400.0)
    assert (second.start, second.end) == (1000.0, 3410.0)
    assert Axis(1009.0, 3409.0).steady() == second
