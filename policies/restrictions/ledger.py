"""Follows restrictions in force from issue to verdict, and writes down each step once.

Everything is a function of what is stored: reports of agents, and readings at times that depend on
when a value came into force. So it does not matter when, how often or on how many workers
:func:`follow` runs: a step that was missed is written later, and is the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.db import connection
from django.db.models import Exists, OuterRef, Q

from fleet import snapshot
from fleet.snapshot import FleetArrays
from policies.restrictions import metrics
from policies.restrictions.effects import (
    Applied,
    Beside,
    Effect,
    Means,
    Readings,
    effect_of,
    outcome,
    sentence,
)
from policies.restrictions.kinds import (
    LIMITS,
    ON_HOSTS,
    ON_WHAT_RUNS,
    RestrictionKind,
    gpus_in,
)
from policies.restrictions.models import Restriction, RestrictionEvent
from policies.restrictions.store import SYSTEM, note
from policies.scopes import ScopeKind, UnknownScope

__all__ = ["follow"]

#: Agents have so long to set a limit and to say so.
APPLY_WITHIN = timedelta(seconds=60)
#: When the effect is looked at for the first time, and for the verdict.
FIRST_LOOK = timedelta(seconds=60)
LAST_LOOK = timedelta(seconds=300)
#: Readings are stored by then.
SETTLED = timedelta(seconds=15)
#: What is compared: means over this long before, and up to the look. Short before: what calls for a
#: restriction is often a rise that has just ended, and means over it would hide what was gained.
BEFORE = timedelta(seconds=15)
AFTER = timedelta(seconds=30)
#: Of a value that was in force for less than this no effect is told.
LEAST = timedelta(seconds=20)
#: Nothing older is taken up.
MOST_BACK = timedelta(hours=1)
#: Of larger scopes every second, third, … GPU is read.
MOST_READ = 5000
#: Restrictions that are taken up at once, and how long all of it may take, s.
AT_ONCE = 50
BUDGET_S = 3.0
#: Scopes that have no GPUs.
_NO_PLACE = (ScopeKind.LINK, ScopeKind.STORAGE, ScopeKind.CLASS, ScopeKind.JOB)

_Kind = RestrictionEvent.Kind

# What was applied and ended since had been applied. Clocks of agents differ from ours by a little.
_REPORTS = """
SELECT asked.id, report.state IN ('applied', 'expired', 'restored') AS held, report.state,
       count(*), min(report.at),
       percentile_disc(0.95) WITHIN GROUP (ORDER BY report.at) FILTER (WHERE state = 'applied'),
       min(report.error) FILTER (WHERE report.error <> '')
FROM unnest(%s::bigint[], %s::text[], %s::float8[], %s::timestamptz[])
    AS asked (id, "limit", value, since)
JOIN telemetry_limitreport AS report
    ON report."limit" = asked."limit" AND abs(report.asked - asked.value) < 0.5
    AND report.received_at >= asked.since
GROUP BY asked.id, report.state
"""

# Of hosts that share a link by class, and of keepers of checkpoints.
_HOST_REPORTS = """
SELECT asked.id, report.state IN ('applied', 'expired', 'restored') AS held, report.state,
       count(*), min(report.at),
       percentile_disc(0.95) WITHIN GROUP (ORDER BY report.at) FILTER (WHERE state = 'applied'),
       min(report.error) FILTER (WHERE report.error <> '')
FROM unnest(%s::bigint[], %s::text[], %s::timestamptz[]) AS asked (id, "limit", since)
JOIN telemetry_limitreport AS report
    ON report."limit" IN (asked."limit", asked."limit" || '-ships')
    AND report.received_at >= asked.since
GROUP BY asked.id, report.state
"""

_READINGS = """
SELECT gpu_id,
       avg(power_w) FILTER (WHERE ts < %(effect)s), avg(power_w) FILTER (WHERE ts >= %(after)s),
       avg(temp_c) FILTER (WHERE ts < %(effect)s), avg(temp_c) FILTER (WHERE ts >= %(after)s),
       avg(sm_mhz) FILTER (WHERE ts < %(effect)s), avg(sm_mhz) FILTER (WHERE ts >= %(after)s)
FROM gpu_sample
WHERE gpu_id = ANY(%(gpus)s) AND ts >= %(before)s AND ts < %(until)s
    AND (ts < %(effect)s OR ts >= %(after)s)
GROUP BY gpu_id
"""


@dataclass(frozen=True)
class _Told:
    """The reports of agents on one restriction's present value."""

    first_at: datetime | None
    applied: Applied


def follow(now: datetime, *, budget_s: float = BUDGET_S) -> int:
    """Write down the steps that are due; return how many these were.

    What is left when time is up comes at the next call.
    """
    deadline = time.monotonic() + budget_s
    rows = list(_unfinished(now))
    count = 0
    for first in range(0, len(rows), AT_ONCE):
        if time.monotonic() > deadline:
            break
        count += _follow(rows[first : first + AT_ONCE], now)
    return count


