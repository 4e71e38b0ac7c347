"""Reports of the ledger over spans of hours: by project, job, site, rack, node or hour.

Energy is in whole millijoules, as it is kept: rows add up to the total, and the parts of a row to
its energy. Carbon and money are of the hours whose rates are known, and say of which share that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db import connection

from accounts import visibility
from accounts.models import User
from admission.core.energy.rates import MJ_PER_KWH
from admission.energy.models import ClosedHour, SiteHour
from admission.jobs.models import Project
from telemetry.spans import Span

__all__ = [
    "By", "NotForReader", "Report", "Row", "closed_hours", "jobs_by_site", "of_job", "of_projects",
    "report", "total_of",
]  # fmt: skip

_HOUR = timedelta(hours=1)
_MS_PER_H = 3_600_000.0


class By(StrEnum):
    """What rows of a report are about."""

    PROJECT = "project"
    JOB = "job"
    SITE = "site"
    RACK = "rack"
    NODE = "node"
    HOUR = "hour"


class NotForReader(Exception):
    """A report is of more than the reader's own projects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The energy of one thing over a span, mJ, with its carbon and its money.

    ``carbon_mj`` and ``price_mj`` are the energy whose rates are known. ``gpu_ms`` is the time of
    GPUs: for jobs what they held, for places all of it, of which ``covered_ms`` was read.
    """

    name: str
    parts_mj: Mapping[str, int]
    carbon_kg: float
    carbon_mj: int
    money: Mapping[str, float]
    price_mj: int
    gpu_ms: int
    covered_ms: int | None = None
    bridged_mj: int | None = None
    it_mj: int | None = None
    overhead_mj: int | None = None
    metered_mj: int | None = None
    basis: str = ""
    #: of what jobs held, the time of which it is told, and of that the time of which nothing tells
    #: what was drawn
    told_ms: int = 0
    unread_ms: int = 0

    @property
    def unread(self) -> float | None:
        """The share of the time that jobs held GPUs of which nothing tells what was drawn."""
        return self.unread_ms / self.told_ms if self.told_ms else None

    @property
    def mj(self) -> int:
        return sum(self.parts_mj.values())

    @property
    def kwh(self) -> float:
        return self.mj / MJ_PER_KWH

    @property
    def cost(self) -> float:
        return sum(self.money.values())

    @property
    def gpu_h(self) -> float:
        return self.gpu_ms / _MS_PER_H

    @property
    def pue(self) -> float | None:
        """Of the hours in which it is known; None: of none."""
        return (self.it_mj + (self.overhead_mj or 0)) / self.it_mj if self.it_mj else None


@dataclass(frozen=True, kw_only=True)
class Report:
    """Rows over whole hours from ``start`` up to ``end``, the most energy first, hours in order.

    ``hours`` of these are closed; ``newest`` is the last that is, whenever that was.
    """

    by: By
    start: datetime
    end: datetime
    hours: int
    newest: datetime | None
    is_own: bool
    rows: Sequence[Row] = field(default_factory=tuple)


def report(by: By, span: Span, user: User) -> Report:
    """Return the report of all hours that a span touches. Three queries at most.

    Who does not see all jobs has the own projects alone. Raises :class:`NotForReader` where racks
    or nodes are asked for by such a reader.
    """
    start = span.start_at.replace(minute=0, second=0, microsecond=0)
    end = (span.end_at - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0)
    end += _HOUR
    own: list[str] | None = None
    if not visibility.sees_all(user):
        if by in (By.RACK, By.NODE):
            raise NotForReader(f"by {by}: racks and nodes are shared with other projects")
        own = list(Project.objects.visible_to(user).values_list("name", flat=True))
    rows = _of_jobs(by, start, end, own) if _is_of_jobs(by, own) else _of_places(by, start, end)
    closed = closed_hours(start, end)
    newest = ClosedHour.objects.order_by("-hour").values_list("hour", flat=True).first()
    return Report(
        by=by, start=start, end=end, hours=closed, newest=newest, is_own=own is not None,
        rows=sorted(rows, key=(lambda row: row.name) if by is By.HOUR else _most_first),
    )  # fmt: skip


def of_projects(start: datetime, end: datetime, names: Sequence[str]) -> dict[str, Row]:
    """Return what projects came to in the closed hours of a span, by name. One query."""
    return {row.name: row for row in _of_jobs(By.PROJECT, start, end, list(names))}


def jobs_by_site(start: datetime, end: datetime, names: Sequence[str] | None) -> dict[str, Row]:
    """Return what jobs came to by site in the closed hours of a span. One query.

    ``names``: of these projects alone; None: of all.
    """
    own = None if names is None else list(names)
    return {row.name: row for row in _of_jobs(By.SITE, start, end, own)}


def closed_hours(start: datetime, end: datetime) -> int:
    """Return how many hours from ``start`` up to ``end`` are closed. One query."""
    return ClosedHour.objects.filter(hour__gte=start, hour__lt=end).count()


def of_job(name: str) -> Row | None:
    """Return what a job came to in all hours that are closed; None: in none. One query."""
    statement = _jobs(By.JOB, "it.job = %s")
    return next(map(_job_row, _rows(statement, [name])), None)


def _most_first(row: Row) -> Any:
    return -row.mj, row.name


def _is_of_jobs(by: By, own: list[str] | None) -> bool:
    return by in (By.PROJECT, By.JOB) or own is not None


def total_of(rows: Iterable[Row]) -> Row:
    """Return the sum of rows of one report."""
    found = list(rows)

    def summed(name: str) -> int | None:
        known = [value for row in found if (value := getattr(row, name)) is not None]
        return sum(known) if known else None

    def merged(name: str) -> dict[str, Any]:
        keys = dict.fromkeys(key for row in found for key in getattr(row, name))
        return {key: sum(getattr(row, name).get(key, 0) for row in found) for key in keys}

    return Row(
        name="", parts_mj=merged("parts_mj"), money=merged("money"),
        carbon_kg=sum(row.carbon_kg for row in found), carbon_mj=summed("carbon_mj") or 0,
        price_mj=summed("price_mj") or 0, gpu_ms=summed("gpu_ms") or 0,
        told_ms=summed("told_ms") or 0, unread_ms=summed("unread_ms") or 0,
        basis=_one_basis({row.basis for row in found if row.it_mj} or {row.basis for row in found}),
        **{
            name: summed(name)
            for name in ("covered_ms", "bridged_mj", "it_mj", "overhead_mj", "metered_mj")
        },
    )  # fmt: skip


# --- Statements ----------------------------------------------------------------------------------

#: Rates stand with the hour of the site. Sums of bigint are exact in Postgres. A demand charge is
#: paid by what each drew in the peak, and by the hour that the peak is in where that is not known.
_RATED = """
coalesce(sum({mj}::float8 * site.carbon_g_per_kwh), 0) / 3.6e12,
coalesce(sum({mj}) FILTER (WHERE site.carbon_g_per_kwh IS NOT NULL), 0),
coalesce(sum({mj}::float8 * site.price_per_kwh), 0) / 3.6e9,
coalesce(sum({mj}) FILTER (WHERE site.price_per_kwh IS NOT NULL), 0)
"""

_SITE_MJ = "(site.jobs_mj + site.idle_mj + site.unmanaged_mj + site.residual_mj)"

_JOBS = """
SELECT {key}, sum(it.gpu_mj), sum(it.host_mj), sum(it.shared_mj), sum(it.overhead_mj),
       sum(it.gpu_ms), {rated},
       coalesce(sum(site.demand * CASE
           WHEN site.peak_mj > 0 THEN it.peak_mj::float8 / site.peak_mj
           ELSE {mj}::float8 / nullif({site_mj}, 0)
       END), 0),
       coalesce(sum(it.gpu_ms::float8 * site.gpu_hour), 0) / 3.6e6,
       coalesce(sum(it.gpu_ms) FILTER (WHERE it.unread_ms IS NOT NULL), 0),
       coalesce(sum(it.unread_ms), 0)
