"""The chart of one thing over a span of time, and its text alternative.

The chart is drawn by static/js/timeline.js from the same API as the CSV file; the table of least,
mean and greatest values says the same to who cannot see the chart. Where that table is filled by
the script too, its files are made here, of the same readings.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.core.exceptions import BadRequest
from django.urls import reverse

from dashboard import exports
from dashboard.ranges import RangePicker
from telemetry import samples, series
from telemetry.figures import model
from telemetry.figures.model import Role
from telemetry.figures.place import Look
from telemetry.series import Kind, Series, SeriesRequest
from telemetry.spans import ParameterError


@dataclass(frozen=True, slots=True)
class Measure:
    """A field as people read it: ``value * factor`` in ``unit``."""

    field: str
    label: str
    unit: str
    factor: float = 1.0
    digits: int = 0


def _class_of(name: str) -> str:
    """Return the class of traffic of which a field of a link tells; empty: of none."""
    found = re.fullmatch("tx_([a-z]+)_bytes_per_s", name)
    return found[1] if found else ""


_GPU_MEASURES = (
    Measure("power_w", "Power", "W"),
    Measure("temp_c", "Temperature", "°C"),
    Measure("temp_mem_c", "Memory temperature", "°C"),
    Measure("sm_mhz", "SM clock", "MHz"),
    Measure("util", "Use", "%"),
    Measure("mem_used", "Memory in use", "GiB", 2**-30, 1),
)
MEASURES: dict[Kind, tuple[Measure, ...]] = {
    Kind.GPU: _GPU_MEASURES,
    Kind.NODE: (
        Measure("power_w", "Power of the node", "kW", 1e-3, 2),
        Measure("gpu_power_w", "Power of its GPUs", "kW", 1e-3, 2),
        Measure("temp_c", "Hottest GPU", "°C"),
        Measure("sm_mhz", "SM clock, mean", "MHz"),
        Measure("util", "GPU use, mean", "%"),
    ),
    Kind.HOST: (
        Measure("cpu_util", "CPU", "%", digits=1),
        Measure("mem_used", "Memory in use", "GiB", 2**-30, 1),
        Measure("net_rx_bytes_per_s", "Network in", "Gbit/s", 8e-9, 3),
        Measure("net_tx_bytes_per_s", "Network out", "Gbit/s", 8e-9, 3),
        Measure("power_w", "Power besides GPUs", "W"),
        Measure("cpu_power_w", "Power of the CPUs", "W"),
        Measure("psi_cpu", "CPU stall", "%", digits=1),
        Measure("psi_mem", "Memory stall", "%", digits=1),
        Measure("psi_io", "I/O stall", "%", digits=1),
    ),
    Kind.RACK: (Measure("power_w", "Power, measured", "kW", 1e-3, 2),),
    **dict.fromkeys(
        series.PLACES,
        (
            Measure("gpu_power_w", "Power of its GPUs, summed", "kW", 1e-3, 2),
            Measure("power_w", "Power of its nodes, summed", "kW", 1e-3, 2),
            Measure("gpus_reporting", "GPUs that were heard", "GPUs"),
        ),
    ),
    Kind.LINK: (
        Measure("tx_bytes_per_s", "Out", "Gbit/s", 8e-9, 3),
        Measure("rx_bytes_per_s", "In", "Gbit/s", 8e-9, 3),
        *(
            Measure(name, f"Sent, {_class_of(name)}", "Gbit/s", 8e-9, 3)
            for name in (column.name for column in samples.LINK.fields)
            if _class_of(name)
        ),
        Measure("latency_s", "Latency", "ms", 1e3, 3),
        Measure("retransmits_per_s", "Sent again", "1/s", digits=1),
    ),
    Kind.METER: (
        Measure("power_w", "Power by meter", "kW", 1e-3, 2),
        Measure("temp_c", "Temperature by meter", "°C", digits=1),
    ),
}


@dataclass(frozen=True, slots=True)
class Extremes:
    """Least, mean and greatest value of one measure over the span, in its unit.

    ``exact``: the extremes are those of readings; if not, there may be lower and higher ones.
    """

    measure: Measure
    least: float
    mean: float
    greatest: float
    exact: bool


def extremes(found: Series, measures: tuple[Measure, ...]) -> list[Extremes]:
    """Return the extremes of each measure; a field without a reading is left out."""
    rows = []
    for measure in measures:
        each = found.extents.get(measure.field)
        if each is not None:
            least, mean, greatest = (
                value * measure.factor for value in (each.least, each.mean, each.greatest)
            )
            rows.append(Extremes(measure, least, mean, greatest, each.exact))
    return rows


def figure_extremes(rows: Iterable[model.Row]) -> list[Extremes]:
    """Return the extremes of the lines of a figure, as static/js/timeline.js tells them.

    Those of a line with a band are the band's. Limits are left out.
    """
    return [found for row in rows for line in _drawn(row) if (found := _of_line(row, line))]


def _drawn(row: model.Row) -> list[model.Line]:
    return [line for line in row.lines if line.role is Role.MEAN and line.value is None]


def _of_line(row: model.Row, line: model.Line) -> Extremes | None:
    has_band = any(each.role is Role.BAND and each.field == line.field for each in row.lines)
    ends = (f"{line.field}_min", f"{line.field}_max") if has_band else (line.field, line.field)
    low, high = (_told(row.columns[name]) for name in ends)
    told = _told(row.columns[line.field])
    if not told:
        return None
    label = row.title if len(_drawn(row)) == 1 else f"{row.title}: {line.name}"
    greatest = max(high)
    digits = 0 if greatest >= 100.0 else 1 if greatest >= 10.0 else 3
    measure = Measure(line.field, label, row.unit, digits=digits)
    return Extremes(measure, min(low), sum(told) / len(told), greatest, exact=True)


def _told(column: Sequence[float | None]) -> list[float]:
    return [value for value in column if value is not None]


def _for_file(make: Callable[[], list[Extremes]]) -> list[Extremes]:
    """Return the rows of a file, if one is made. Raises BadRequest where it is too much to read."""
    try:
        return make() if exports.is_going_on() else []
    except ParameterError as error:
        raise BadRequest(f"{error.field}: {error}") from error


@dataclass(frozen=True)
class Figure:
    """A chart of a figure that an endpoint answers with, over the picker's span.

    ``read`` makes the same figure, for the files of its table.
    """

    picker: RangePicker
    #: Without the span.
    figure_url: str
    #: Of the file of a picture.
    name: str
    heading: str
    read: Callable[[Look], model.Figure]

    @property
    def file_rows(self) -> list[Extremes]:
        """The rows of the table under the chart, while its file is made; a script fills a page's.

        Some 25 queries.
        """
        look = Look(self.picker.span, series.DEFAULT_POINTS, time.time())
        return _for_file(lambda: figure_extremes(self.read(look).rows))

    @property
    def csv_links(self) -> list[tuple[str, str]]:
        """Words and URL of the file of all readings."""
        more = ("format=csv", f"points={series.MAX_POINTS}", self.picker.query)
        joint = "&" if "?" in self.figure_url else "?"
        return [("all", f"{self.figure_url}{joint}{'&'.join(filter(None, more))}")]


@dataclass(frozen=True)
class Timeline:
    """A chart of the series of ``sources`` (kind and id) over the picker's span."""

    picker: RangePicker
    sources: tuple[tuple[Kind, int], ...]
    #: Query of the throttle events to mark; empty: none are.
    events: str
    #: Of the file of a picture.
    name: str = "timeline"
    heading: str = "History"
    #: Ratings to draw where no reading says them.
    slowdown_c: float | None = None
    sm_max_mhz: float | None = None
    capacity_bits_per_s: float | None = None
    #: How many GPUs a place has, of which those are counted that were heard.
    gpus: int | None = None
    #: What is to be known of the readings, in a sentence.
    note: str = ""
    #: Id of the element whose ``data-budget-w`` says the budget: it is kept up to date.
    limits_of: str = ""
    #: Meters among the sources, by id.
    meters: Mapping[int, str] = field(default_factory=dict)
    #: How many rows the chart will likely have: its height is kept free before it is drawn.
    rows: int = 4

    @property
    def meter_names(self) -> str:
        """For ``data-meters``: names by id, in JSON."""
        return json.dumps(self.meters)

    @property
    def source_list(self) -> str:
        """For ``data-sources``: ``node:3 host:3``."""
        return " ".join(f"{kind}:{source}" for kind, source in self.sources)

    @property
    def csv_links(self) -> list[tuple[str, str]]:
        """Words and URL of the file of each source."""
        url = reverse("series-csv")
        return [
            (kind, f"{url}?kind={kind}&id={source}&{self.picker.query}&points={series.MAX_POINTS}")
            for kind, source in self.sources
        ]

    @property
    def file_rows(self) -> list[Extremes]:
        """The rows of the table under the chart, while its file is made; a script fills a page's.

        Two to eight queries.
        """
        return _for_file(lambda: self.table(time.time()))

    def table(self, now: float) -> list[Extremes]:
        """Return the extremes of all sources. Two to eight queries."""
        return [row for kind, source in self.sources for row in self._rows(kind, source, now)]

    def _rows(self, kind: Kind, source: int, now: float) -> list[Extremes]:
        measures = MEASURES[kind]
        request = SeriesRequest(
            kind=kind,
            id=source,
            fields=tuple(measure.field for measure in measures),
            start=self.picker.span.start,
            end=self.picker.span.end,
            extents=True,
        )
        return extremes(series.query(request, now), measures)
