"""Takes up the directives that playbooks ask for, and reports their progress back.

A playbook asks for a scope: save, go on elsewhere, go on. Here that becomes one directive for each
job that runs there. The playbook's is applied once all of those are over, however they ended; how
many did it is in its note, and with none that did it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Q

from admission.core.directives.book import Wanted
from admission.core.directives.fallback import FALLBACK
from admission.core.response.fallback import Fallback
from admission.directives import fallback, store
from admission.directives.models import Directive, DirectiveQuerySet
from admission.directives.placed import PlacedRows
from admission.directives.running import Active
from policies.playbooks import directives as playbooks
from policies.playbooks.models import Directive as Asked
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind

__all__ = ["report", "take_up"]

log = structlog.get_logger(__name__)

_State = Asked.State
_LATER = (_State.APPLIED, _State.MEASURED, _State.WITHDRAWN)
#: What was applied is followed to its verdict for so long.
_FOLLOWED = timedelta(hours=2)
_MOST = 200


def owner_of(asked: Asked) -> str:
    """Return the key of a playbook's request, which owns the directives that follow from it."""
    return asked.key


def take_up(placed: PlacedRows, in_force: InForce, *, now: datetime) -> int:
    """Turn the requests of playbooks into directives to jobs; return how many were taken up."""
    count = 0
    open_ = Asked.objects.open().filter(state=_State.ISSUED, expires_at__gt=now).order_by("id")
    for asked in open_[:_MOST]:
        try:
            with transaction.atomic():
                _take(asked, placed, in_force, now)
            count += 1
        except playbooks.NoSuchChange:
            # Withdrawn, or over, since it was read.
            log.info("playbook_directive_gone", key=asked.key)
    return count


def _take(asked: Asked, placed: PlacedRows, in_force: InForce, now: datetime) -> None:
    scope = Scope(ScopeKind(asked.scope_kind), asked.scope_name)
    loaded = placed.load(placed.in_scope(scope, in_force).tolist())
    there = [each for each in loaded if not each.is_ending]
    count = len(there)
    note = f"{count} running {'job' if count == 1 else 'jobs'} in {scope}"
    playbooks.report(asked.key, _State.ACKNOWLEDGED, note=note, now=now)
    if asked.kind == Asked.Kind.MIGRATE:
        _migrate(asked, there, now)
        return
    kind = (
        Directive.Kind.CHECKPOINT if asked.kind == Asked.Kind.CHECKPOINT else Directive.Kind.RESUME
    )
    store.book().issue(
        [
            Wanted(
                attempt_id=each.attempt.pk, kind=kind, owner=owner_of(asked), cause=asked.key,
                reason=f"playbook {asked.run.playbook} on {asked.run.scope}",
                expires_at=asked.expires_at, evidence={"playbook_run": asked.run_id},
            )
            for each in there
            if each.request.checkpoint_interval_s is not None or kind == Directive.Kind.RESUME
        ],
        now=now,
    )  # fmt: skip


def _migrate(asked: Asked, there: Sequence[Active], now: datetime) -> None:
    state = Fallback(asked.arguments["to"])
    why = f"playbook {asked.run.playbook} on {asked.run.scope}"
    for job in {each.job.pk: each.job for each in there}.values():
        fallback.move(job, state, why=why, by=owner_of(asked), now=now)


# --- What came of it ------------------------------------------------------------------------------


def report(*, now: datetime) -> int:
    """Report to playbooks the progress of their directives; return how many changed.

    Also ends what they have withdrawn and jobs have not begun yet.
    """
    told = 0
    recent = Q(issued_at__gt=now - _FOLLOWED, state__in=_LATER)
    rows = Asked.objects.filter(Q(state=_State.ACKNOWLEDGED) | recent).order_by("-id")[:_MOST]
    for asked in rows:
        if asked.state == _State.ACKNOWLEDGED:
            told += _report_applied(asked, now)
        elif asked.state == _State.WITHDRAWN:
            left = list(_of(asked).live())
            why = asked.note or "the playbook withdrew it"
            store.book().end(left, now=now, by=asked.key, why=why)
        else:
            told += _report_verdict(asked, now)
    return told


def _of(asked: Asked) -> DirectiveQuerySet:
    if asked.kind != Asked.Kind.MIGRATE:
        return Directive.objects.filter(owner=owner_of(asked))
    return Directive.objects.filter(
        owner=FALLBACK, evidence__by=owner_of(asked), issued_at__gte=asked.issued_at
    )


def _report_applied(asked: Asked, now: datetime) -> bool:
    rows = list(_of(asked))
    pending = [row for row in rows if row.applied_at is None and not row.is_closed]
    if pending and now < asked.expires_at:
        return False
    done = sum(row.applied_at is not None for row in rows)
    if rows and not done:
        note = f"none of {len(rows)} jobs has done it: {rows[0].note}"
        return _tell(asked, _State.REFUSED, note, now)
    note = (
        f"{done} of {len(rows)} jobs have done it" if rows else f"{asked.note}: nothing to wait for"
    )
    return _tell(asked, _State.APPLIED, note, now)


def _report_verdict(asked: Asked, now: datetime) -> bool:
    rows = list(_of(asked))
    if any(not row.outcome for row in rows):
        return False
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.outcome] = counts.get(row.outcome, 0) + 1
    note = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "nothing"
    if asked.state == _State.APPLIED:
        _tell(asked, _State.MEASURED, note, now)
    return _tell(asked, _State.VERDICT, note, now)


def _tell(asked: Asked, state: str, note: str, now: datetime) -> bool:
    try:
        playbooks.report(asked.key, state, note=note, now=now)
    except playbooks.NoSuchChange:
        return False
    return True
