"""The account of the fleet by hour and day, in Postgres.

An hour is computed once its readings are rolled up, again three hours after its end, and once more
when agents keep nothing of it any more: what came late is in it then. Each time all of its rows are
made anew, so that it may be done twice, or be killed in the middle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import structlog
from django.conf import settings
from django.db import connection, transaction
from psycopg import Cursor, sql

from admission import bulk
from admission.baselines import hourly
from admission.baselines.models import GangHour
from admission.core.fleet_account import CAUSES, FleetAccount
from admission.core.program import NOTHING, Work
from admission.core.restricted import Lost
from admission.goodput import fleet, gathering, metrics, queue
from admission.goodput.fleet import Iterations
from admission.goodput.gathering import Gathered, Held
from admission.goodput.models import (
    AccountedHour,
    DayAccount,
    HourAccount,
    HourRestriction,
    HourSteps,
    HourWait,
)
from fleet import locks, snapshot
from telemetry import samples
from telemetry.rollups import progress
from telemetry.rollups.spec import HOUR_S, MAX_GAP_S, MINUTE_S, MINUTES
from telemetry.samples import GPU, JOB
from telemetry.spans import Span

__all__ = ["compute", "due", "prune", "step"]

log = structlog.get_logger(__name__)

_LOCK = 0x474F4F44
#: An hour is computed so long after its end at the earliest, and again then, s: agents keep what
#: they could not send for three days.
_PASSES_S = (MAX_GAP_S + 2 * MINUTE_S, 3 * HOUR_S, 73 * HOUR_S)
#: Of hours that were missed, those that ended so long ago are made up for, s.
_LOOKS_BACK_S = 75 * HOUR_S

#: Hours that may be computed again are kept, whatever the setting says, with all of their day.
_LEAST_KEPT = timedelta(days=5)

#: What is kept of the iterations of an hour, with the fields of its work.
_OF_STEPS = ("moved", "repeated", "missed", *(each.name for each in fields(Work)))

_ADD_UP = """
INSERT INTO admission_goodput_dayaccount (day, site, project, job_class, phase, us)
SELECT %(day)s, site, project, job_class, phase, ARRAY[{sums}]
FROM admission_goodput_houraccount WHERE hour >= %(start)s AND hour < %(end)s
GROUP BY site, project, job_class, phase
"""


def step(now: float) -> bool | None:
    """Compute the hour that is due most; tell whether there was one. None: another does so."""
    with locks.only_one(_LOCK) as held:
        if not held:
            return None
        hour = next(due(now), None)
        if hour is not None:
            compute(hour, now)
        return hour is not None


def due(now: float) -> Iterator[float]:
    """Yield the hours to compute, by their start, Unix s: what was never computed comes first."""
    computed = {
        hour.timestamp(): at.timestamp()
        for hour, at in AccountedHour.objects.values_list("hour", "computed_at")
        if hour.timestamp() > now - _PASSES_S[-1] - 2 * HOUR_S
    }
    last = (_read_until() - _PASSES_S[0]) // HOUR_S * HOUR_S
    again = []
    for hour in range(int(_first(now, last)), int(min(last, now)), HOUR_S):
        passes = [hour + HOUR_S + each for each in _PASSES_S if hour + HOUR_S + each <= now]
        if not passes:
            continue
        if hour not in computed:
            yield float(hour)
        elif computed[hour] < passes[-1]:
            again.append(float(hour))
    yield from again


def _read_until() -> float:
    """Return up to when readings are rolled up, Unix s."""
    with connection.cursor() as django_cursor:
        cursor: Cursor[Any] = django_cursor.cursor
        return min(progress.done(cursor, each.name).get(MINUTE_S, 0.0) for each in (GPU, JOB))


def _first(now: float, last: float) -> float:
    """Return the first hour that there is something to know of, as far as we look back."""
    with connection.cursor() as django_cursor:
        cursor: Cursor[Any] = django_cursor.cursor
        there = samples.existing_partitions(cursor, MINUTES[GPU.name].name)
        if not there:
            return last
        oldest = sql.SQL("SELECT min(ts) FROM {}").format(sql.Identifier(there[0].name))
        cursor.execute(oldest)
        found = cursor.fetchone()
    first = there[0].start if found is None or found[0] is None else found[0]
    # The hour in which the first reading came began before there was anything to read.
    whole = -(-first.timestamp() // HOUR_S) * HOUR_S
    return max(whole, (now - _LOOKS_BACK_S) // HOUR_S * HOUR_S)


def compute(hour: float, now: float) -> None:
    """Write the account of the hour that begins at ``hour``, Unix s, in place of any before."""
    span = Span(hour, hour + HOUR_S)
    gathered = gathering.gather(span, snapshot.current())
    found, iterations = fleet.account(gathered.records)
    works = fleet.works(gathered.records, found, iterations)
    lost = fleet.lost_to_restrictions(gathered.records, found)
    waits = queue.waits(span, found.free)
    levels = hourly.rows(span, gathered, found, iterations)
    at = span.start_at
    with transaction.atomic():
        locks.wait_until_commit(_LOCK, "write")
        for model in (
            AccountedHour, HourAccount, HourRestriction, HourWait, HourSteps, GangHour,
        ):  # fmt: skip
            model._default_manager.filter(hour=at).delete()
        bulk.insert(_rows(at, gathered, found))
        bulk.insert(_restrictions(at, gathered, lost))
        bulk.insert([HourWait(hour=at, **{n: getattr(w, n) for n in w.__slots__}) for w in waits])
        bulk.insert(_steps(at, gathered.attempts, iterations, works))
        bulk.insert(levels)
        AccountedHour.objects.create(
            hour=at, computed_at=datetime.fromtimestamp(now, UTC), gpus=len(gathered.fleet.gpus),
            has_restrictions=True,
        )  # fmt: skip
        add_up(at)
    if not AccountedHour.objects.filter(hour__gt=at).exists():
        metrics.show(at, found, sum(works, NOTHING))
    log.info("goodput_hour", hour=at.isoformat(), rows=int(found.scope.size))


def _rows(at: datetime, gathered: Gathered, found: FleetAccount) -> list[HourAccount]:
    racks, sites = gathered.fleet.racks, gathered.fleet.sites
    return [
        HourAccount(
            hour=at, site=str(sites.names[racks.site[scope]]), rack=str(racks.names[scope]),
            us=us, **_whose(None if gang < 0 else gathered.attempts[gang]),
        )
        for scope, gang, us in zip(
            found.scope.tolist(), found.gang.tolist(), found.us.tolist(), strict=True
        )
    ]  # fmt: skip


def _whose(held: Held | None) -> dict[str, Any]:
    if held is None:
        return {"attempt_id": None}
    return {
        "attempt_id": held.pk, "project": held.project, "job_class": held.job_class,
        "phase": held.phase,
    }  # fmt: skip


def _restrictions(at: datetime, gathered: Gathered, lost: Lost | None) -> list[HourRestriction]:
    """Return what each restriction took, by site and project."""
    restricted = gathered.records.restricted
    if lost is None or restricted is None:
        return []
    racks, sites = gathered.fleet.racks, gathered.fleet.sites
    sums: dict[tuple[int, str, str], list[int]] = defaultdict(lambda: [0, 0])
    columns = (lost.number, lost.scope, lost.gang, lost.us, lost.is_shared)
    for number, scope, gang, us, is_shared in zip(*(c.tolist() for c in columns), strict=True):
        project = "" if gang < 0 else gathered.attempts[gang].project
        row = sums[restricted.ids[number], str(sites.names[racks.site[scope]]), project]
        row[0] += us
        row[1] += us * is_shared
    return [
        HourRestriction(
            hour=at, restriction_id=pk, site=site, project=project, us=us, shared_us=shared_us
        )
        for (pk, site, project), (us, shared_us) in sums.items()
    ]


def _steps(
    at: datetime, held: Sequence[Held], found: Iterations, works: Sequence[Work]
) -> list[HourSteps]:
    """Return the iterations and the work of each project and class. None is left out."""
    rows = zip(found.moved, found.repeated, found.missed, map(astuple, works), strict=True)
    values = np.array([(*own, *work) for *own, work in rows]).reshape(-1, len(_OF_STEPS))
    whose, row = np.unique(
        np.array([(each.project, each.job_class) for each in held]).reshape(-1, 2),
        axis=0, return_inverse=True,
    )  # fmt: skip
    total = np.zeros((len(whose), len(_OF_STEPS)))
    np.add.at(total, row, values)
    return [
        HourSteps(
            hour=at, project=project, job_class=job_class, **dict(zip(_OF_STEPS, sums, strict=True))
        )
        for (project, job_class), sums in zip(whose.tolist(), total.tolist(), strict=True)
        if any(sums)
    ]  # fmt: skip


def add_up(at: datetime) -> None:
    """Make the sums of the day of an hour anew."""
    start = at.replace(hour=0)
    DayAccount.objects.filter(day=start.date()).delete()
    given = {"day": start.date(), "start": start, "end": start + timedelta(days=1)}
    # Hours from before there was a cause do not have it.
    places = range(1, len(CAUSES) + 1)
    sums = ", ".join(f"coalesce(sum(us[{place}]), 0)::bigint" for place in places)
    with connection.cursor() as cursor:
        cursor.execute(_ADD_UP.format(sums=sums), given)


def prune(now: datetime) -> None:
    """Forget hours and days that are older than the hours of readings that are kept."""
    hours = now - max(timedelta(days=settings.TELEMETRY_HOUR_HOT_DAYS), _LEAST_KEPT)
    for model in (HourAccount, HourWait, GangHour):
        model._default_manager.filter(hour__lt=hours).delete()
    days = now - max(timedelta(days=settings.TELEMETRY_HOUR_DAYS), _LEAST_KEPT)
    for kept in (AccountedHour, HourRestriction, HourSteps):
        kept._default_manager.filter(hour__lt=days).delete()
    DayAccount.objects.filter(day__lt=days.date()).delete()
