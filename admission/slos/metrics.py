"""Prometheus metrics of service levels."""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import Counter, Gauge

from admission.slos.budget import Health
from admission.slos.document import Objective
from admission.slos.judging import Judgment

EVENTS = Counter(
    "headroom_slo_events_total", "Events that were judged by an objective.", ["slo", "verdict"]
)
# Whichever worker measured last is right.
TARGET = Gauge(
    "headroom_slo_target_ratio",
    "Share of events that is to be good.",
    ["slo"],
    multiprocess_mode="mostrecent",
)
GOOD = Gauge(
    "headroom_slo_good_ratio",
    "Share of the events in an objective's window that were good.",
    ["slo"],
    multiprocess_mode="mostrecent",
)
BUDGET_LEFT = Gauge(
    "headroom_slo_budget_left_ratio",
    "What is left of an error budget; below 0: overdrawn.",
    ["slo"],
    multiprocess_mode="mostrecent",
)
BURN_RATE = Gauge(
    "headroom_slo_burn_rate",
    "How fast a budget burns; 1 uses it up in the objective's window.",
    ["slo", "span"],
    multiprocess_mode="mostrecent",
)


def count(name: str, judgments: Iterable[Judgment]) -> None:
    """Count the judgments of an objective."""
    for judgment in judgments:
        EVENTS.labels(name, "good" if judgment.is_good else "bad").inc()


def show(name: str, objective: Objective, health: Health) -> None:
    """Show the status of an objective. Values that no event tells are not shown."""
    TARGET.labels(name).set(objective.target)
    if health.tally.events:
        GOOD.labels(name).set(health.good_share)
        BUDGET_LEFT.labels(name).set(health.budget_left)
    for span, rate in health.burn_rates.items():
        BURN_RATE.labels(name, span).set(0.0 if math.isnan(rate) else rate)
