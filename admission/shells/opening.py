"""Opens terminals in what running jobs hold, and ends them. Both stand in the audit log.

What is said there does not: who, in which job, on which node, for how long and how much.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from accounts import audit
from accounts.models import User
from accounts.roles import Capability
from admission.executors import relay, shells
from admission.executors.models import NodeAssignment, Shell
from admission.executors.relay import Standing
from admission.jobs import actions
from admission.jobs.models import Attempt, Job
from admission.jobs.submission import Conflict
from headroom.work.contract import ShellSide

__all__ = [
    "MOST_PER_USER",
    "NotNow",
    "Opened",
    "ended_as",
    "follow",
    "may_open",
    "open_shell",
    "why_over",
]

#: Terminals that one user has open at once.
MOST_PER_USER = 8
#: An end that was not heard for so long has gone, s.
_GONE_AFTER_S = 60.0
#: An interactive job without a terminal waits for one so long, s: a connection that broke may come
#: back, and whoever waits for it may be asked for a second factor.
_WAITS_S = 300.0
#: A machine has so long to tell how a command ended with its job, s.
_LAST_WORD_S = 5.0
_State = NodeAssignment.State
_Outcome = Attempt.Outcome


class NotNow(Exception):
    """A terminal cannot be opened there now. ``code`` is for programs, ``hint`` the way out."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


@dataclass(frozen=True)
class Opened:
    """A terminal that its machine was asked for, and the secret of the user's end."""

    shell: Shell
    node: str
    secret: str


def may_open(user: User, job: Job) -> bool:
    """Say whether a user may open a terminal in a job: its owner, or who was granted that."""
    if user.can(Capability.OPEN_SHELLS):
        return True
    return user.can(Capability.SUBMIT_JOBS) and job.submitted_by == user.get_username()


def open_shell(
    user: User, job: Job, part: NodeAssignment | None, request: dict[str, object], now: datetime
) -> Opened:
    """Have the machine of ``part`` open a terminal. Raises :class:`NotNow`."""
    if part is None or part.state != _State.RUNNING:
        state = "has not begun" if part is None else f"is {part.state} there"
        raise NotNow(
            "not_running",
            f"{job.name} {state}: a terminal is opened in what runs",
            f"see how it stands: headroom explain {job.name}",
        )
    if shells.open_of(user.get_username()) >= MOST_PER_USER:
        raise NotNow(
            "too_many_shells",
            f"you have {MOST_PER_USER} terminals open, as many as you may",
            "close one of them",
        )
    shell = Shell(
        id=uuid.uuid4(), assignment=part, job=job.name, user=user.get_username(),
        request=request, asked_at=now,
    )  # fmt: skip
    relay.begin(str(shell.pk), now.timestamp())
    with transaction.atomic():
        shells.ask(part, shell)
        audit.record(
            user, "shell.open", job.name, session=str(shell.pk), attempt=part.gang.key,
            node=part.node,
        )  # fmt: skip
    return Opened(shell, part.node, relay.secret_of(str(shell.pk), ShellSide.USER))


def follow(now: datetime) -> int:
    """Note which terminals have begun, and end those whose time is up; return how many ended.

    Interactive jobs end with theirs. Two queries while no terminal is open, and no such job runs.
    """
    rows = Shell.objects.filter(ended_at=None).select_related("assignment__gang").order_by("pk")
    ended = sum([_follow(row, now) for row in rows])
    for job in _unused(now):
        why = f"nobody opened a terminal in it within {_WAITS_S / 60:g} min"
        _end_job(job, _Outcome.FAILED, why, None, now)
    return ended


