"""What waits for other jobs comes into the queue, or is told that it never will."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import groupby

from django.db import transaction

from accounts import audit
from accounts.models import User
from admission.jobs import history, needs, progress
from admission.jobs.models import Dependency, Job, Phase
from admission.jobs.needs import Standing
from admission.jobs.submission import Conflict
from headroom.jobs import array

__all__ = ["follow", "waive"]

_State = Dependency.State


def follow(now: datetime) -> int:
    """Decide on needs that have been met or never will be; return how many. Two queries, and more.

    Only the cycle calls this: what others do meanwhile, the next one sees.
    """
    rows = list(
        Dependency.objects.filter(state=_State.OPEN, job__state__in=Job.OPEN).order_by("job", "pk")
    )
    decided = []
    for row, fate in zip(rows, needs.fates(rows), strict=True):
        stands = needs.standing(row.when, row.after_s, fate, now)
        if stands is Standing.MET:
            row.state = _State.MET
        elif stands is Standing.NEVER:
            row.state, row.why = _State.NEVER, needs.why_never(fate)
        if row.state != _State.OPEN:
            decided.append(row)
    for job_id, mine in groupby(decided, lambda row: row.job_id):
        _decide(job_id, list(mine), now)
    return len(decided)


@transaction.atomic
def _decide(job_id: int, rows: Sequence[Dependency], now: datetime) -> None:
    job = progress.lock(job_id)
    if job.state not in Job.OPEN:
        return
    for row in rows:
        Dependency.objects.filter(pk=row.pk, state=_State.OPEN).update(
            state=row.state, why=row.why, decided_at=now
        )
        if row.state == _State.NEVER:
            _never(job, row, now)
    of_elements = {row.element for row in rows}
    _unlock(job, now, None if None in of_elements else of_elements)


def _never(job: Job, row: Dependency, now: datetime) -> None:
    """Say that a need is never met. A phase that waits for its own job is left out of it."""
    text = f"it waits for {needs.text_of(row)}, and {row.why}"
    if row.on:
        whose, phase = row.phase or "The job", row.phase
        if row.element is not None:
            whose = f"{row.phase or 'All'} of element {row.element}"
            phase = array.name_of(row.phase, row.element) if row.phase else ""
        text = f"{whose} can never begin: {text}"
        history.event(job.pk, history.NEVER, text, now, phase=phase).save()
        return
    waiting = job.phases.filter(name=row.phase, state=Phase.State.WAITING)
    if waiting.update(left_out=True, **Phase.ended(Phase.State.CANCELLED, now)):
        text = f"{row.phase} is left out: {text}"
        history.event(job.pk, history.ENDED, text, now, phase=row.phase).save()


def _unlock(job: Job, now: datetime, elements: Collection[int | None] | None = None) -> None:
    """Bring what waits of a locked job into the queue, where nothing keeps it any more.

    Of an array: of ``elements``, if they are given.
    """
    waiting = job.phases.filter(state=Phase.State.WAITING).order_by()
    if elements is not None:
        waiting = waiting.filter(element__in=elements)
    for element in list(waiting.values_list("element", flat=True).distinct()):
        progress.settle(job, now, element=element)
    if not job.phases.open().exists():
        progress.settle(job, now)


@transaction.atomic
def waive(job: Job, user: User, *, why: str, now: datetime) -> Job:
    """Let a job begin without what it waits for of other jobs. Raises :class:`Conflict`."""
    job = progress.lock(job.pk)
    if job.state not in Job.OPEN:
        raise Conflict("ended", f"the job is over: {job.get_state_display().lower()}")
    # Those on its own phases are of its making: they are never another's doing.
    mine = job.dependencies.filter(state__in=[*Dependency.KEEPS, _State.EACH]).exclude(on="")
    texts = [needs.text_of(row) for row in mine.filter(element=None).order_by("pk")]
    if not texts:
        raise Conflict("nothing_needed", "it waits for no other job")
    mine.update(state=_State.WAIVED, decided_at=now)
    text = f"It no longer waits for {'; '.join(texts)}: {user.get_username()}"
    text += f", {why}" if why else ""
    history.event(job.pk, history.WAIVED, text, now).save()
    audit.record(user, "job.waive", job.name, why=why, needs=texts)
    _unlock(job, now)
    return job
