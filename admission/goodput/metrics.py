"""Prometheus metrics of goodput: the last hour that there is an account of."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np
from prometheus_client import Gauge

from admission.core.fleet_account import CAUSES, FleetAccount, Unheld
from admission.core.program import Work

__all__ = ["show"]

# As many series as there are causes, whatever runs. Whichever worker computed last is right.
SHARE = Gauge(
    "headroom_gpu_time_ratio",
    "Share of the time of all GPUs that went to a cause, in the last hour with an account.",
    ["cause"],
    multiprocess_mode="mostrecent",
)
GOODPUT = Gauge(
    "headroom_goodput_ratio",
    "Share of all GPU time that was held (scheduling); of that, what was productive (runtime); and "
    "in that, of what GPUs can compute, what models took that say so (program).",
    ["kind"],
    multiprocess_mode="mostrecent",
)
HOUR = Gauge(
    "headroom_goodput_hour_seconds",
    "When the last hour with an account began, Unix s.",
    multiprocess_mode="mostrecent",
)


def show(at: datetime, found: FleetAccount, work: Work) -> None:
    """Show an hour. Program goodput is NaN where no job states its FLOPs."""
    total = found.us.sum(axis=0)
    whole = int(total.sum())
    if not whole:
        return
    HOUR.set(at.timestamp())
    for cause, us in zip(CAUSES, total.tolist(), strict=True):
        SHARE.labels(cause).set(us / whole)
    held = whole - int(np.sum(total[[CAUSES.index(cause) for cause in Unheld]]))
    GOODPUT.labels("scheduling").set(held / whole)
    if held:
        GOODPUT.labels("runtime").set(int(total[CAUSES.index("productive")]) / held)
    GOODPUT.labels("program").set(math.nan if work.goodput is None else work.goodput)
