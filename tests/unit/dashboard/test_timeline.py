from __future__ import annotations

from dashboard.ranges import RangePicker
from dashboard.timeline import MEASURES, Extremes, Measure, Timeline, extremes
from telemetry.series import FIELDS, Kind, Series
from telemetry.spans import Span
from telemetry.timeline.extents import Extent

POWER = Measure("power_w", "Power", "kW", 1e-3, 1)


def test_extremes_are_in_the_unit_that_is_shown() -> None:
    found = Series(None, {"t": [1]}, extents={"power_w": Extent(1000, 2000, 3000, exact=True)})
    assert extremes(found, (POWER,)) == [Extremes(POWER, 1, 2, 3, exact=True)]


def test_extremes_of_means_are_told_from_those_of_readings() -> None:
    found = Series(60, {"t": [1]}, extents={"power_w": Extent(500, 2000, 9000, exact=False)})
    (row,) = extremes(found, (POWER,))
    assert (row.least, row.mean, row.greatest, row.exact) == (0.5, 2, 9, False)


def test_a_measure_without_a_reading_is_left_out() -> None:
    assert extremes(Series(None, {"t": [1], "power_w": [None]}), (POWER,)) == []


def test_every_measure_is_a_field_of_its_kind() -> None:
    for kind, measures in MEASURES.items():
        assert {measure.field for measure in measures} <= set(FIELDS[kind])


def test_the_csv_link_asks_for_the_span_that_is_shown() -> None:
    picker = RangePicker(Span(0, 3600, live=True, range="1h"))
    timeline = Timeline(picker, ((Kind.NODE, 3), (Kind.HOST, 3)), "node=n1")
    assert timeline.source_list == "node:3 host:3"
    assert timeline.csv_links == [
        ("node", "/api/v1/series.csv?kind=node&id=3&range=1h&points=5000"),
        ("host", "/api/v1/series.csv?kind=host&id=3&range=1h&points=5000"),
    ]
