"""What elastic jobs that run do in a second at each size, by the reports of their loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction

from admission.core.allocation.allocations import Allocations, OpenAttempt
from admission.core.throughput import BEGINS_S, Curve, Measured, Unit, noted
from admission.directives.models import Control
from admission.learned.models import Throughput

__all__ = ["curves", "curves_of_phases", "note"]

_AT_ONCE = 2_000

# The mean of each column: rows tell of the whole gang, whichever of its machines they come from.
# Only of loops that had reported in the same attempt before, so that its first steps are left out.
_REPORTS = """
SELECT job.name, avg(samples_per_s), avg(tokens_per_s), avg(1.0 / nullif(step_time_s, 0.0))
FROM unnest(%(names)s::text[], %(began)s::timestamptz[]) AS asked (name, began)
JOIN telemetry_reportedjob AS job ON job.name = asked.name
JOIN job_sample ON job_sample.job_id = job.id
WHERE ts > %(since)s AND ts <= %(until)s AND EXISTS (
    SELECT FROM job_sample AS earlier
    WHERE earlier.job_id = job.id AND earlier.ts > asked.began AND earlier.ts <= %(warm)s
)
GROUP BY job.name
"""
_UNITS = (Unit.SAMPLES, Unit.TOKENS, Unit.STEPS)


def curves(held: Allocations, waiting: Mapping[int, str]) -> dict[str, Curve]:
    """Return what elastic jobs did at each size, by key. One query if there are any.

    Those that run, and those of phases that wait, which are given by id with their keys: one that
    begins again was measured before.
    """
    keys = {each.phase_id: each.request.key for each in held.attempts if each.request.is_elastic}
    keys |= waiting
    return {keys[phase]: curve for phase, curve in curves_of_phases(keys).items()}


def curves_of_phases(phases: Iterable[int]) -> dict[int, Curve]:
    """Return the curve of each of these phases that has one. One query if there are any."""
    asked = list(phases)
    if not asked:
        return {}
    rows = Throughput.objects.filter(phase__in=asked).order_by()
    points: dict[tuple[int, str], list[Measured]] = {}
    for row in rows:
        measured = Measured(row.gpus, row.per_s, row.for_s)
        points.setdefault((row.phase_id, row.unit), []).append(measured)
    return {phase: Curve.of(found, Unit(unit)) for (phase, unit), found in points.items()}


def note(held: Allocations, now: float, every_s: float) -> int:
    """Add what loops reported within the last ``every_s`` to the sizes of their jobs.

    Returns how many jobs that is. Left out are attempts whose loop has just begun to report, that
    are paused, and those that work on less than their batch. Four queries if any elastic job runs.
    """
    running = [
        each
        for each in held.attempts
        if each.request.is_elastic and each.is_running and each.started_at is not None
    ]
    if not running:
        return 0
    scaled = Control.objects.filter(
        attempt__in=[each.id for each in running], batch_scale__lt=1.0
    ).values_list("attempt", flat=True)
    left_out = set(scaled)
    alone = [each for each in running if each.id not in left_out]
    return _add(alone, _reported(alone, now, every_s), now, every_s)


def _reported(
    attempts: Sequence[OpenAttempt], now: float, every_s: float
) -> dict[str, tuple[Unit, float]]:
    """Return the unit and the mean throughput, a second, that each job told of."""
    until = datetime.fromtimestamp(now, UTC)
    since = until - timedelta(seconds=every_s)
    asked: dict[str, Any] = {
        "names": [each.request.key for each in attempts],
        "began": [datetime.fromtimestamp(each.started_at or now, UTC) for each in attempts],
        "since": since,
        "until": until,
        "warm": since - timedelta(seconds=BEGINS_S),
    }
    with connection.cursor() as cursor:
        cursor.execute(_REPORTS, asked)
        rows = cursor.fetchall()
    return {
        name: told[0]
        for name, *means in rows
        if (told := [(unit, mean) for unit, mean in zip(_UNITS, means, strict=True) if mean])
    }


@transaction.atomic
def _add(
    attempts: Sequence[OpenAttempt],
    reported: dict[str, tuple[Unit, float]],
    now: float,
    every_s: float,
) -> int:
    told = [each for each in attempts if each.request.key in reported]
    if not told:
        return 0
    rows = Throughput.objects.select_for_update().filter(phase__in=[e.phase_id for e in told])
    known = {(row.phase_id, row.gpus): row for row in rows.order_by("pk")}
    at, found, stale = datetime.fromtimestamp(now, UTC), list[Throughput](), list[int]()
    for each in told:
        unit, per_s = reported[each.request.key]
        gpus = len(each.placement.gpus)
        row = known.get((each.phase_id, gpus))
        # What is counted otherwise cannot be compared: the loop was changed.
        stale += [
            other.pk
            for (phase, _), other in known.items()
            if phase == each.phase_id and other.unit != unit
        ]
        before, for_s = Measured(gpus, 0.0, 0.0), every_s
        if row is not None and row.unit == unit:
            before = Measured(gpus, row.per_s, row.for_s)
            for_s = min(max((at - row.seen_at).total_seconds(), 0.0), every_s)
        if for_s > 0.0:
            after = noted(before, per_s, for_s)
            found.append(
                Throughput(
                    phase_id=each.phase_id, gpus=gpus, unit=unit, per_s=after.per_s,
                    for_s=after.for_s, seen_at=at,
                )
            )  # fmt: skip
    Throughput.objects.filter(pk__in=stale).delete()
    Throughput.objects.bulk_create(
        found,
        batch_size=_AT_ONCE,
        update_conflicts=True,
        unique_fields=["phase", "gpus"],
        update_fields=["unit", "per_s", "for_s", "seen_at"],
    )
    return len(found)
