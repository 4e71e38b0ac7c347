"""A diagnosis as JSON, and advice on checkpoints in words."""

from __future__ import annotations

import dataclasses
from typing import Any

from admission.core.outlook import CheckpointAdvice, Forecast
from admission.diagnosis.reading import JobDiagnosis
from admission.diagnosis.straggling import Held
from admission.failures.job_outlook import PhaseOutlook
from physics.diagnose.answer import quantity

__all__ = ["told"]


def told(found: JobDiagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON: what binds comes first."""
    return {
        "job": found.job,
        "found": [dataclasses.asdict(each) for each in found.found],
        "evidence": found.evidence,
        "cannot_tell": found.cannot_tell,
        "outlook": [_outlook(each) for each in found.outlooks],
        "stragglers": [_held(each) for each in found.stragglers],
    }


def _held(found: Held) -> dict[str, Any]:
    return {
        "attempt": found.attempt,
        "looked_s": found.looked_s,
        "ranks": [
            {**dataclasses.asdict(each), "lost_share": each.lost_share} for each in found.ranks
        ],
        "gpus": [dataclasses.asdict(each) for each in found.gpus],
    }


def _outlook(found: PhaseOutlook) -> dict[str, Any]:
    forecast, advice, rate = found.forecast, found.advice, found.rate
    return {
        "phase": found.phase,
        "gpus": found.gpus,
        "basis": rate.basis if rate else None,
        "failures_seen": rate.failures if rate else None,
        "forecast": dataclasses.asdict(forecast) if forecast else None,
        "checkpoint": dataclasses.asdict(advice) if advice else None,
        "restart_s": found.restart_s,
        "sentences": [
            *([_ahead(forecast)] if forecast else []),
            *([_advice(advice, found.gpus)] if advice else []),
        ],
        "missing": found.missing,
    }


def _ahead(found: Forecast) -> str:
    mean, low, high = map(quantity, (found.expected, found.expected_lower, found.expected_upper))
    return (
        f"in the {quantity(found.time_s, 's')} that are left it meets {mean} failures "
        f"({low} to {high}), at least one in {quantity(found.probability, '%')} of cases, "
        f"{quantity(found.probability_upper, '%')} at the most"
    )


def _advice(found: CheckpointAdvice, gpus: int) -> str:
    now, save = quantity(found.interval_s, "s"), quantity(found.save_s, "s")
    what = f"it trains {now} between saves of at most {save} (evaluation counts with them)"
    best = _best(found)
    if not found.change:
        return f"{what}; {best}: nothing to change, as far as the failures so far can tell"
    least = "at least " if found.best_s is None else ""
    hours = quantity(24.0 * found.gain * gpus)
    return (
        f"{what}; {best}: save {'less' if found.change == 'longer' else 'more'} often, for "
        f"{least}{quantity(found.gain, 'points')} more useful time, {hours} GPU-hours a day"
    )


def _best(found: CheckpointAdvice) -> str:
    least = quantity(found.best_lower_s, "s")
    if found.best_s is None:
        return f"at least {least} are best, since no failure was seen"
    if found.best_upper_s is None:
        return f"{quantity(found.best_s, 's')} are best (from {least} on)"
    return (
        f"{quantity(found.best_s, 's')} are best ({least} to {quantity(found.best_upper_s, 's')})"
    )