def _unused(now: datetime) -> list[Job]:
    """Return the interactive jobs that run, and in which nobody has opened a terminal for long."""
    since = now - timedelta(seconds=_WAITS_S)
    lately = Q(ended_at=None) | Q(ended_at__gt=since)
    used = Shell.objects.filter(lately, job=OuterRef("name"))
    new = Attempt.objects.filter(Q(started_at=None) | Q(started_at__gt=since), ended_at=None)
    return list(
        Job.objects.filter(interactive=True, state=Job.State.RUNNING).exclude(
            Exists(used) | Exists(new.filter(phase__job=OuterRef("pk")))
        )
    )


def _end_job(job: Job, outcome: _Outcome, why: str, exit_code: int | None, now: datetime) -> None:
    with contextlib.suppress(Conflict):  # it is over
        actions.end(job, outcome, why=why, exit_code=exit_code, now=now)


def ended_as(command: Sequence[str], exit_code: int | None, why: str) -> tuple[_Outcome, str]:
    """Return how an interactive job has ended with its terminal, and why in words. Pure.

    Who leaves a shell leaves it with the status of whatever came last: that says nothing of the
    job. ``why`` is that of the terminal: empty where its command has ended.
    """
    if why:
        return _Outcome.FAILED, f"its terminal was ended: {why}"
    if command and exit_code:
        return _Outcome.FAILED, f"its command ended with status {exit_code}"
    return _Outcome.SUCCEEDED, "its command has ended" if command else "its terminal was left"


def _follow(row: Shell, now: datetime) -> bool:
    session = str(row.pk)
    stands = relay.standing(session)
    if row.begun_at is None and stands.begun_at:
        row.begun_at = datetime.fromtimestamp(stands.begun_at, UTC)
        row.save(update_fields=["begun_at"])
    why = why_over(stands, row.asked_at, row.assignment.state, now)
    if why is None:
        return False
    relay.over(session, why)
    _end(row, stands, why, now)
    return True


def why_over(stands: Standing, asked_at: datetime, state: str, now: datetime) -> str | None:
    """Return why a terminal is over, empty where its command has ended; None: it is not. Pure."""
    if not stands.is_known:
        return "what was kept of it is gone"
    if stands.over is not None:
        return stands.over
    if not stands.begun_at:
        is_late = now - asked_at > shells.ASKED_FOR + timedelta(seconds=_LAST_WORD_S)
        return "its machine did not come for it" if is_late else None
    at, limit_s, idle_s = now.timestamp(), settings.SHELL_LIMIT_S, settings.SHELL_IDLE_S
    unheard_s = at - stands.node_seen_at
    whys = (
        (at - stands.begun_at > limit_s, f"it was open for {limit_s:g} s, as long as one may be"),
        (at - stands.data_at > idle_s, f"nothing was said for {idle_s:g} s"),
        (at - stands.user_seen_at > _GONE_AFTER_S, "whoever had opened it was not heard any more"),
        (unheard_s > _GONE_AFTER_S, "its machine was not heard any more"),
        (state == _State.ENDED and unheard_s > _LAST_WORD_S, "the job has ended"),
    )
    return next((why for is_so, why in whys if is_so), None)


def _end(row: Shell, stands: Standing, why: str, now: datetime) -> None:
    row.ended_at, row.why, row.exit_code = now, why[:500], stands.exit_code
    row.bytes_in, row.bytes_out = stands.bytes_in, stands.bytes_out
    seconds = (now - (row.begun_at or now)).total_seconds()
    with transaction.atomic():
        row.save()
        audit.record(
            row.user, "shell.end", row.job, session=str(row.pk),
            attempt=row.assignment.gang.key, node=row.assignment.node,
            seconds=round(seconds, 1), bytes_in=row.bytes_in, bytes_out=row.bytes_out,
            exit_code=row.exit_code, why=row.why,
        )  # fmt: skip
    if row.begun_at is not None and not Shell.objects.filter(job=row.job, ended_at=None).exists():
        outcome, text = ended_as(row.request.get("command") or (), row.exit_code, row.why)
        for job in Job.objects.filter(name=row.job, interactive=True, state__in=Job.OPEN):
            _end_job(job, outcome, text, row.exit_code, now)
