"""The chart of one thing over a span of time, and its text alternative.

The chart is drawn by static/js/timeline.js from the same API as the CSV file; the table of least,
mean and greatest values says the same to who cannot see the chart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.urls import reverse

from dashboard.ranges import RangePicker
from telemetry import series
from telemetry.series import Kind, Series, SeriesRequest


@dataclass(frozen=True, slots=True)
class Measure:
    """A field as people read it: ``value * factor`` in ``unit``."""

    field: str
    label: str
    unit: str
    factor: float = 1.0
    digits: int = 0


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


@dataclass(frozen=True)
class Figure:
    """A chart of a figure that an endpoint answers with, over the picker's span."""

    picker: RangePicker
    #: Without the span.
    figure_url: str
    #: Of the file of a picture.
    name: str
    heading: str

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