FROM {table} AS it
LEFT JOIN admission_energy_sitehour AS site ON site.hour = it.hour AND site.site = it.site
WHERE {which}
GROUP BY 1
"""
_IN_SPAN = "it.hour >= %s AND it.hour < %s AND (%s::text[] IS NULL OR it.project = ANY(%s))"

_SITES = """
SELECT {key}, sum(site.jobs_mj), sum(site.idle_mj), sum(site.unmanaged_mj), sum(site.residual_mj),
       sum(site.gpu_ms), {rated}, sum(site.demand),
       sum(site.covered_ms), sum(site.bridged_mj),
       sum(site.it_mj) FILTER (WHERE site.basis = ANY(%s)),
       sum(site.overhead_mj) FILTER (WHERE site.basis = ANY(%s)),
       coalesce(sum({mj}) FILTER (WHERE site.it_metered OR site.facility_metered), 0),
       array_agg(DISTINCT site.basis)
FROM admission_energy_sitehour AS site WHERE site.hour >= %s AND site.hour < %s GROUP BY 1
"""

_PLACES = """
SELECT it.place, sum(it.jobs_mj), sum(it.idle_mj), sum(it.unmanaged_mj), sum(it.shared_mj),
       sum(it.residual_mj), sum(it.gpu_ms), {rated},
       sum(it.covered_ms), sum(it.bridged_mj), coalesce(sum({mj}) FILTER (WHERE it.metered), 0)
