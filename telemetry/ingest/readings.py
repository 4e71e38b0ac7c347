"""From somebody else's series to rows of ours: whose are they, and which samples form one row.

The samples of one GPU at one time become one row. A sample that is wrong is refused by itself; a
series that tells nothing that is kept is ignored, and so is a sample that is no number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from headroom.contracts import BatchError, GpuColumns, Timestamp
from headroom.dcgm import GpuReading, Told, is_told
from telemetry import checks
from telemetry.directory import AgentScope, KnownNode, Names
from telemetry.ingest.columns import element_types
from telemetry.ingest.gpus import gpus_by_uuid
from telemetry.ingest.refusals import Refusals, TimeLimits
from telemetry.ingest.rows import Place, Rows
from telemetry.ingest.semconv import gpu_id_of
from telemetry.ingest.series import Series

__all__ = ["Places", "Readings"]

_TYPES = element_types(GpuColumns)


class Places:
    """Finds the GPU of a set of labels, among those that one agent may speak for."""

    def __init__(self, scope: AgentScope, names: Names, node_labels: list[str]) -> None:
        self._scope = scope
        self._names = names
        self._node_labels = node_labels
        self._found: dict[tuple[str | None, ...], Place | BatchError] = {}

    def of(self, labels: Mapping[str, str]) -> Place | BatchError:
        """Return the GPU, or the error in the labels."""
        identity = (
            labels.get("gpu"),
            labels.get("UUID") or labels.get("uuid"),
            gpu_id_of(labels),
            *(labels.get(name) for name in self._node_labels),
        )
        found = self._found.get(identity)
        if found is None:
            found = self._found[identity] = self._find(labels, identity[1] or identity[2] or "")
        return found

    def _find(self, labels: Mapping[str, str], gpu_id: str) -> Place | BatchError:
        try:
            name, node = self._node(labels, gpu_id)
            if not self._scope.holds(node_id=node.node_id, site_id=node.site_id):
                return checks.foreign("node", name, "", self._scope)
            index = self._index(labels, name, gpu_id)
        except BatchError as error:
            return error
        return Place(name, index) if index in node.gpu_ids else checks.unknown_gpu(name, index, "")

    def _node(self, labels: Mapping[str, str], gpu_id: str) -> tuple[str, KnownNode]:
        """Return the node by the first label that names one, else by the GPU's UUID."""
        given = [labels[name] for name in self._node_labels if labels.get(name)]
        for name in (each for value in given for each in _node_names(value)):
            if (node := self._names.node(name)) is not None:
                return name, node
        if (known := gpus_by_uuid().get(gpu_id)) and (node := self._names.node(known[0])):
            return known[0], node
        if given:
            raise checks.unknown("node", given[0][:200], "")
        raise BatchError(
            "no_node_label",
            f"no label says which node it is of: {', '.join(self._node_labels)}",
            hint="add one where the metrics are scraped, or name yours in TELEMETRY_NODE_LABELS",
        )

    def _index(self, labels: Mapping[str, str], node: str, gpu_id: str) -> int:
        for given in (labels.get("gpu", ""), gpu_id):
            if given.isascii() and given.isdecimal() and len(given) <= 3:
                return int(given)
        known = gpus_by_uuid().get(gpu_id)
        if known is not None and known[0] == node:
            return known[1]
        raise BatchError(
            "no_gpu_label",
            f"no label says which GPU of node {node!r} it is of",
            hint="send its index as label gpu, or let the inventory know its UUID",
        )


def _node_names(value: str) -> Iterable[str]:
    """Yield the names that ``value`` may stand for: itself, and without its port and its domain."""
    yield value
    host, _, port = value.rpartition(":")
    if host and port.isdecimal():
        yield host
        value = host
    if "." in value:
        yield value.partition(".")[0]


@dataclass
class Readings:
    """The rows that the series of one request form, and counts of its other samples."""

    places: Places
    limits: TimeLimits
    #: samples by reason: of metrics that are not kept, that are no number, that stand for nothing
    ignored: Counter[str] = field(default_factory=Counter)
    refusals: Refusals = field(default_factory=Refusals)
    #: samples that were taken
    taken: int = 0
    _readings: dict[tuple[Place, float], GpuReading] = field(default_factory=dict)
    _times: dict[float, BatchError | None] = field(default_factory=dict)

    def add(self, series: Series) -> None:
        """Take the samples of one series."""
        if series.told is None:
            self.ignored["unmapped"] += len(series.samples)
            return
        place = self.places.of(series.labels)
        if isinstance(place, BatchError):
            self.refusals.add(place, len(series.samples))
            return
        for ts, value in series.samples:
            if not is_told(value) and not math.isinf(value):
                # NaN: no reading, or the mark that a series has ended.
                self.ignored["nan" if math.isnan(value) else "blank"] += 1
            elif error := self._wrong_time(ts) or _wrong_value(series, series.told, value):
                self.refusals.add(error)
            else:
                self.taken += 1
                self._reading(place, ts).add(series.told, series.labels, value)

    def _wrong_time(self, ts: float) -> BatchError | None:
        if ts not in self._times:
            self._times[ts] = _checked_time(ts, self.limits)
        return self._times[ts]

    def _reading(self, place: Place, ts: float) -> GpuReading:
        reading = self._readings.get((place, ts))
        if reading is None:
            reading = self._readings[place, ts] = GpuReading(place.node, place.gpu)
        return reading

    def rows(self) -> Rows:
        """Return the rows."""
        return {
            key: reading.values | ({"job": reading.job} if reading.job else {})
            for key, reading in self._readings.items()
            if reading.values
        }


def _checked_time(ts: float, limits: TimeLimits) -> BatchError | None:
    try:
        msgspec.convert(ts, Timestamp)
    except msgspec.ValidationError as exc:
        return BatchError("invalid_field", f"the time of a sample is {ts:g}: {exc}", field="ts")
    return limits.refusal("ts", ts)


def _wrong_value(series: Series, told: Told, value: float) -> BatchError | None:
    """Return the contract's objection to a sample, or None."""
    try:
        msgspec.convert(told.convert(value), _TYPES[told.column])
    except (msgspec.ValidationError, OverflowError) as exc:
        metric = series.labels.get("__name__", told.column)
        return BatchError("invalid_field", f"{metric} is {value:g}: {exc}", field=told.column)
    return None
