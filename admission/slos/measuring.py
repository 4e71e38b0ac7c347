"""Service levels as they are measured: one step each minute, and the status of objectives.

:func:`step` keeps the conditions of the minute and judges what has happened since the last one. It
may die anywhere: an event is judged once, by its key, and a step that is missing is made good by
the next one, as far back as conditions are known. Of a cross-site loss only now is judged: what was
at another site in a minute in which nobody looked is not known any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Count, Q

from admission.slos import budget, document, metrics, observed, sampling
from admission.slos.budget import SPANS_S, Health, Tally
from admission.slos.document import LONGEST_WINDOW_S, Objective
from admission.slos.judging import SPEAKS_FOR_S, Judgment, judge
from admission.slos.models import ConditionSample, Slo, SloJudgment
from policies import current

log = structlog.get_logger(__name__)

__all__ = ["SloStatus", "prune", "statuses", "step"]

#: What was committed late, and events of clocks that differ, are looked for this far back.
_OVERLAP = timedelta(minutes=5)
#: Events by so many keys are looked up at once.
_CHUNK = 5_000


@dataclass(frozen=True, eq=False)
class SloStatus:
    """An objective and its status."""

    slo: Slo
    objective: Objective
    health: Health


def step(now: float) -> int:
    """Sample conditions and judge events at ``now`` (Unix s); return how many were judged."""
    sampling.keep(current.headroom(now))
    at = datetime.fromtimestamp(now, UTC)
    judged = sum(_follow(slo, at) for slo in Slo.objects.active())
    for status in statuses(at):
        metrics.show(status.slo.name, status.objective, status.health)
    return judged


def _follow(slo: Slo, at: datetime) -> int:
    """Judge the new events of one objective; return how many these were."""
    objective = document.read(slo.text)
    oldest = at - timedelta(seconds=objective.window_s)
    since = oldest if slo.judged_at is None else max(slo.judged_at - _OVERLAP, oldest)
    events = observed.events(objective.measure, since, oldest, at)
    # With the sample that speaks for the beginning of the first.
    begun = min((event.begun_at for event in events), default=at.timestamp()) - SPEAKS_FOR_S
    samples = sampling.load(datetime.fromtimestamp(begun, UTC), at)
    judgments = judge(objective, events, samples, at.timestamp())
    with transaction.atomic():
        # Of a version that was retired meanwhile nothing more is judged.
        current = Slo.objects.active().select_for_update().filter(pk=slo.pk).first()
        if current is None:
            return 0
        new = _new(slo, judgments)
        SloJudgment.objects.bulk_create([_row(slo, each) for each in new], ignore_conflicts=True)
        current.judged_at = at
        current.save(update_fields=["judged_at"])
    metrics.count(slo.name, new)
    return len(new)


def _new(slo: Slo, judgments: Sequence[Judgment]) -> list[Judgment]:
    """Return the judgments of events that have none."""
    keys = [each.event.key for each in judgments]
    known: set[str] = set()
    for first in range(0, len(keys), _CHUNK):
        found = slo.judgments.filter(event__in=keys[first : first + _CHUNK])
        known.update(found.values_list("event", flat=True))
    return [each for each in judgments if each.event.key not in known]


def _row(slo: Slo, judgment: Judgment) -> SloJudgment:
    event = judgment.event
    return SloJudgment(
        slo=slo,
        event=event.key,
        is_good=judgment.is_good,
        at=datetime.fromtimestamp(judgment.at, UTC),
        clock_s=judgment.clock_s,
        limit_s=judgment.limit_s,
        job=event.job,
        phase=event.phase,
        job_class=event.job_class,
        project=event.project,
    )


def statuses(at: datetime, slos: Iterable[Slo] | None = None) -> list[SloStatus]:
    """Return the status of objectives at ``at``; of those in use, unless given. One query each."""
    rows = Slo.objects.active() if slos is None else slos
    return [_status_of(slo, at) for slo in rows]


def _status_of(slo: Slo, at: datetime) -> SloStatus:
    objective = document.read(slo.text)
    spans = {"window": objective.window_s, **SPANS_S}
    counts = {}
    for name, span_s in spans.items():
        within = Q(at__gt=at - timedelta(seconds=span_s))
        counts[f"{name}_good"] = Count("pk", filter=within & Q(is_good=True))
        counts[f"{name}_bad"] = Count("pk", filter=within & Q(is_good=False))
    oldest = at - timedelta(seconds=max(spans.values()))
    found = slo.judgments.filter(at__gt=oldest, at__lte=at).aggregate(**counts)
    tallies = {name: Tally(found[f"{name}_good"], found[f"{name}_bad"]) for name in spans}
    health = budget.health(objective.target, objective.window_s, tallies["window"], tallies)
    return SloStatus(slo, objective, health)


def prune(now: datetime) -> None:
    """Drop judgments and conditions that no objective can ask for any more."""
    oldest = now - timedelta(seconds=LONGEST_WINDOW_S) - timedelta(days=1)
    SloJudgment.objects.filter(at__lt=oldest).delete()
    ConditionSample.objects.filter(at__lt=oldest).delete()
