"""Directives to jobs: an outbox that an executor empties, and a ledger of each one's outcome."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from policies.playbooks.models import Directive, PlaybookRun
from policies.scopes import Scope


class NoSuchChange(Exception):
    """A directive cannot go from the state that it is in to another."""


def issue(
    row: PlaybookRun,
    path: str,
    *,
    kind: str,
    scope: Scope,
    arguments: dict[str, Any],
    until: datetime,
    now: datetime,
) -> None:
    """Issue the directive of one step. Issuing it again changes nothing."""
    given = Directive(
        key=row.key(path),
        run=row,
        kind=kind,
        scope_kind=scope.kind.value,
        scope_name=scope.name,
        arguments=arguments,
        issued_at=now,
        expires_at=until,
        ledger=[_line(Directive.State.ISSUED, now, "")],
    )
    Directive.objects.bulk_create([given], ignore_conflicts=True)


@transaction.atomic
def report(key: str, state: str, *, note: str = "", now: datetime) -> Directive:
    """Record the next state of a directive. Raises :class:`NoSuchChange`, or DoesNotExist.

    One whose time is over is not taken up any more, whoever would do so.
    """
    directive = Directive.objects.select_for_update().get(key=key)
    if state not in Directive.NEXT.get(directive.state, frozenset()):
        raise NoSuchChange(f"a directive that is {directive.state} cannot become {state}")
    if state == Directive.State.ACKNOWLEDGED and now >= directive.expires_at:
        raise NoSuchChange("its time is over: do not do it any more")
    directive.state = state
    directive.note = note
    directive.ledger = [*directive.ledger, _line(state, now, note)]
    directive.save(update_fields=["state", "note", "ledger"])
    return directive


def withdraw(key: str, *, why: str, now: datetime) -> None:
    """Withdraw a directive whose end nobody waits for any more."""
    with transaction.atomic():
        for directive in Directive.objects.select_for_update().open().filter(key=key):
            report(directive.key, Directive.State.WITHDRAWN, note=why, now=now)


def _line(state: str, now: datetime, note: str) -> dict[str, str]:
    return {"state": str(state), "at": now.isoformat(), "note": note}