FROM admission_energy_placehour AS it
LEFT JOIN admission_energy_sitehour AS site ON site.hour = it.hour AND site.site = it.site
WHERE it.hour >= %s AND it.hour < %s AND it.kind = %s GROUP BY 1
"""

_OF_JOB = "(it.gpu_mj + it.host_mj + it.shared_mj + it.overhead_mj)"
_OF_PLACE = "(it.jobs_mj + it.idle_mj + it.unmanaged_mj + it.shared_mj + it.residual_mj)"
_PUE_KNOWN = [
    int(each)
    for each in (
        SiteHour.OverheadBasis.MEASURED, SiteHour.OverheadBasis.COOLING,
        SiteHour.OverheadBasis.STATED,
    )
]  # fmt: skip


def _of_jobs(by: By, start: datetime, end: datetime, own: list[str] | None) -> list[Row]:
    return [_job_row(row) for row in _rows(_jobs(by, _IN_SPAN), [start, end, own, own])]


def _jobs(by: By, which: str) -> str:
    """Return the statement of projects or jobs, of those rows that ``which`` chooses."""
    table = "admission_energy_jobhour" if by is By.JOB else "admission_energy_projecthour"
    return _JOBS.format(
        key=f"it.{by}", table=table, mj=_OF_JOB, site_mj=_SITE_MJ, which=which,
        rated=_RATED.format(mj=_OF_JOB),
    )  # fmt: skip


def _job_row(row: tuple[Any, ...]) -> Row:
    (
        key, gpu, host, shared, overhead, gpu_ms, carbon, carbon_mj, money, price_mj, demand,
        gpu_hours, told_ms, unread_ms,
    ) = row  # fmt: skip
    return Row(
        name=_name(key),
        parts_mj=_whole(gpu=gpu, host=host, shared=shared, overhead=overhead),
        gpu_ms=int(gpu_ms),
        carbon_kg=carbon,
        carbon_mj=int(carbon_mj),
        price_mj=int(price_mj),
        money={"energy": money, "demand": demand, "gpu_hours": gpu_hours},
        told_ms=int(told_ms),
        unread_ms=int(unread_ms),
    )


def _of_places(by: By, start: datetime, end: datetime) -> list[Row]:
    if by in (By.RACK, By.NODE):
        return _of_racks_or_nodes(by, start, end)
    statement = _SITES.format(key=f"site.{by}", mj=_SITE_MJ, rated=_RATED.format(mj=_SITE_MJ))
    return [
        Row(
            name=_name(key),
            parts_mj=_whole(jobs=jobs, idle=idle, unmanaged=unmanaged, residual=residual),
            gpu_ms=int(gpu_ms), carbon_kg=carbon, carbon_mj=int(carbon_mj), price_mj=int(price_mj),
            money={"energy": money, "demand": demand}, covered_ms=int(covered_ms),
            bridged_mj=int(bridged), it_mj=_or_none(it), overhead_mj=_or_none(overhead),
            metered_mj=int(metered),
            basis=_basis(bases),
        )
        for (
            key, jobs, idle, unmanaged, residual, gpu_ms, carbon, carbon_mj, money, price_mj,
            demand, covered_ms, bridged, it, overhead, metered, bases,
        ) in _rows(statement, [_PUE_KNOWN, _PUE_KNOWN, start, end])
    ]  # fmt: skip


def _of_racks_or_nodes(by: By, start: datetime, end: datetime) -> list[Row]:
    statement = _PLACES.format(mj=_OF_PLACE, rated=_RATED.format(mj=_OF_PLACE))
    return [
        Row(
            name=place,
            parts_mj=_whole(
                jobs=jobs, idle=idle, unmanaged=unmanaged, shared=shared, residual=residual
            ),
            gpu_ms=int(gpu_ms), carbon_kg=carbon, carbon_mj=int(carbon_mj), price_mj=int(price_mj),
            money={"energy": money}, covered_ms=int(covered_ms), bridged_mj=int(bridged),
            metered_mj=int(metered),
        )
        for (
            place, jobs, idle, unmanaged, shared, residual, gpu_ms, carbon, carbon_mj, money,
            price_mj, covered_ms, bridged, metered,
        ) in _rows(statement, [start, end, by.value])
    ]  # fmt: skip


def _rows(statement: str, given: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        return list(cursor.fetchall())


def _name(key: Any) -> str:
    return key.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ") if isinstance(key, datetime) else key


def _whole(**parts: Any) -> dict[str, int]:
    return {name: int(value) for name, value in parts.items()}


def _or_none(value: Any) -> int | None:
    return None if value is None else int(value)


def _basis(codes: Sequence[int]) -> str:
    """Return what the PUE of some hours goes by: that of those in which it is known, if any are."""
    known = [code for code in codes if code in _PUE_KNOWN]
    return _one_basis({str(SiteHour.OverheadBasis(code).label) for code in known or codes})


def _one_basis(found: set[str]) -> str:
    """Return the basis of all, or that there are several."""
    return found.pop() if len(found) == 1 else ("several" if found else "")
