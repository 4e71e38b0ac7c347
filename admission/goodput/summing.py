"""The account of the fleet over a range of time, added up by what is asked for."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

import numpy as np
from django.db import connection
from django.db.models import Sum
from django.db.models.functions import TruncDay, TruncWeek
from psycopg import sql

from accounts import visibility
from accounts.models import User
from admission.core.account import Ints
from admission.core.energy.rates import Terms, in_force
from admission.core.fleet_account import CAUSES
from admission.core.program import NOTHING, Floats, Work
from admission.energy.rating import terms_by_site
from admission.goodput.models import AccountedHour, HourSteps, HourWait
from admission.jobs.models import Project
from telemetry.rollups.spec import HOUR_S
from telemetry.spans import ParameterError, Span

__all__ = [
    "FILTERS", "Asked", "By", "Found", "Iterations", "Waiting", "add_up", "by_day", "waits_by_day",
]  # fmt: skip

_DAY_S = 24 * HOUR_S
_US_PER_H = 3.6e9
#: By what days do not tell, so many hours may be asked for at once: of the whole fleet, and of one
#: project, rack or site.
_MOST_HOURS, _MOST_HOURS_OF_ONE = 7 * 24, 31 * 24


class By(enum.StrEnum):
    """What sums are kept apart by."""

    PROJECT = "project"
    CLASS = "class"
    PHASE = "phase"
    SITE = "site"
    RACK = "rack"
    HOUR = "hour"
    ATTEMPT = "attempt"
    #: all of it is one sum
    CAUSE = "cause"


_COLUMNS: Mapping[By, tuple[str, ...]] = {
    By.PROJECT: ("project",),
    By.CLASS: ("job_class",),
    By.PHASE: ("job_class", "phase"),
    By.SITE: ("site",),
    By.RACK: ("site", "rack"),
    By.HOUR: ("hour",),
    By.ATTEMPT: ("attempt_id",),
    By.CAUSE: (),
}
#: Columns of what may be asked for alone, by the names of parameters.
FILTERS: Mapping[str, str] = {
    "project": "project", "class": "job_class", "phase": "phase", "site": "site", "rack": "rack",
}  # fmt: skip
#: Only hours have these.
_OF_HOURS = frozenset({"rack", "hour", "attempt_id"})
#: Demand and steps are kept without a place, and without a phase.
_NOT_OF_STEPS = frozenset({"site", "rack", "phase"})


@dataclass(frozen=True)
class Asked:
    """What is asked for: hours from ``start`` up to ``end``, Unix s, of all or of ``only``.

    ``only`` has values by column of :data:`FILTERS`. ``projects``: the reader may know of these
    alone, and of nothing that no project held; None: of all.
    """

    start: int
    end: int
    by: By
    only: Mapping[str, str] = field(default_factory=dict)
    projects: tuple[str, ...] | None = None

    @classmethod
    def of(cls, user: User, span: Span, by: By, only: Mapping[str, str]) -> Asked:
        """Return what ``user`` may see of a span, in whole hours: those that begin in it.

        Raises :class:`ParameterError` where that is too much. One query at most.
        """
        start, end = (int(-(-at // HOUR_S) * HOUR_S) for at in (span.start, span.end))
        projects = None
        if not visibility.sees_all(user):
            projects = tuple(Project.objects.visible_to(user).values_list("name", flat=True))
        asked = cls(start, max(end, start), by, dict(only), projects)
        is_of_one = bool(only) or projects is not None
        most = _MOST_HOURS_OF_ONE if is_of_one else _MOST_HOURS
        if asked.needs_hours and (end - start) // HOUR_S > most:
            raise ParameterError(
                "from", f"by {by} at most {most // 24} days may be asked for: give a later one"
            )
        return asked

    @property
    def needs_hours(self) -> bool:
        return not _OF_HOURS.isdisjoint((*_COLUMNS[self.by], *self.only))

    @property
    def days(self) -> tuple[int, int]:
        """The whole days (UTC) that sums by day tell of, from when up to when, Unix s."""
        first, last = -(-self.start // _DAY_S) * _DAY_S, self.end // _DAY_S * _DAY_S
        return (self.start, self.start) if self.needs_hours or last <= first else (first, last)

    @property
    def is_whole(self) -> bool:
        """Whether time that nobody held is in it."""
        held = {"project", "job_class", "phase"}
        return self.projects is None and held.isdisjoint((*_COLUMNS[self.by], *self.only))


@dataclass(frozen=True, slots=True)
class Waiting:
    """Demand that waited for one reason, µs of GPUs, and what of it stood against free GPUs."""

    reason: str
    demand_us: int
    wanted_us: int


@dataclass(frozen=True, slots=True)
class Iterations:
    """Iterations of a project in one week: its Monday."""

    project: str
    week: date
    moved: float
    repeated: float
    missed: float

    @property
    def index(self) -> float | None:
        """The model iteration index: the share of them that moved a model on; None: there is none.

        Against those that were made again, and those that lost time took.
        """
        total = self.moved + self.repeated + self.missed
        return self.moved / total if total else None


@dataclass(frozen=True)
class Found:
    """Sums of µs of GPUs, rows by key and :data:`CAUSES`, and what stands beside them.

    ``missing`` are hours that are over, of which there is no account.
    """

    asked: Asked
    keys: Sequence[tuple[Any, ...]]
    us: Ints
    waiting: Sequence[Waiting]
    iterations: Sequence[Iterations]
    hours: int
    missing: Sequence[int]
    #: by key, as far as it is known by that: of projects and classes, and of all in one
    works: Mapping[tuple[Any, ...], Work]
    #: what the time comes to at the price of a GPU-hour at its site, rows as in ``us``
    money: Floats
    #: by key, of how many µs that price is known
    priced_us: Floats

    @property
    def work(self) -> Work:
        """The work of all that is asked for."""
        return sum(self.works.values(), NOTHING)

    @property
    def columns(self) -> tuple[str, ...]:
        return _COLUMNS[self.asked.by]


def add_up(asked: Asked, now: float) -> Found:
    """Return the sums that are asked for. Seven queries, and more where prices change meanwhile."""
    sums: dict[tuple[Any, ...], Ints] = defaultdict(lambda: np.zeros(len(CAUSES), dtype=np.int64))
    prices: dict[tuple[Any, ...], Floats] = defaultdict(lambda: np.zeros((2, len(CAUSES))))
    terms = terms_by_site()
    for piece in _pieces(asked, terms):
        for *key, site, us in _sums(asked, piece, (*_COLUMNS[asked.by], "site")):
            took_us = np.array(us, dtype=np.int64)
            sums[tuple(key)] += took_us
            rate = _gpu_hour(terms.get(site, ()), piece)
            if rate is not None:
                prices[tuple(key)] += np.stack([took_us * (rate / _US_PER_H), took_us])
    keys = sorted(sums, key=lambda key: tuple(map(str, key)))
    us = np.array([sums[key] for key in keys], dtype=np.int64).reshape(-1, len(CAUSES))
    priced = np.array([prices[key] for key in keys]).reshape(-1, 2, len(CAUSES))
    hours, missing = _hours(asked, now)
    steps = _steps(asked)
    return Found(
        asked, keys, us, _waiting(asked), _iterations(steps), hours, missing, _works(asked, steps),
        priced[:, 0], priced[:, 1].sum(axis=1),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one table from ``start`` up to ``end``, Unix s: whole hours, or whole days."""

    is_of_days: bool
    start: int
    end: int


