"""Baselines in words and numbers, for the API and pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from admission.baselines.reading import BeyondNormal
from admission.core.baselines import UNITS, Baseline, Metric, Spread
from admission.goodput.summing import Asked

__all__ = ["told", "told_of_job"]


def told(asked: Asked, found: Iterable[Baseline]) -> dict[str, Any]:
    """Return baselines of a span as JSON; ``cause`` is empty of normal hours."""
    return {
        "start": float(asked.start),
        "end": float(asked.end),
        "by": asked.by.value,
        "baselines": [
            {
                "project": each.project,
                "phase": each.phase,
                "site": each.site,
                "rack": each.rack,
                "cause": each.cause,
                "metrics": [_spread(metric, spread) for metric, spread in each.spreads.items()],
            }
            for each in found
        ],
    }


def told_of_job(job: str, found: Iterable[BeyondNormal]) -> dict[str, Any]:
    """Return as JSON where a job is outside of what is normal of its like."""
    return {
        "job": job,
        "outside": [
            {
                "phase": each.phase,
                "site": each.site,
                "rack": each.rack,
                "hour": each.hour.timestamp(),
                "causes": list(each.causes),
                "value": each.outside.value,
                "ratio": each.outside.ratio,
                **_spread(each.outside.metric, each.outside.normal),
            }
            for each in found
        ],
    }


def _spread(metric: Metric, spread: Spread) -> dict[str, Any]:
    return {
        "metric": metric.value, "unit": UNITS[metric], "hours": spread.hours,
        "p10": spread.p10, "p50": spread.p50, "p90": spread.p90,
    }  # fmt: skip
