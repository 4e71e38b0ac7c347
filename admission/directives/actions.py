"""Requests of others to running jobs: end and wait again, save, pause, go on; and who asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Count

from accounts import audit
from admission.core.directives.book import Wanted
from admission.core.directives.placed import save_s, stop_wanted
from admission.core.moving import BUDGET_S as MOVES_S
from admission.core.moving import RETURNS_WITHIN_S, MoveKind
from admission.core.preempting import BUDGET_S
from admission.directives import store
from admission.directives.models import Directive
from admission.jobs import history, resolution
from admission.jobs.models import Attempt, Job, Phase

if TYPE_CHECKING:
    from accounts.models import User

__all__ = [
    "GIVEN_BY_PEOPLE",
    "LONGEST",
    "BadDirective",
    "give",
    "move",
    "moved_within_the_hour",
    "preempt",
    "preempted_by_project",
    "stop",
    "withdraw",
]

#: The kind of event of a job that grows, or moves so that another fits.
MOVED = "moved"
#: No directive of a person lasts longer.
LONGEST = timedelta(days=7)
_Kind = Directive.Kind


class BadDirective(ValueError):
    """A directive that cannot be given. Names the field, and the way out."""

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.hint = hint


# --- Ending an attempt, so that its phase goes on later or elsewhere ------------------------------


@transaction.atomic
def stop(
    attempts: Iterable[Attempt],
    *,
    owner: str,
    cause: str,
    why: str,
    now: datetime,
    site: str | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> list[Directive]:
    """Have attempts save, end, and their phases wait again; return the directives.

    ``site``: they are to go on there, or at any other site where it is "". Those that are about to
    end already are left out. Whoever ends attempts closes them: ``executors.reconciliation``.
    """
    asked = [each.pk for each in attempts]
    # Jobs first, as everywhere: see jobs.progress.
    jobs = Phase.objects.filter(attempts__in=asked).values("job")
    list(Job.objects.select_for_update().filter(pk__in=jobs).order_by("pk"))
    locked = Attempt.objects.select_for_update(of=("self",)).select_related("phase")
    chosen = [row for row in locked.filter(pk__in=asked).open() if not row.outcome]
    for row in chosen:
        row.outcome, row.why = Attempt.Outcome.PREEMPTED, why[:500]
    Attempt.objects.bulk_update(chosen, ["outcome", "why"], batch_size=500)
    active = Phase.objects.filter(pk__in=[row.phase_id for row in chosen], state__in=Phase.ACTIVE)
    active.update(state=Phase.State.STOPPING)
    return store.book().issue(
        [
            stop_wanted(
                row.pk,
                owner=owner,
                cause=cause,
                why=why,
                save_within_s=_save_s(owner, row),
                now=now,
                site=site,
                evidence=evidence,
            )
            for row in chosen
        ],
        now=now,
    )


def _save_s(owner: str, attempt: Attempt) -> float:
    request = resolution.request_of(attempt.phase)
    return save_s(owner, request, has_begun=attempt.started_at is not None)


def preempt(
    attempt_keys: Sequence[str], *, for_key: str, why: str, now: datetime
) -> list[Directive]:
    """Have running phases give way to the one of ``for_key`` ("job/phase")."""
    attempts = Attempt.objects.filter(key__in=attempt_keys)
    return stop(attempts, owner="preemption", cause=for_key, why=why, now=now)


@transaction.atomic
def move(
    attempt_key: str,
    *,
    kind: MoveKind,
    placement: Mapping[str, Any],
    for_key: str,
    why: str,
    evidence: Mapping[str, Any],
    now: datetime,
) -> list[Directive]:
    """Have a running phase save, end, and start again at ``placement``, as attempts keep it.

    It is kept for it for a while: for no longer, so that what hangs keeps nothing from others.
    ``for_key``: who is made room for ("job/phase"); empty where it grows.
    """
    row = Attempt.objects.select_related("phase").get(key=attempt_key)
    given = stop(
        [row], owner=kind, cause=for_key or attempt_key, why=why, evidence=evidence, now=now
    )
    if given:
        returns_by = now + timedelta(seconds=RETURNS_WITHIN_S)
        Phase.objects.filter(pk=row.phase_id).update(
            returns_to=dict(placement), returns_by=returns_by
        )
        phase = row.phase
        history.event(
            phase.job_id, MOVED, f"{phase.name} {why}", now,
            phase=phase.name, attempt=attempt_key, move=kind.value, **evidence,
        ).save()  # fmt: skip
    return given


def moved_within_the_hour(now: float) -> int:
    """Return how many jobs were moved within the hour before ``now`` (Unix s). One query."""
    until = datetime.fromtimestamp(now, UTC)
    return Directive.objects.filter(
        owner__in=[each.value for each in MoveKind],
        issued_at__gt=until - timedelta(seconds=MOVES_S), issued_at__lte=until,
    ).count()  # fmt: skip


def preempted_by_project(now: float) -> dict[str, int]:
    """Return how many jobs of each project were asked to give way within the hour. One query."""
    until = datetime.fromtimestamp(now, UTC)
    rows = (
        Directive.objects.filter(
            owner="preemption", issued_at__gt=until - timedelta(seconds=BUDGET_S),
            issued_at__lte=until,
        )
        .order_by()
        .values_list("attempt__phase__job__project__name")
        .annotate(Count("attempt", distinct=True))
    )  # fmt: skip
    return dict(rows)


# --- What people ask ------------------------------------------------------------------------------

#: What a person may give, and whether it takes a value.
GIVEN_BY_PEOPLE = {
    _Kind.SET_BATCH_SCALE: True,
    _Kind.SET_POWER_CAP: True,
    _Kind.PAUSE: False,
    _Kind.RESUME: False,
    _Kind.CHECKPOINT: False,
    _Kind.STOP: False,
}


@transaction.atomic
def give(
    job: Job,
    user: User,
    *,
    kind: str,
    value: float | None,
    reason: str,
    until: datetime,
    now: datetime,
    phase: str = "",
) -> list[Directive]:
    """Give a directive to the running phases of a job (or to one phase of it), as a person.

    Raises :class:`BadDirective`.
    """
    _check(kind, value, until, now)
    attempts = list(_running_of(job, phase))
    if not attempts:
        where = f"phase {phase!r} of job" if phase else "job"
        raise BadDirective(
            "job", f"nothing of {where} {job.name!r} runs", "wait until it has begun"
        )
    owner = f"user:{user.get_username()}"
    if kind == _Kind.STOP:
        given = stop(attempts, owner=owner, cause=reason, why=reason, now=now)
    else:
        given = store.book().issue(
            [
                Wanted(
                    attempt_id=row.pk, kind=kind, value=value, owner=owner, cause=reason,
                    reason=reason, expires_at=until,
                )
                for row in attempts
            ],
            now=now,
        )  # fmt: skip
    if not given:
        raise BadDirective(
            "reason", f"{kind} was given for this reason already", "withdraw it, or give another"
        )
    audit.record(
        user, "directive.give", job.name, kind=kind, value=value, reason=reason,
        directives=[row.pk for row in given],
        **audit.changes(None, {f"directive {row.pk}": audit.state(row) for row in given}),
    )  # fmt: skip
    return given


def _running_of(job: Job, phase: str) -> Iterable[Attempt]:
    rows = Attempt.objects.open().filter(phase__job=job).select_related("phase")
    return rows.filter(phase__name=phase) if phase else rows


def _check(kind: str, value: float | None, until: datetime, now: datetime) -> None:
    if kind not in GIVEN_BY_PEOPLE:
        known = ", ".join(GIVEN_BY_PEOPLE)
        raise BadDirective("kind", f"{kind!r} cannot be given by a person", f"give one of {known}")
    if GIVEN_BY_PEOPLE[_Kind(kind)] != (value is not None):
        wants = "needs a value" if GIVEN_BY_PEOPLE[_Kind(kind)] else "takes no value"
        raise BadDirective("value", f"{kind} {wants}")
    if kind == _Kind.SET_BATCH_SCALE and not 0.0 < (value or 0.0) <= 1.0:
        raise BadDirective("value", "a batch scale is above 0 and at most 1")
    if kind == _Kind.SET_POWER_CAP and not (value or 0.0) > 0.0:
        raise BadDirective("value", "a power cap is above 0 W")
    if not now < until <= now + LONGEST:
        raise BadDirective(
            "expires_at", "it has to end", f"give a time within {LONGEST.days} days from now"
        )


@transaction.atomic
def withdraw(pk: int, user: User, *, why: str, now: datetime) -> Directive:
    """End a lasting directive of a person, or one of the response that the person overrules.

    Raises DoesNotExist, or :class:`BadDirective` for one that is over or does not last.
    """
    row = Directive.objects.select_for_update().get(pk=pk)
    if row.ended_at is not None:
        raise BadDirective("directive", f"it is over since {row.ended_at:%Y-%m-%d %H:%M:%S} UTC")
    if not row.is_lasting:
        raise BadDirective("directive", f"{row.kind} cannot be taken back")
    if not row.owner.startswith("user:"):
        raise BadDirective(
            "directive", f"{row.owner} wants it, and would give it again",
            "end what it rests on: the restriction, or the shortage",
        )  # fmt: skip
    before = audit.state(row)
    store.book().end([row], now=now, by=f"user:{user.get_username()}", why=why)
    told = audit.changes(before, audit.stored(row))
    audit.record(user, "directive.withdraw", str(row.attempt), directive=row.pk, why=why, **told)
    return row