def _follow(rows: Sequence[Restriction], now: datetime) -> int:
    fleet = snapshot.current()
    told, done = _told(rows, fleet), _done(rows)
    events = [
        event
        for row in rows
        for event in _due(row, told.get(row.pk), done.get(row.pk, {}), fleet, now)
    ]
    RestrictionEvent.objects.bulk_create(events, ignore_conflicts=True)
    metrics.count(events)
    return len(events)


def _unfinished(now: datetime) -> Any:
    verdict = RestrictionEvent.objects.filter(
        restriction=OuterRef("pk"), cycle=OuterRef("cycle"), kind=_Kind.VERDICT
    )
    recent = Restriction.objects.filter(effect_at__gt=now - MOST_BACK, effect_at__lte=now)
    without = Q(scope_kind__in=_NO_PLACE) & ~Q(kind__in=ON_HOSTS)
    return recent.exclude(without).exclude(Exists(verdict)).order_by("id")


def _done(rows: Sequence[Restriction]) -> dict[int, dict[str, RestrictionEvent]]:
    """Return the steps that are written down already, by restriction and kind."""
    cycle = {row.pk: row.cycle for row in rows}
    found: dict[int, dict[str, RestrictionEvent]] = {}
    for event in RestrictionEvent.objects.filter(
        restriction__in=rows, kind__in=RestrictionEvent.ONCE
    ):
        if event.cycle == cycle[event.restriction_id]:
            found.setdefault(event.restriction_id, {})[event.kind] = event
    return found


# --- Which steps are due --------------------------------------------------------------------------


def _due(
    row: Restriction,
    told: _Told | None,
    done: dict[str, RestrictionEvent],
    fleet: FleetArrays,
    now: datetime,
) -> list[RestrictionEvent]:
    began = row.in_force_since
    ended = _ended(row, now)
    events = []
    applied = None if told is None else told.applied
    if told is not None and told.first_at is not None and _Kind.ACKNOWLEDGED not in done:
        events.append(_acknowledged(row, max(told.first_at, began)))
    if _Kind.APPLIED in done:
        # What is told of a limit that has ended is how it ended: then what was written down stays.
        applied = max(Applied(**done[_Kind.APPLIED].data), applied, key=_got)
    elif applied is not None and _is_over(applied, began, ended, now):
        events.append(_applied(row, applied, now))
    for kind, look in ((_Kind.MEASURED, FIRST_LOOK), (_Kind.VERDICT, LAST_LOOK)):
        until = min(began + look, ended or now)
        is_time = until + SETTLED <= now and (ended is not None or until == began + look)
        if kind not in done and is_time and (kind == _Kind.VERDICT or ended is None):
            events.append(_looked(row, kind, applied, fleet, until))
    return events


def _ended(row: Restriction, now: datetime) -> datetime | None:
    if row.state == Restriction.State.IN_FORCE:
        return row.expires_at if row.expires_at <= now else None
    return row.ended_at


def _got(applied: Applied | None) -> int:
    return -1 if applied is None else applied.applied


def _is_over(applied: Applied, began: datetime, ended: datetime | None, now: datetime) -> bool:
    return (
        (applied.is_complete and applied.expected > 0)
        or ended is not None
        or now - began >= APPLY_WITHIN
    )


def _acknowledged(row: Restriction, at: datetime) -> RestrictionEvent:
    after_s = (at - row.in_force_since).total_seconds()
    text = f"the first agent reported after {after_s:.0f} s"
    return note(row, _Kind.ACKNOWLEDGED, at=at, by=SYSTEM, text=text, after_s=after_s)


def _applied(row: Restriction, applied: Applied, now: datetime) -> RestrictionEvent:
    text = sentence(RestrictionKind(row.kind), row.value, applied, None)
    return note(row, _Kind.APPLIED, at=now, by=SYSTEM, text=text, **asdict(applied))


def _looked(
    row: Restriction, kind: str, applied: Applied | None, fleet: FleetArrays, until: datetime
) -> RestrictionEvent:
    effect = _measure(row, fleet, until)
    result = outcome(applied, effect)
    text = sentence(RestrictionKind(row.kind), row.value, applied, effect)
    data: dict[str, Any] = {"effect": effect.as_data()}
    if kind == _Kind.VERDICT:
        data["outcome"] = result.value
        data["applied"] = None if applied is None else asdict(applied)
    return note(row, kind, at=until, by=SYSTEM, text=text, **data)


# --- What is told and read ------------------------------------------------------------------------


def _told(rows: Sequence[Restriction], fleet: FleetArrays) -> dict[int, _Told]:
    """Return the reports of agents on those of ``rows`` that they set. Two queries at most."""
    return _told_of_gpus(rows, fleet) | _told_of_hosts(rows)


