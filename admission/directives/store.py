"""Directives in Postgres, under the book of :mod:`admission.core.directives.book`.

Nothing here talks to a job: ``delivery`` does, from what is in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from admission.core.directives.book import DirectiveBook
from admission.directives import metrics
from admission.directives.models import Directive, DirectiveEvent, DirectiveQuerySet
from admission.jobs.models import JobEvent
from policies.leases.book import SYSTEM, Changes, Line
from policies.leases.postgres import PostgresStore

__all__ = ["SYSTEM", "book", "close", "note", "save", "sentence"]

_Kind = Directive.Kind


class _Store(PostgresStore[Directive]):
    key = ("owner", "cause", "kind", "attempt_id")
    fields = (
        "value", "reason", "state", "signal_seq", "applied_at", "outcome", "expires_at",
        "ended_at", "ended_by", "ended_why",
    )  # fmt: skip

    def _live(self) -> DirectiveQuerySet:
        return Directive.objects.live()

    def _renewed(self) -> DirectiveQuerySet:
        return self._live().filter(kind__in=Directive.LASTING)

    def _locked(self) -> DirectiveQuerySet:
        # Rows and no lock for all: who stops attempts has their jobs locked, whose history is
        # written below.
        return self._live().select_for_update().order_by("pk")

    def save(self, changes: Changes[Any]) -> None:
        super().save(changes)
        if changes.new:
            _tell_jobs(changes.new, changes.now)

    def event(self, line: Line[Any]) -> DirectiveEvent:
        return note(line.row, line.kind, at=line.at, text=line.text, **line.data)

    def _count(self, events: Sequence[DirectiveEvent]) -> None:
        metrics.count(events)

    def caps_w(self) -> Iterable[tuple[int, float]]:
        """One query."""
        rows = self._live().filter(kind=_Kind.SET_POWER_CAP)
        found = rows.values_list("attempt_id", "value")
        return [(pk, cap_w) for pk, cap_w in found if cap_w is not None]


_store = _Store(Directive, DirectiveEvent)
#: Write lines of the ledger, and count them. One query.
save = _store.write


def book() -> DirectiveBook[Any]:
    """Return the book of directives."""
    return DirectiveBook(_store)


def note(row: Directive, kind: str, *, at: datetime, text: str = "", **data: Any) -> DirectiveEvent:
    """Return a line of the ledger, to be saved in the transaction that it tells of."""
    return DirectiveEvent(directive=row, at=at, kind=kind, text=text[:1000], data=data)


def _tell_jobs(rows: Sequence[Directive], now: datetime) -> None:
    """Write directives into the histories of their jobs. Two queries."""
    pks = [row.pk for row in rows]
    told = Directive.objects.filter(pk__in=pks).values_list(
        "pk", "attempt__phase__job_id", "attempt__phase__name"
    )
    places = {pk: (job, phase) for pk, job, phase in told}
    JobEvent.objects.bulk_create(
        JobEvent(
            job_id=places[row.pk][0], phase=places[row.pk][1], at=now, kind="directive",
            text=f"{sentence(row)}: {row.reason}"[:1000],
            data={"directive": row.pk, "kind": row.kind, "value": row.value, "owner": row.owner},
        )
        for row in rows
    )  # fmt: skip


def sentence(row: Directive) -> str:
    """Return the directive in words."""
    number = "" if row.value is None else f"{row.value:g}"
    site = row.arguments.get("site", "")
    return {
        _Kind.SET_BATCH_SCALE: f"asked {number} of the batch",
        _Kind.SET_POWER_CAP: f"asked at most {number} W per GPU",
        _Kind.PAUSE: "asked to pause",
        _Kind.RESUME: "asked to go on",
        _Kind.CHECKPOINT: "asked for a checkpoint",
        _Kind.RESUME_AT_SITE: f"asked to go on at {site or 'another site'}",
        _Kind.STOP: "asked to end and to wait again",
    }[_Kind(row.kind)]


def close(row: Directive, *, now: datetime, by: str = SYSTEM, why: str) -> None:
    """Have nothing more be done about a directive; the caller saves."""
    row.is_closed = True
    if row.ended_at is None:
        row.ended_at, row.ended_by, row.ended_why = now, by[:200], why[:500]
