"""Directives in Postgres: held, renewed, ended, each with its line in the ledger.

Those that last are leases: whoever wants one says so again and again. :func:`keep` makes what one
owner wants be so, whatever was before, so that a step that died leaves nothing behind that the
next does not see. Nothing here talks to a job: ``delivery`` does, from what is in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction

from admission.directives import metrics
from admission.directives.models import Directive, DirectiveEvent
from admission.jobs.models import JobEvent

__all__ = ["SYSTEM", "Wanted", "close", "end", "expire", "issue", "keep", "note", "save"]

SYSTEM = "system"
#: A lease is renewed when this share of it is left.
_RENEW_AT = 0.5
_Kind = Directive.Kind
_Line = DirectiveEvent.Kind


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A directive that somebody wants. With the same key it is the same one, renewed."""

    attempt_id: int
    kind: str
    owner: str
    cause: str
    reason: str
    expires_at: datetime
    value: float | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, str, str, str]:
        return self.attempt_id, self.owner, self.cause, self.kind


def note(row: Directive, kind: str, *, at: datetime, text: str = "", **data: Any) -> DirectiveEvent:
    """Return a line of the ledger, to be saved in the transaction of what it tells."""
    return DirectiveEvent(directive=row, at=at, kind=kind, text=text[:1000], data=data)


def save(events: Sequence[DirectiveEvent]) -> None:
    """Write lines of the ledger, and count them. One query."""
    DirectiveEvent.objects.bulk_create(events)
    metrics.count(events)


@transaction.atomic
def keep(owner: str, wanted: Iterable[Wanted], *, now: datetime, why: str) -> list[Directive]:
    """Have exactly ``wanted`` of ``owner`` last; return the rows that are new.

    What the owner had and does not want any more is ended, for the reason ``why``.
    """
    chosen = {each.key: each for each in wanted}
    rows = {row.key: row for row in _lasting(owner)}
    end([row for key, row in rows.items() if key not in chosen], now=now, by=owner, why=why)
    new = [each for key, each in chosen.items() if key not in rows]
    _renew([(rows[key], each) for key, each in chosen.items() if key in rows], now)
    return issue(new, now=now)


def _lasting(owner: str) -> Iterable[Directive]:
    live = Directive.objects.live().select_for_update()
    return live.filter(owner=owner, kind__in=Directive.LASTING)


def _renew(pairs: Sequence[tuple[Directive, Wanted]], now: datetime) -> None:
    changed, events = [], []
    for row, wanted in pairs:
        is_late = row.expires_at - now < _RENEW_AT * (wanted.expires_at - now)
        if row.value == wanted.value and not is_late:
            continue
        if row.value != wanted.value:
            events.append(
                note(row, _Line.CHANGED, at=now, text=wanted.reason, value=wanted.value,
                     was=row.value)
            )  # fmt: skip
            row.value, row.reason = wanted.value, wanted.reason[:500]
            # Another value is followed from the start.
            row.state, row.signal_seq, row.applied_at = Directive.State.ISSUED, None, None
            row.outcome = ""
        row.expires_at = max(row.expires_at, wanted.expires_at)
        changed.append(row)
    fields = ["value", "reason", "state", "signal_seq", "applied_at", "outcome", "expires_at"]
    Directive.objects.bulk_update(changed, fields, batch_size=500)
    save(events)


@transaction.atomic
def issue(wanted: Iterable[Wanted], *, now: datetime) -> list[Directive]:
    """Give directives; return their rows. One that lives already under its key is left as it is."""
    rows = [_row(each, now) for each in wanted]
    if not rows:
        return []
    keys = [row.key for row in rows]
    known = {
        row.key for row in Directive.objects.live().filter(attempt__in=[key[0] for key in keys])
    }
    fresh = list({row.key: row for row in rows if row.key not in known}.values())
    Directive.objects.bulk_create(fresh)
    save([note(row, _Line.ISSUED, at=now, text=row.reason, value=row.value) for row in fresh])
    _tell_jobs(fresh, now)
    return fresh


def _row(wanted: Wanted, now: datetime) -> Directive:
    return Directive(
        attempt_id=wanted.attempt_id,
        kind=wanted.kind,
        value=wanted.value,
        arguments=dict(wanted.arguments),
        owner=wanted.owner[:200],
        cause=wanted.cause[:300],
        reason=wanted.reason[:500],
        evidence=dict(wanted.evidence),
        issued_at=now,
        expires_at=wanted.expires_at,
        note=wanted.reason[:1000],
    )


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
    """Say in words what is asked."""
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


# --- Ending ---------------------------------------------------------------------------------------


@transaction.atomic
def end(rows: Iterable[Directive], *, now: datetime, by: str, why: str) -> None:
    """End directives whose cause is over. What they did is undone by the next delivery."""
    _cease(list(rows), _Line.RELEASED, by=by, why=why, at={}, now=now)


@transaction.atomic
def expire(now: datetime) -> int:
    """End what nobody has renewed; return how much that was."""
    rows = list(Directive.objects.live().select_for_update().filter(expires_at__lte=now))
    at = {row.pk: row.expires_at for row in rows}
    _cease(rows, _Line.EXPIRED, by=SYSTEM, why="its lease ran out", at=at, now=now)
    return len(rows)


def _cease(
    rows: Sequence[Directive],
    line: str,
    *,
    by: str,
    why: str,
    at: Mapping[int, datetime],
    now: datetime,
) -> None:
    for row in rows:
        row.ended_at, row.ended_by, row.ended_why = at.get(row.pk, now), by[:200], why[:500]
    Directive.objects.bulk_update(rows, ["ended_at", "ended_by", "ended_why"], batch_size=500)
    save([note(row, line, at=at.get(row.pk, now), text=why) for row in rows])


def close(row: Directive, *, now: datetime, by: str = SYSTEM, why: str) -> None:
    """Have nothing more be done about a directive; the caller saves."""
    row.is_closed = True
    if row.ended_at is None:
        row.ended_at, row.ended_by, row.ended_why = now, by[:200], why[:500]
