"""Restrictions in Postgres: held, renewed, released, decided on.

All writes take one lock before they look at anything, so of two that come at once the second sees
what the first has done. Whoever writes restrictions in a transaction of their own has all other
writers wait until it ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction

from fleet import locks, snapshot
from fleet.tables import FleetArrays
from policies.restrictions import metrics
from policies.restrictions.breakers import BlastRadius
from policies.restrictions.kinds import BadRestriction, RestrictionKind, Wanted, check
from policies.restrictions.models import (
    FleetBreaker,
    Restriction,
    RestrictionEvent,
    read_in_force,
)
from policies.restrictions.strictest import InForce

__all__ = [
    "FIELDS",
    "SYSTEM",
    "cease",
    "come_into_force",
    "expire",
    "hold",
    "in_force",
    "note",
    "release",
    "writing",
]

log = structlog.get_logger(__name__)

SYSTEM = "system"
_LOCK = 0x52455354
_Kind = RestrictionEvent.Kind
_State = Restriction.State
#: What a change of a row may touch.
FIELDS = [
    "value", "held_value", "refused_value", "reason", "evidence", "state", "version", "expires_at",
    "cycle", "effect_at", "held_why", "decided_by", "ended_at", "ended_by", "ended_why",
]  # fmt: skip

# The longer lease stays: two that renew at once may come in either order.
_RENEW = """
UPDATE policies_restrictions_restriction AS held
SET expires_at = greatest(held.expires_at, new.expires_at)
FROM unnest(%s::bigint[], %s::timestamptz[]) AS new (id, expires_at)
WHERE held.id = new.id AND held.expires_at < new.expires_at
"""


@contextmanager
def writing() -> Iterator[None]:
    """Have the only right to write restrictions, in a transaction."""
    with transaction.atomic():
        locks.wait_until_commit(_LOCK)
        yield


def in_force(now: datetime) -> InForce:
    """Return what is in force at ``now``: by the clock, not by whether a sweep has passed.

    One query.
    """
    return read_in_force(now)


def note(
    row: Restriction, kind: str, *, at: datetime, by: str, text: str, **data: Any
) -> RestrictionEvent:
    """Return a line of the ledger, to be saved in the transaction of what it tells."""
    return RestrictionEvent(
        restriction=row, at=at, kind=kind, by=by, text=text[:1000], data=data, cycle=row.cycle
    )


# --- Holding --------------------------------------------------------------------------------------


def hold(wanted: Iterable[Wanted], *, now: datetime) -> list[Restriction]:
    """Have each of ``wanted`` be in force, or wait for a person; return their rows, in order.

    Doing so again renews the lease, and takes over another value. What cannot be (an unknown scope,
    a value out of bounds) is left out and told to the log: the others are not to suffer by it. Use
    ``kinds.check`` first to be told. Of two with one key the last counts.
    """
    fleet = snapshot.current()
    chosen = {each.key: each for each in wanted if _is_good(each, fleet, now)}
    if not chosen:
        return []
    with writing():
        expire(now)
        work = _Holding(fleet, now)
        owners = {each.owner for each in chosen.values()}
        known = {row.key: row for row in Restriction.objects.live().of_owners(owners)}
        rows = [_held(work, each, known.get(key)) for key, each in chosen.items()]
        work.save()
    return rows


def _is_good(wanted: Wanted, fleet: FleetArrays, now: datetime) -> bool:
    try:
        check(wanted, fleet, now=now)
    except BadRestriction as exc:
        log.error(
            "restriction_cannot_be", owner=wanted.owner, kind=wanted.kind.value,
            scope=str(wanted.scope), field=exc.field, why=str(exc),
        )  # fmt: skip
        return False
    return True


@dataclass
class _Holding:
    """What one call of :func:`hold` knows and gathers."""

    fleet: FleetArrays
    now: datetime
    new: list[Restriction] = field(default_factory=list)
    changed: list[Restriction] = field(default_factory=list)
    renewed: list[tuple[int, datetime]] = field(default_factory=list)
    events: list[RestrictionEvent] = field(default_factory=list)
    _radius: BlastRadius | None = None
    _breaker: FleetBreaker | None = None

    def why_not(self, wanted: Wanted) -> str:
        """Say why ``wanted`` has to wait for a person; "": it need not."""
        if self._breaker is None:
            self._breaker = FleetBreaker.current()
        if self._breaker.is_open:
            return f"the fleet breaker is open: {self._breaker.by} opened it"
        if wanted.owner.startswith("user:"):
            return ""
        most = wanted.most_of_site
        return self._blast_radius().admit(
            (wanted.kind, wanted.scope, wanted.value),
            most=settings.POLICY_MAX_SITE_SHARE if most is None else most,
        )

    def _blast_radius(self) -> BlastRadius:
        if self._radius is None:
            present = Restriction.objects.uncounted_by_people(self.now).only(
                "kind", "scope_kind", "scope_name", "value"
            )
            self._radius = BlastRadius(
                self.fleet, ((RestrictionKind(r.kind), r.scope, r.value) for r in present)
            )
        return self._radius

    def tell(self, row: Restriction, kind: str, text: str, **data: Any) -> None:
        self.events.append(note(row, kind, at=self.now, by=row.owner, text=text, **data))

    def save(self) -> None:
        Restriction.objects.bulk_create(self.new)
        Restriction.objects.bulk_update(self.changed, FIELDS, batch_size=500)
        if self.renewed:
            ids, ends = zip(*self.renewed, strict=True)
            with connection.cursor() as cursor:
                cursor.execute(_RENEW, [list(ids), list(ends)])
        _save(self.events)


def _save(events: Sequence[RestrictionEvent]) -> None:
    RestrictionEvent.objects.bulk_create(events, ignore_conflicts=True)
    metrics.count(events)


def _held(work: _Holding, wanted: Wanted, row: Restriction | None) -> Restriction:
    """Return the row of ``wanted`` as it is to be, and have ``work`` write it."""
    if row is None:
        return _issue(work, wanted)
    before = row.version
    if row.state == _State.HELD:
        row.version += row.value != wanted.value
        row.value = wanted.value
        _let_in(work, wanted, row)
    elif row.state == _State.IN_FORCE and wanted.value != row.value:
        _change(work, wanted, row)
    elif row.state == _State.IN_FORCE and row.held_value is not None:
        row.held_value, row.held_why = None, ""
        row.version += 1
    longer = max(row.expires_at, wanted.expires_at)
    if row.version != before:
        row.expires_at = longer
        work.changed.append(row)
    elif longer > row.expires_at:
        row.expires_at = longer
        work.renewed.append((row.pk, longer))
    return row


def _issue(work: _Holding, wanted: Wanted) -> Restriction:
    row = Restriction(
        kind=wanted.kind.value,
        scope_kind=wanted.scope.kind.value,
        scope_name=wanted.scope.name,
        value=wanted.value,
        reason=wanted.reason,
        owner=wanted.owner,
        cause=wanted.cause,
        evidence=_as_json(wanted.evidence),
        state=_State.HELD,
        issued_at=work.now,
        expires_at=wanted.expires_at,
    )
    work.new.append(row)
    work.tell(row, _Kind.ISSUED, wanted.reason, value=wanted.value)
    _let_in(work, wanted, row)
    row.version = 1
    return row


def _as_json(value: Any) -> Any:
    """Return ``value`` as Postgres' JSON can have it: what it lacks is null, or in words.

    Numbers of headroom may be unknown (NaN) or never (infinite), and no evidence is to keep an
    effect from being.
    """
    if isinstance(value, Mapping):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(inner) for inner in value]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):  # NumPy's float64 is one, too
        return float(value) if math.isfinite(value) else None
    return str(value).replace("\x00", "")


def _let_in(work: _Holding, wanted: Wanted, row: Restriction) -> None:
    """Bring a held restriction into force, unless it has to go on waiting."""
    why_not = work.why_not(wanted)
    if not why_not:
        come_into_force(row, work.now)
        work.tell(row, _Kind.IN_FORCE, "", value=row.value)
    elif _breaker_of(why_not) != _breaker_of(row.held_why):
        row.held_why = why_not
        row.version += 1
        work.tell(row, _Kind.HELD, why_not, value=row.value)


def _breaker_of(why_not: str) -> str:
    """Tell which breaker speaks. Its figures change with each round, and are no news."""
    return why_not.partition(" ")[0]


def come_into_force(row: Restriction, now: datetime) -> None:
    """Have a restriction take effect with its present value; the caller saves."""
    row.state = _State.IN_FORCE
    row.held_why = row.ended_by = row.ended_why = ""
    row.ended_at = None
    row.version += 1
    row.cycle += 1
    row.effect_at = now


def _change(work: _Holding, wanted: Wanted, row: Restriction) -> None:
    """Take over another value: a looser one at once, a stricter one if it may be."""
    wanted_value, value = _number(wanted.value), _number(row.value)
    if wanted_value < value:
        if wanted_value <= _number(row.refused_value):
            return
        why_not = work.why_not(wanted)
        if why_not:
            _wait_with(work, row, wanted_value, why_not)
            return
        row.decided_by = ""  # who approved the old value did not approve this one
    was, row.value = row.value, wanted.value
    row.held_value, row.reason, row.evidence = None, wanted.reason, _as_json(wanted.evidence)
    come_into_force(row, work.now)
    work.tell(row, _Kind.CHANGED, wanted.reason, value=row.value, was=was)


def _number(value: float | None) -> float:
    return -math.inf if value is None else value


def _wait_with(work: _Holding, row: Restriction, value: float, why_not: str) -> None:
    if row.held_value != value:
        row.held_value, row.held_why = value, why_not
        row.version += 1
        work.tell(row, _Kind.HELD, why_not, value=value, was=row.value)


# --- Ending ---------------------------------------------------------------------------------------


def release(owner: str, *, now: datetime, by: str, why: str, cause: str | None = None) -> int:
    """End what ``owner`` wanted, or that of one ``cause``; return how many there were."""
    with writing():
        expire(now)
        rows = Restriction.objects.live().filter(owner=owner)
        if cause is not None:
            rows = rows.filter(cause=cause)
        ended = list(rows)
        for row in ended:
            cease(row, _State.RELEASED, at=now, by=by, why=why)
        Restriction.objects.bulk_update(ended, FIELDS, batch_size=500)
        _save([note(row, _Kind.RELEASED, at=now, by=by, text=why) for row in ended])
    return len(ended)


def expire(now: datetime) -> int:
    """Mark what nobody has renewed; return how much that was. It had no effect any more anyway."""
    with writing():
        ended = list(Restriction.objects.live().filter(expires_at__lte=now))
        for row in ended:
            cease(row, _State.EXPIRED, at=row.expires_at, by=SYSTEM, why="its lease ran out")
        Restriction.objects.bulk_update(ended, FIELDS, batch_size=500)
        _save(
            [
                note(row, _Kind.EXPIRED, at=row.expires_at, by=SYSTEM, text="its lease ran out")
                for row in ended
            ]
        )
    return len(ended)


def cease(row: Restriction, state: str, *, at: datetime, by: str, why: str) -> None:
    """Have a restriction no longer have an effect; the caller saves."""
    was_in_force = row.state == _State.IN_FORCE
    row.state = state
    row.version += 1
    row.held_value, row.held_why = None, ""
    # What a person lifted earlier has ended then, by that person.
    if was_in_force or row.ended_at is None:
        row.ended_at, row.ended_by, row.ended_why = at, by[:200], why[:500]
