"""Prometheus metrics of headroom by place, as the last round of the policy loop found it."""

from __future__ import annotations

from collections.abc import Iterable

import redis
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.headroom import exposition
from policies.headroom.exposition import Exposition

__all__ = ["generate"]

_PLACE = ["kind", "scope", "site"]


def generate() -> bytes:
    """Return the text of the metrics. Without Redis, or a round of late, there are no series."""
    try:
        found = exposition.read()
    except redis.RedisError:
        found = None
    registry = CollectorRegistry()
    registry.register(_Places(found))
    return generate_latest(registry)


class _Places(Collector):
    """Collects metrics of the places that are shown."""

    def __init__(self, found: Exposition | None) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        budget = _family("budget_watts", "Budget of a place; of zones, heat carried off.", _PLACE)
        load = _family("load_watts", "Committed load of a place.", _PLACE)
        left = _family("headroom_watts", "Budget less load; below 0: over it.", _PLACE)
        over = _family(
            "over_budget_in_seconds",
            "Until the budget would be exceeded, where that is claimed.",
            [*_PLACE, "bound"],
        )
        rates = (
            _family("capacity_bytes_per_second", "Of a link each way, or of storage.", _PLACE),
            _family("load_bytes_per_second", "What it carries, with what is reserved.", _PLACE),
            _family("headroom_bytes_per_second", "Capacity less load; below 0: over it.", _PLACE),
        )
        count = _family("places", "Places by kind, and whether they are shown.", ["kind", "shown"])
        at = _family("evaluated_timestamp_seconds", "When headroom was evaluated, Unix s.", [])
        if self._found is not None:
            _fill(self._found, budget, load, left, over)
            _fill_rates(self._found, *rates)
            _fill_counts(self._found, count)
            at.add_metric([], self._found.at)
        return budget, load, left, over, *rates, count, at


def _family(name: str, about: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headroom_scope_{name}", about, labels=labels)


def _fill(
    found: Exposition,
    budget: GaugeMetricFamily,
    load: GaugeMetricFamily,
    left: GaugeMetricFamily,
    over: GaugeMetricFamily,
) -> None:
    for row in found.rows:
        place = [row.kind, row.scope, row.site]
        budget.add_metric(place, row.budget_w)
        load.add_metric(place, row.load_w)
        left.add_metric(place, row.budget_w - row.load_w)
        for bound, value in (("earliest", row.over_from_s), ("latest", row.over_upto_s)):
            if value is not None:
                over.add_metric([*place, bound], value)


def _fill_rates(
    found: Exposition,
    capacity: GaugeMetricFamily,
    load: GaugeMetricFamily,
    left: GaugeMetricFamily,
) -> None:
    for row in found.rates:
        place = [row.kind, row.scope, row.site]
        capacity.add_metric(place, row.capacity_bytes_per_s)
        load.add_metric(place, row.load_bytes_per_s)
        left.add_metric(place, row.capacity_bytes_per_s - row.load_bytes_per_s)


def _fill_counts(found: Exposition, count: GaugeMetricFamily) -> None:
    for shown, counts in (("yes", found.shown), ("no", found.left_out)):
        for kind, places in counts.items():
            count.add_metric([kind, shown], places)
