"""When a phase that a change moves to another site makes its first step there."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from admission.core.cycle.change import Counterfactual
from admission.core.response import first_step
from admission.core.response.first_step import Start, Stated, Stored
from admission.jobs import catalog, checkpoints
from admission.jobs.models import Attempt
from admission.jobs.resolution import request_of, terms_of_phase
from telemetry.models import CheckpointFact

__all__ = ["start_of", "told"]

#: So many of the last starts are looked at.
_STARTS = 20
#: A loop that has made no step by then is not waited for, and neither are readings of longer ago.
_MOST = timedelta(hours=6)

# A loop reports as its job, its phase or its attempt. Ranks that made no step tell of their memory
# and of no time of a step: so they begin. Each index scan is of one job and some hours.
_FIRST = """
SELECT asked.place, extract(epoch FROM min(first.ts) - min(asked.since))::float8
FROM unnest(%(places)s::int[], %(names)s::text[], %(since)s::timestamptz[],
            %(until)s::timestamptz[]) AS asked (place, name, since, until)
JOIN telemetry_reportedjob AS job ON job.name = asked.name
CROSS JOIN LATERAL (
    SELECT ts FROM job_sample
    WHERE job_id = job.id AND ts >= asked.since AND ts < asked.until AND step IS NOT NULL
        AND (rank_mem_bytes IS NULL OR step_time_s IS NOT NULL)
    ORDER BY ts LIMIT 1
) AS first
GROUP BY asked.place
"""


def told(key: str, found: Sequence[Counterfactual]) -> tuple[Counterfactual, ...]:
    """Return ``found``; those that move the phase ``key`` say when its first step is there.

    One query; five more at most where one of them moves it.
    """
    last = _last_attempt(key) if found else None
    if last is None:
        return tuple(found)
    here = last.placement.get("sites", ())
    new = [first_step.moves_to(here, each.placement.sites) for each in found]
    if not any(new):
        return tuple(found)
    name = last.phase.job.name
    known = _known(checkpoints.of_jobs([name], timezone.now()).get(name, ()))
    start, stated = start_of(last), _stated(last)
    saves = last.phase.request.get("checkpoint_interval_s") is not None
    return tuple(
        _with(each, first_step.first_step(known, sites, start, stated, saves=saves))
        for each, sites in zip(found, new, strict=True)
    )


def _with(found: Counterfactual, first: first_step.FirstStep | None) -> Counterfactual:
    if first is None:
        return found
    text = f"{found.sentence}; {first_step.sentence(first)}"
    return replace(found, sentence=text, first_step=first)


def _last_attempt(key: str) -> Attempt | None:
    """Return the last attempt of a phase that has begun."""
    job, _, phase = key.rpartition("/")
    began = Attempt.objects.filter(
        phase__job__name=job, phase__name=phase, started_at__isnull=False
    )
    return began.select_related("phase__job__project").order_by("-number").first()


def _known(facts: Sequence[CheckpointFact]) -> dict[str, Stored]:
    """Return what is known by site of the run of which was told last."""
    last = max(facts, key=lambda fact: fact.told_at, default=None)
    return {
        fact.site.name: _stored(fact)
        if last is not None and fact.run == last.run
        else Stored(sent_bytes_per_s=fact.sent_bytes_per_s)
        for fact in facts
    }


def _stored(fact: CheckpointFact) -> Stored:
    return Stored(fact.epoch, fact.step, fact.bytes, fact.lag_bytes, fact.sent_bytes_per_s)


def _stated(attempt: Attempt) -> Stated:
    terms = terms_of_phase(attempt.phase, catalog.current())
    bits_per_s = request_of(attempt.phase).cross_site_bits_per_s
    return Stated(terms.checkpoint.size_bytes or 0.0, bits_per_s / 8.0)


# --- From start to first step ---------------------------------------------------------------------


def start_of(attempt: Attempt) -> Start | None:
    """Return how long the last starts of a phase took to their first step, by its readings.

    Where none of its own is known, those of its project. None: neither are. Two queries, or four.
    """
    began = Attempt.objects.filter(started_at__isnull=False).select_related("phase__job")
    for is_own, rows in (
        (True, began.filter(phase=attempt.phase_id)),
        (False, began.filter(phase__job__project=attempt.phase.job.project_id)),
    ):
        took_s = _took_s(rows.order_by("-started_at")[:_STARTS])
        if took_s:
            return Start(statistics.median(took_s), len(took_s), is_own)
    return None


def _took_s(attempts: Iterable[Attempt]) -> list[float]:
    """Return how long attempts took to their first step, s, of those that have made one."""
    asked: list[tuple[int, str, datetime, datetime]] = []
    for place, each in enumerate(attempts):
        since = each.started_at
        if since is not None:
            until = min(each.ended_at or since + _MOST, since + _MOST)
            asked += [(place, name, since, until) for name in each.reports_as]
    if not asked:
        return []
    columns: dict[str, Any] = dict(
        zip(("places", "names", "since", "until"), map(list, zip(*asked, strict=True)), strict=True)
    )
    with connection.cursor() as cursor:
        cursor.execute(_FIRST, columns)
        return [float(took_s) for _, took_s in cursor.fetchall()]
