"""Prometheus metrics of failures: of the last 30 days, of the whole fleet."""

from __future__ import annotations

import math

from prometheus_client import Gauge

from admission.core.failures import Cause
from admission.failures import reading
from admission.failures.grouping import whole_fleet

__all__ = ["show"]

# Whichever worker counted last is right.
FAILURES = Gauge(
    "headroom_failures_recent",
    "Failures of the last 30 days, by cause.",
    ["cause"],
    multiprocess_mode="mostrecent",
)
RATE = Gauge(
    "headroom_failure_rate_per_gpu_hour",
    "How often a GPU failed in the last 30 days, and the bounds of that with 95 % confidence.",
    ["bound"],
    multiprocess_mode="mostrecent",
)


def show(now: float) -> None:
    """Count the failures of the last 30 days. Ten queries; a rate that is not known is NaN."""
    fleet = whole_fleet(reading.recent(now))
    for cause in Cause:
        FAILURES.labels(cause.value).set(fleet.causes.get(cause.value, 0))
    found = fleet.observed
    bounds = {
        "estimate": found.rate_per_h,
        "lower": found.rate_lower_per_h,
        "upper": found.rate_upper_per_h,
    }
    for name, rate in bounds.items():
        RATE.labels(name).set(math.nan if rate is None else rate)
