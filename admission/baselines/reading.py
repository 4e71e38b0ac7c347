"""Baselines over a span of hours, and where a job is beside what is normal of its like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from psycopg import sql

from admission.baselines.models import GangHour
from admission.core.baselines import NORMAL, Baseline, Metric, Outside, Spread, outsides
from admission.goodput.summing import Asked, By
from admission.jobs.models import Attempt, Job
from telemetry.rollups.spec import HOUR_S

__all__ = ["BeyondNormal", "of_job", "over"]

#: What is normal of a job's like is that of so many days before it.
_DAYS = 30
#: An hour of a job that is older says nothing of how it is now, s.
_LATEST_S = 3 * HOUR_S

# A row for each cause that held a gang back, and one for what was normal.
_SPREADS = """
SELECT project, phase, site, {rack}, cause, {spreads}
FROM admission_baselines_ganghour
CROSS JOIN LATERAL unnest(CASE WHEN causes = '{{}}' THEN ARRAY[''] ELSE causes END) AS told (cause)
WHERE {where}
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
"""


def over(asked: Asked) -> list[Baseline]:
    """Return the baselines of the hours that are asked for, by project, phase and place. One query.

    Places are racks where that is asked for, else sites. Names of projects are those that the
    reader may know.
    """
    given: list[Any] = [_moment(asked.start), _moment(asked.end)]
    conditions: list[sql.Composable] = [sql.SQL("hour >= %s AND hour < %s")]
    if asked.projects is not None:
        conditions.append(sql.SQL("project = ANY(%s)"))
        given.append(list(asked.projects))
    for name, value in asked.only.items():
        conditions.append(sql.SQL("{} = %s").format(sql.Identifier(name)))
        given.append(value)
    spreads = [
        sql.SQL(
            "count({0}), percentile_cont(ARRAY[0.1, 0.5, 0.9]) WITHIN GROUP (ORDER BY {0})"
        ).format(sql.Identifier(metric.value))
        for metric in Metric
    ]
    statement = sql.SQL(_SPREADS).format(
        rack=sql.SQL("rack" if asked.by is By.RACK else "''"),
        spreads=sql.SQL(", ").join(spreads),
        where=sql.SQL(" AND ").join(conditions),
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        return [_baseline(*row) for row in cursor.fetchall()]


def _baseline(project: str, phase: str, site: str, rack: str, cause: str, *told: Any) -> Baseline:
    spreads = {
        metric: Spread(hours, *values)
        for metric, hours, values in zip(Metric, told[::2], told[1::2], strict=True)
        if hours
    }
    return Baseline(project, phase, site, rack, cause, spreads)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


# --- A job ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeyondNormal:
    """Where a phase of a job was outside of what is normal at a place in an hour, and under what.

    ``causes``: what held it back in that hour; empty: nothing that is known.
    """

    phase: str
    site: str
    rack: str
    hour: datetime
    causes: Sequence[str]
    outside: Outside


def of_job(job: Job, now: float) -> list[BeyondNormal]:
    """Return where a job that runs is outside of its normal, in its latest hour. Up to 4 queries.

    Normal is what its project's hours of the same phase at the same site were like in the 30 days
    before, its own among them, where nothing held them back. Of several racks the one that is
    furthest from the usual value is told.
    """
    rows = _latest(job, now)
    normals: dict[tuple[str, str], list[Baseline]] = {}
    worst: dict[tuple[str, Metric], BeyondNormal] = {}
    for row in rows:
        key = row.phase, row.site
        if key not in normals:
            normals[key] = _normals(row)
        for each in _beyond(row, normals[key]):
            place = row.phase, each.outside.metric
            if place not in worst or _distance(each.outside) > _distance(worst[place].outside):
                worst[place] = each
    return list(worst.values())


def _latest(job: Job, now: float) -> list[GangHour]:
    """Return the rows of the latest hour in which there are any of what a job runs now."""
    running = Attempt.objects.filter(phase__job=job).open().values_list("pk", flat=True)
    rows = GangHour.objects.filter(
        attempt_id__in=list(running), hour__gte=_moment(now - _LATEST_S)
    ).order_by("-hour", "site", "rack")
    found = list(rows)
    return [each for each in found if each.hour == found[0].hour]


def _normals(row: GangHour) -> list[Baseline]:
    end = row.hour.timestamp()
    only = {"project": row.project, "phase": row.phase, "site": row.site}
    asked = Asked(int(end - _DAYS * 24 * HOUR_S), int(end), By.SITE, only)
    return [each for each in over(asked) if each.cause == NORMAL]


def _beyond(row: GangHour, normals: Sequence[Baseline]) -> Iterator[BeyondNormal]:
    values = {metric: getattr(row, metric.value) for metric in Metric}
    for each in outsides(values, normals):
        yield BeyondNormal(row.phase, row.site, row.rack, row.hour, tuple(row.causes), each)


def _distance(found: Outside) -> float:
    """Return how far a value is from the usual one, in widths of what is normal."""
    width = found.normal.p90 - found.normal.p10
    return abs(found.value - found.normal.p50) / width if width > 0.0 else float("inf")
