"""Write admissions to the database: attempt, phase, job and history, all at once or none.

A phase starts only as the cycle saw it: held, amended or cancelled meanwhile, it is left to the
next one. And only if no other cycle has admitted anything since this one looked at the fleet: what
both have counted as free can be given once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Max

from admission import bulk
from admission.allocation import open_attempts
from admission.core.cycle.decide import Admission
from admission.core.request import Placement, placement_as_json
from admission.cycle import holding, live, metrics
from admission.cycle.live import CycleInput, Row
from admission.executors import runners
from admission.executors.registry import LOCAL, TWIN
from admission.jobs import history, progress
from admission.jobs.models import Attempt, JobEvent, Phase
from admission.learned import forecasts
from admission.learned.models import Cycle
from policies.headroom.binding import quantity

__all__ = ["DISPATCHED", "Overtaken", "admit"]

#: The kind of event.
DISPATCHED = "dispatched"

_START = """
UPDATE admission_jobs_phase AS phase
SET state = 'starting', reason = '', reason_since = NULL, expected_end_at = new.ends_at,
    returns_to = NULL, returns_by = NULL,
    started_at = coalesce(phase.started_at, %s)
FROM unnest(%s::bigint[], %s::timestamptz[]) AS new (id, ends_at)
WHERE phase.id = new.id
"""


class Overtaken(Exception):
    """Another cycle has admitted since this one looked: the same GPUs may be taken twice."""


def admit(inputs: CycleInput, admitted: Sequence[Admission], at: datetime) -> list[Attempt]:
    """Admit phases at ``at``; return the attempts to dispatch. Raises :class:`Overtaken`.

    Once for each input, also where nothing is admitted: that is what makes a cycle.
    """
    with transaction.atomic():
        _take_turn(inputs.number, at)
        chosen = [(each, inputs.rows[each.request.key]) for each in admitted]
        mine = live.lock_unchanged([row for _, row in chosen if row.is_queued])
        chosen = [(each, row) for each, row in chosen if row.id in mine]
        attempts = _write(inputs, chosen, at)
    open_attempts.recheck()
    metrics.count_admissions((each.request for each, _ in chosen), at.timestamp())
    return attempts


def _take_turn(number: int, at: datetime) -> None:
    if not Cycle.objects.filter(pk=1, number=number).update(number=number + 1, at=at):
        raise Overtaken(f"cycle {number + 1} was done by another process")


def _write(
    inputs: CycleInput, chosen: Sequence[tuple[Admission, Row]], at: datetime
) -> list[Attempt]:
    if not chosen:
        return []
    ids = [row.id for _, row in chosen]
    last = dict(
        Attempt.objects.filter(phase_id__among=ids)
        .order_by()
        .values_list("phase")
        .annotate(Max("number"))
    )
    attempts = [_attempt(inputs, each, row, last.get(row.id, 0) + 1, at) for each, row in chosen]
    _say_who_runs(attempts)
    bulk.insert(attempts)
    _start(inputs, chosen, at)
    progress.phases_began(Phase(pk=row.id, job_id=row.job_id) for _, row in chosen)
    forecasts.began(ids, at)
    events = [_event(each, row, attempt) for (each, row), attempt in
              zip(chosen, attempts, strict=True)]  # fmt: skip
    bulk.insert(events)
    return attempts


def _attempt(
    inputs: CycleInput, admitted: Admission, row: Row, number: int, at: datetime
) -> Attempt:
    placement = admitted.placement
    if inputs.starts_low:
        # Its cap is the controller's, which raises it where there is room.
        placement = replace(placement, power_cap_w=None)
    return Attempt(
        phase_id=row.id,
        number=number,
        key=f"{admitted.request.key}/{number}",
        executor=admitted.request.executor or LOCAL,
        placement=placement_as_json(placement, inputs.allocations.fleet),
        dispatched_at=at,
        room_by=at + holding.ROOM_WITHIN if inputs.starts_low else None,
    )


def _say_who_runs(attempts: Sequence[Attempt]) -> None:
    """Name the executor of each attempt: the twin where all its machines are of it. One query.

    Those of a scheduler have it already.
    """
    mine = [attempt for attempt in attempts if attempt.executor == LOCAL]
    nodes = {name for attempt in mine for name in attempt.placement["nodes"]}
    simulated = runners.simulated_nodes(nodes)
    for attempt in mine:
        if simulated.issuperset(attempt.placement["nodes"]):
            attempt.executor = TWIN


def _start(inputs: CycleInput, chosen: Sequence[tuple[Admission, Row]], at: datetime) -> None:
    expected_s = inputs.snapshot.expected_s
    ends = [
        at + timedelta(seconds=expected_s(each.request, each.placement.slowdown))
        for each, _ in chosen
    ]
    with connection.cursor() as cursor:
        cursor.execute(_START, [at, [row.id for _, row in chosen], ends])


def _event(admitted: Admission, row: Row, attempt: Attempt) -> JobEvent:
    placement, text = admitted.placement, sentence(admitted.placement)
    if attempt.room_by is not None:
        text += "; it starts once running load has made room for it"
    return history.event(
        row.job_id,
        DISPATCHED,
        text,
        attempt.dispatched_at,
        phase=admitted.request.phase,
        attempt=attempt.number,
        waited_s=attempt.dispatched_at.timestamp() - admitted.request.submitted_at,
        gpus=len(placement.gpus),
        asked_gpus=admitted.request.gpus,
        power_cap_w=placement.power_cap_w,
        slowdown=placement.slowdown,
        total_w=placement.total_w,
        trace=[[step.check, step.passed, step.sentence] for step in admitted.trace],
    )


def sentence(placement: Placement) -> str:
    """Return a placement in words."""
    gpus, nodes = len(placement.gpus), len(placement.nodes)
    where = ", ".join(placement.racks[:3]) + (" and others" if len(placement.racks) > 3 else "")
    text = f"Let go on {_count(gpus, 'GPU')} of {_count(nodes, 'node')} in {where}"
    text += f", {quantity(placement.total_w, 'W')} reserved"
    if placement.power_cap_w is not None:
        text += f", at {placement.power_cap_w:.0f} W per GPU"
    if placement.slowdown > 0:
        text += f", {100 * placement.slowdown:.0f} % slower than asked for"
    return text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