def _told_of_hosts(rows: Sequence[Restriction]) -> dict[int, _Told]:
    """Return what hosts and keepers say: all that say anything are expected to hold it."""
    found = [row for row in rows if row.kind in ON_HOSTS]
    if not found:
        return {}
    columns = zip(*((row.pk, row.limit_id, row.effect_at) for row in found), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_HOST_REPORTS, [list(column) for column in columns])
        told = cursor.fetchall()
    lines: dict[int, list[Any]] = {}
    for line in told:
        lines.setdefault(line[0], []).append(line)
    return {
        row.pk: _told_of(row, lines.get(row.pk, []), sum(line[3] for line in lines.get(row.pk, [])))
        for row in found
    }


def _told_of_gpus(rows: Sequence[Restriction], fleet: FleetArrays) -> dict[int, _Told]:
    limits = [row for row in rows if row.kind in LIMITS]
    if not limits:
        return {}
    columns = zip(
        *((row.pk, row.limit_id, row.value, row.effect_at) for row in limits), strict=True
    )
    with connection.cursor() as cursor:
        cursor.execute(_REPORTS, [list(column) for column in columns])
        found = cursor.fetchall()
    lines: dict[int, list[Any]] = {}
    for line in found:
        lines.setdefault(line[0], []).append(line)
    return {
        row.pk: _told_of(row, lines.get(row.pk, []), len(_gpu_ids(row, fleet))) for row in limits
    }


def _told_of(row: Restriction, lines: Sequence[Any], expected: int) -> _Told:
    counts = {"applied": 0, "refused": 0, "failed": 0}
    seconds, error, first_at = None, "", None
    for _, held, state, count, first, nearly_all, said in lines:
        counts["applied" if held else state] += count
        first_at = first if first_at is None else min(first, first_at)
        if nearly_all is not None:
            seconds = max((nearly_all - row.in_force_since).total_seconds(), 0.0)
        if not held:
            error = said or error
    return _Told(first_at, Applied(expected=expected, seconds=seconds, error=error, **counts))


def _gpu_ids(row: Restriction, fleet: FleetArrays) -> Any:
    if row.scope_kind in _NO_PLACE:
        return fleet.gpus.ids[:0]
    try:
        return fleet.gpus.ids[gpus_in(fleet, row.scope)]
    except UnknownScope:
        return fleet.gpus.ids[:0]


def _measure(row: Restriction, fleet: FleetArrays, until: datetime) -> Effect:
    began = row.in_force_since
    ids = _gpu_ids(row, fleet)
    after_s = (until - began).total_seconds()
    if until - began < LEAST or not len(ids):
        return Effect(len(ids), 0, after_s)
    chosen = ids[:: math.ceil(len(ids) / MOST_READ)].tolist()
    read, readings = _readings(chosen, began, until, len(ids) / len(chosen))
    return effect_of(
        readings,
        RestrictionKind(row.kind),
        row.value,
        gpus=len(ids),
        after_s=after_s,
        number=row.pk,
        beside=_beside(row, fleet, read, until),
    )


def _beside(row: Restriction, fleet: FleetArrays, read: Any, until: datetime) -> list[Beside]:
    """Return the others that have an effect on GPUs of ``read`` in the span of ``row``. One query.

    Those that came into force within it, and were in force at its end.
    """
    found = Restriction.objects.filter(
        kind__in=ON_WHAT_RUNS, effect_at__gt=row.in_force_since - BEFORE, effect_at__lt=until
    ).exclude(pk=row.pk)
    beside = []
    for each in found.order_by("pk"):
        ended = _ended(each, until)
        gpus = np.isin(read, _gpu_ids(each, fleet))
        if (ended is None or ended >= until) and gpus.any():
            beside.append(Beside(each.pk, RestrictionKind(each.kind), each.value, gpus))
    return beside


def _readings(
    ids: list[int], began: datetime, until: datetime, weight: float
) -> tuple[Any, Readings]:
    """Read the means of GPUs before and after, with the ids of those read. One query."""
    # From the first half of a short span nothing is taken: the effect was still to come.
    after = max(until - AFTER, began + (until - began) / 2)
    with connection.cursor() as cursor:
        cursor.execute(
            _READINGS,
            {"gpus": ids, "before": began - BEFORE, "effect": began, "after": after,
             "until": until},
        )  # fmt: skip
        found = cursor.fetchall()
    columns = [np.array(column, dtype=np.float64) for column in zip(*found, strict=True)]
    columns = columns or [np.zeros(0) for _ in range(7)]
    read, power, power_after, temp, temp_after, clock, clock_after = columns
    after_means = Means(power_after, temp_after, clock_after)
    return read, Readings(Means(power, temp, clock), after_means, weight)
