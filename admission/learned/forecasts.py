"""Estimates of when phases begin: kept when first made, and compared with the starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction

from admission.core.cycle.calibration import Calibration, Estimate
from admission.core.cycle.ends import Like, Ran
from admission.cycle import metrics
from admission.jobs.models import Attempt, Phase
from admission.learned.models import StartCalibration, StartForecast

__all__ = ["KEPT", "began", "calibration", "calibration_at", "note", "past_runs", "prune"]

#: Forecasts are kept for so long, to be looked at.
KEPT = timedelta(days=30)
_AT_ONCE = 1_000
#: Of a longer queue these say enough of how it goes.
_MOST_WAITING = 5_000
#: Of so many attempts that have ended it is looked at how long they ran.
_MOST_RUNS = 2_000
_CAME_TO_THEIR_END = frozenset({Attempt.Outcome.SUCCEEDED, Attempt.Outcome.FAILED})


def calibration() -> Calibration:
    """Return the calibration of estimates so far. One query."""
    row = StartCalibration.objects.filter(pk=1).first()
    return Calibration.from_json(row.document) if row else Calibration()


def calibration_at(now: float) -> Calibration:
    """Return the calibration with those who still wait at ``now`` (Unix s). Two queries."""
    open_ = StartForecast.objects.filter(began_s=None, phase__state=Phase.State.QUEUED)
    newest = open_.order_by("-made_at")[:_MOST_WAITING]
    told = [(row.drawn, row.made_at.timestamp()) for row in newest]
    return calibration().beside(told, now)


def past_runs() -> list[Ran]:
    """Return for what shares of their walltimes the last attempts ran. One query.

    Of those that were stopped it is known that they ran for so long at least.
    """
    ended = Attempt.objects.filter(state=Attempt.State.ENDED, started_at__isnull=False)
    rows = ended.order_by("-ended_at")
    found = []
    for project, user, request, outcome, started_at, ended_at in rows.values_list(
        "phase__job__project__name", "phase__job__submitted_by", "phase__request",
        "outcome", "started_at", "ended_at",
    )[:_MOST_RUNS]:  # fmt: skip
        if started_at is None or ended_at is None:
            continue
        like = Like(project, user, request["gpus"], request["walltime_s"])
        share = max((ended_at - started_at).total_seconds(), 0.0) / request["walltime_s"]
        found.append(Ran(like, share, outcome in _CAME_TO_THEIR_END))
    return found


def note(made: Mapping[int, Estimate], at: datetime) -> None:
    """Keep the estimates of phases, by id, made at ``at``. Phases that have one keep it.

    Of those that have begun meanwhile, or that somebody is at work on, none is kept.
    """
    have = set(StartForecast.objects.filter(began_s=None).values_list("phase_id", flat=True))
    with transaction.atomic():
        # Locked: what begins after this finds the estimate, and ends it.
        queued = Phase.objects.filter(pk__in=made.keys() - have, state=Phase.State.QUEUED)
        locked = queued.order_by("pk").select_for_update(of=("self",), skip_locked=True)
        _keep({pk: made[pk] for pk in locked.values_list("pk", flat=True)}, at)


def _keep(made: Mapping[int, Estimate], at: datetime) -> None:
    rows = [
        StartForecast(
            phase_id=phase,
            made_at=at,
            gpus=each.drawn.gpus,
            drawn_s=[each.drawn.low_s, each.drawn.middle_s, each.drawn.high_s],
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
        given = Estimate(row.p10_s, row.p50_s, row.p90_s, row.drawn)
        starts.append((given, row.made_at.timestamp(), row.began_s))
    learned = Calibration.from_json(kept.document).learn(starts)
    StartForecast.objects.bulk_update(rows, ["began_s"], batch_size=_AT_ONCE)
    kept.document, kept.updated_at = learned.as_json(), at
    kept.save()
    metrics.show_calibration(learned)


def prune(at: datetime) -> int:
    """Drop forecasts that were made long ago; return how many."""
    return StartForecast.objects.filter(made_at__lt=at - KEPT).delete()[0]
