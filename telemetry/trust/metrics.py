"""Metrics of how many sources of power are off, of the last comparison of the whole fleet."""

from __future__ import annotations

import time
from collections import Counter

from prometheus_client import Gauge

from telemetry.trust.compare import Standing, Told
from telemetry.trust.read import compare

DISAGREEING = Gauge(
    "headroom_power_sources_disagreeing",
    "Sources of power that differ from the others of the same node or GPU, in the last comparison.",
    ["of", "source", "standing"],
    multiprocess_mode="mostrecent",
)


def show(now: float | None = None) -> None:
    """Compare the sources of all nodes, and show how many are off."""
    found: Counter[tuple[str, Told, Standing]] = Counter()
    for node in compare(None, time.time() if now is None else now):
        found.update(("node", each.source.told_by, each.standing) for each in node.sources)
        for judged in node.gpus.values():
            found.update(("gpu", each.source.told_by, each.standing) for each in judged)
    for of in ("node", "gpu"):
        for told_by in Told:
            for standing in (Standing.ODD, Standing.DISPUTED):
                DISAGREEING.labels(of, told_by, standing).set(found[of, told_by, standing])
