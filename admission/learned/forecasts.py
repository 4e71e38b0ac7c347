"""Estimates of when phases begin: kept when first made, and compared with the starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from admission.core.cycle.estimates import Calibration, Estimate
from admission.cycle import metrics
from admission.jobs.models import Phase
from admission.learned.models import StartCalibration, StartForecast

__all__ = ["KEPT", "began", "calibration", "calibration_at", "note", "prune"]

#: Forecasts are kept for so long, to be looked at.
KEPT = timedelta(days=30)
_AT_ONCE = 1_000
#: Of a longer queue these say enough of how it goes.
_MOST_WAITING = 5_000


def calibration() -> Calibration:
    """Return the calibration of estimates so far. One query."""
    row = StartCalibration.objects.filter(pk=1).first()
    return Calibration.from_json(row.document) if row else Calibration()


def calibration_at(now: float) -> Calibration:
    """Return the calibration with those who still wait at ``now`` (Unix s). Two queries."""
    open_ = StartForecast.objects.filter(began_s=None, phase__state=Phase.State.QUEUED)
    newest = open_.order_by("-made_at").values_list("made_at", "forecast_s")[:_MOST_WAITING]
    told = [(made_at.timestamp(), forecast_s) for made_at, forecast_s in newest]
    return calibration().beside(told, now)


def note(made: Mapping[int, Estimate], at: datetime) -> None:
    """Keep the estimates of phases, by id, made at ``at``. Phases that have one keep it."""
    rows = [
        StartForecast(
            phase_id=phase,
            made_at=at,
            forecast_s=each.forecast_s,
            p10_s=each.p10_s,
            p50_s=each.p50_s,
            p90_s=each.p90_s,
        )
        for phase, each in made.items()
    ]
    StartForecast.objects.bulk_create(rows, ignore_conflicts=True, batch_size=_AT_ONCE)


def began(phases: Sequence[int], at: datetime) -> None:
    """Learn from phases, by id, that begin at ``at``. Call it in the transaction that says so."""
    open_ = StartForecast.objects.filter(phase__in=phases, began_s=None)
    rows = list(open_.order_by("made_at", "id"))
    if not rows:
        return
    StartCalibration.objects.bulk_create(
        [StartCalibration(pk=1, document=Calibration().as_json(), updated_at=at)],
        ignore_conflicts=True,
    )
    kept = StartCalibration.objects.select_for_update().get(pk=1)
    starts = []
    for row in rows:
        row.began_s = max((at - row.made_at).total_seconds(), 0.0)
        given = Estimate(row.p10_s, row.p50_s, row.p90_s, row.forecast_s, "")
        starts.append((given, row.began_s))
    learned = Calibration.from_json(kept.document).learn(starts, at.timestamp())
    StartForecast.objects.bulk_update(rows, ["began_s"], batch_size=_AT_ONCE)
    kept.document, kept.updated_at = learned.as_json(), at
    kept.save()
    metrics.show_calibration(learned)


def prune(at: datetime) -> int:
    """Drop forecasts that were made long ago; return how many."""
    return StartForecast.objects.filter(made_at__lt=at - KEPT).delete()[0]