def _pieces(asked: Asked, terms: Mapping[str, Sequence[Terms]]) -> Iterator[_Piece]:
    """Yield the hours, days and hours that sums are made of, cut where a tariff begins.

    Of days the one in which it begins is a piece of its own.
    """
    first, last = asked.days
    begins = {int(each.begins_at.timestamp()) for of_site in terms.values() for each in of_site}
    days = {at // _DAY_S * _DAY_S for at in begins}
    days |= {at // _DAY_S * _DAY_S + _DAY_S for at in begins if at % _DAY_S}
    for is_of_days, start, end, cuts in (
        (False, asked.start, first, begins),
        (True, first, last, days),
        (False, last, asked.end, begins),
    ):
        edges = [start, *sorted(at for at in cuts if start < at < end), end]
        yield from (_Piece(is_of_days, *pair) for pair in pairwise(edges) if pair[1] > pair[0])


def _gpu_hour(terms: Sequence[Terms], piece: _Piece) -> float | None:
    """Return the price of a GPU-hour all through a piece; None: it is not known, or changes."""
    start, end = _moment(piece.start), _moment(piece.end)
    if any(start < each.begins_at < end for each in terms):
        return None
    stated = in_force(terms, start)
    return None if stated is None else stated.gpu_hour


def _sums(asked: Asked, piece: _Piece, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the columns ``names`` and sums of rows of a piece. One query."""
    at = "day" if piece.is_of_days else "hour"
    table = f"admission_goodput_{at}account"
    total = sql.SQL(", ").join(
        # Rows from before there was a cause do not have it.
        sql.SQL("coalesce(sum(us[{}]), 0)::bigint").format(sql.Literal(place))
        for place in range(1, len(CAUSES) + 1)
    )
    conditions: list[sql.Composable] = [
        sql.SQL("{at} >= %s AND {at} < %s").format(at=sql.Identifier(at))
    ]
    ends = [_moment(piece.start), _moment(piece.end)]
    values: list[Any] = [each.date() for each in ends] if at == "day" else [*ends]
    for name, value in asked.only.items():
        conditions.append(sql.SQL("{} = %s").format(sql.Identifier(name)))
        values.append(value)
    if asked.projects is not None:
        conditions.append(sql.SQL("project = ANY(%s)"))
        values.append(list(asked.projects))
    elif asked.by is By.ATTEMPT:
        conditions.append(sql.SQL("attempt_id IS NOT NULL"))
    statement = sql.SQL(
        "SELECT {keys}, ARRAY[{total}] FROM {table} WHERE {where} GROUP BY {places}"
    ).format(
        keys=sql.SQL(", ").join(map(sql.Identifier, names)),
        total=total,
        table=sql.Identifier(table),
        where=sql.SQL(" AND ").join(conditions),
        places=sql.SQL(", ").join(sql.Literal(place) for place in range(1, len(names) + 1)),
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def by_day(asked: Asked) -> dict[date, Ints]:
    """Return µs by cause of the whole days (UTC) of what is asked for, of those that have rows.

    One query. Days know no rack, hour and attempt.
    """
    piece = _Piece(True, *asked.days)
    return {day: np.array(us, dtype=np.int64) for day, us in _sums(asked, piece, ("day",))}


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _hours(asked: Asked, now: float) -> tuple[int, list[int]]:
    """Return how many hours there is an account of, and those that are over and lack one."""
    known = AccountedHour.objects.filter(
        hour__gte=_moment(asked.start), hour__lt=_moment(asked.end)
    )
    there = {int(hour.timestamp()) for hour in known.values_list("hour", flat=True)}
    over = range(asked.start, min(asked.end, int(now // HOUR_S) * HOUR_S), HOUR_S)
    return len(there), [hour for hour in over if hour not in there]


def _beside(asked: Asked, rows: Any) -> Any:
    """Return rows of projects in the hours that are asked for, of projects that may be known."""
    if asked.projects is not None:
        rows = rows.filter(project__in=asked.projects)
    named = {name: asked.only[name] for name in ("project", "job_class") if name in asked.only}
    return rows.filter(hour__gte=_moment(asked.start), hour__lt=_moment(asked.end), **named)


def _waiting(asked: Asked) -> list[Waiting]:
    if not _NOT_OF_STEPS.isdisjoint(asked.only):
        return []
    rows = _beside(asked, HourWait.objects.all()).values_list("reason")
    summed = rows.annotate(Sum("demand_us"), Sum("wanted_us")).order_by("-demand_us__sum")
    return [Waiting(reason, int(demand), int(wanted)) for reason, demand, wanted in summed]


def waits_by_day(asked: Asked) -> dict[tuple[date, str], int]:
    """Return by day (UTC) and reason the µs of GPUs that were wanted while free. One query."""
    if not _NOT_OF_STEPS.isdisjoint(asked.only):
        return {}
    days = _beside(asked, HourWait.objects.all()).annotate(day=TruncDay("hour", tzinfo=UTC))
    summed = days.values_list("day", "reason").annotate(Sum("wanted_us")).order_by()
    return {(day.date(), reason): int(wanted) for day, reason, wanted in summed}


_OF_WORK = tuple(each.name for each in fields(Work))
_OF_STEPS = ("moved", "repeated", "missed")


def _steps(asked: Asked) -> list[dict[str, Any]]:
    """Return sums of steps and of their FLOPs by project, class and week. One query."""
    if not _NOT_OF_STEPS.isdisjoint(asked.only):
        return []
    rows = _beside(asked, HourSteps.objects.all())
    by_week = rows.annotate(week=TruncWeek("hour", tzinfo=UTC))
    sums = {f"{name}_sum": Sum(name) for name in (*_OF_STEPS, *_OF_WORK)}
    summed = by_week.values("project", "job_class", "week").annotate(**sums)
    return list(summed.order_by("project", "week", "job_class"))


def _works(asked: Asked, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], Work]:
    """Return the work by the key that is asked for where steps have it, else of all in one."""
    by = _COLUMNS[asked.by] if asked.by in (By.PROJECT, By.CLASS) else ()
    found: dict[tuple[Any, ...], Work] = defaultdict(Work)
    for row in rows:
        found[tuple(row[each] for each in by)] += Work(*(row[f"{n}_sum"] for n in _OF_WORK))
    return found


def _iterations(rows: Sequence[Mapping[str, Any]]) -> list[Iterations]:
    """Return the steps of each project and week."""
    found: dict[tuple[str, date], Floats] = defaultdict(lambda: np.zeros(len(_OF_STEPS)))
    for row in rows:
        key = row["project"], row["week"].date()
        found[key] += [row[f"{name}_sum"] for name in _OF_STEPS]
    return [Iterations(*key, *sums.tolist()) for key, sums in found.items()]
