"""Terminals in what attempts hold: asked of machines, which come for them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from admission.executors import relay
from admission.executors.models import NodeAssignment, Shell
from headroom.work.contract import ShellAsk, ShellSide

__all__ = ["ASKED_FOR", "ask", "asks_of", "open_of"]

#: A machine that has not come for a terminal by then does not open it.
ASKED_FOR = timedelta(seconds=30)


def ask(part: NodeAssignment, shell: Shell) -> None:
    """Have the machine of ``part`` open a terminal. Two statements."""
    shell.save(force_insert=True)
    NodeAssignment.objects.filter(pk=part.pk).update(shell_asked_at=shell.asked_at)


def open_of(user: str) -> int:
    """Return how many terminals a user has open. One query."""
    return Shell.objects.filter(user=user, ended_at=None).count()


def asks_of(rows: Iterable[NodeAssignment], store: str, at: datetime) -> list[ShellAsk]:
    """Return the terminals that the machine with ``store`` is to open.

    A query where somebody has asked within half a minute; else none.
    """
    asked = {
        row.pk: row
        for row in rows
        if row.store == store
        and row.shell_asked_at is not None
        and row.shell_asked_at > at - ASKED_FOR
    }
    if not asked:
        return []
    waiting = Shell.objects.filter(
        assignment__in=asked, begun_at=None, ended_at=None, asked_at__gt=at - ASKED_FOR
    )
    return [
        ShellAsk(
            session=str(shell.pk),
            secret=relay.secret_of(str(shell.pk), ShellSide.NODE),
            attempt=asked[shell.assignment_id].gang.key,
            node=asked[shell.assignment_id].node,
            **shell.request,
        )
        for shell in waiting
    ]
