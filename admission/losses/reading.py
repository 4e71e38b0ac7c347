"""The losses of a span of hours, of all or of one project or site, each beside what is usual."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from django.db import connection
from django.db.models import Max

from accounts.models import User
from admission.baselines import reading as baselines
from admission.core import losses
from admission.core.account import Cause, Ints
from admission.core.baselines import Condition, Metric, Shift, shifts
from admission.core.energy.rates import MJ_PER_KWH
from admission.core.fleet_account import CAUSES, FLEET_LEVERS, Unheld
from admission.core.losses import CAUSES_OF, NOT_RANKED, OF_ALL, Gain, Line, Loss, Usual
from admission.core.program import Floats
from admission.energy import reports
from admission.goodput import summing
from admission.goodput.models import AccountedHour
from admission.goodput.summing import Asked, By, Found, Waiting
from admission.goodput.told import money_of_wait
from admission.losses import saving
from telemetry.rollups.spec import HOUR_S
from telemetry.spans import ParameterError, Span

__all__ = ["ONLY", "Report", "of_span"]

#: What may be asked for alone.
ONLY = ("project", "site")
#: Conditions of hours of gangs, by what is lost under them, where the two are not called alike.
_CONDITIONS = {Loss.CAPS.value: Condition.CAPPED.value}
#: How gangs differ from normal is told of the last of the span, s: hours are many.
_DEGRADED_S = 86_400
#: What is usual is that of so many days before the span.
_DAYS = 28
_DAY_S = 24 * HOUR_S
_US_PER_H = 3.6e9
_HELD = [at for at, cause in enumerate(CAUSES) if cause not in set(Unheld)]
_NO_PLACE = "what waited at one site: demand is kept without a place"
_NO_GANGS = "which gangs were at several sites: only hours tell, ask for a shorter span"
_LEFT_OUT = "how often {} more gangs should save: those with the most GPUs are looked at"

# Waits for other ranks of gangs that had GPUs at several sites, wherever the others of them are. An
# attempt is of one project.
_ACROSS = """
SELECT coalesce(sum(waited), 0)::bigint FROM (
    SELECT sum(us[%(place)s]) FILTER (WHERE %(site)s::text IS NULL OR site = %(site)s) AS waited
    FROM admission_goodput_houraccount
    WHERE hour >= %(start)s AND hour < %(end)s AND attempt_id IS NOT NULL
      AND (%(projects)s::text[] IS NULL OR project = ANY(%(projects)s))
    GROUP BY attempt_id HAVING min(site) <> max(site)
) AS gangs
"""


@dataclass(frozen=True)
class Report:
    """Losses of whole hours, and what is not ranked: µs by cause.

    ``held_us`` and ``total_us`` are what shares are of. ``priced`` and ``metered`` are the shares
    of all, and of held, time whose price of a GPU-hour, and whose energy, is known.
    """

    asked: Asked
    lines: Sequence[Line]
    not_ranked: Mapping[str, int]
    held_us: int
    total_us: int
    priced: float | None
    metered: float | None
    hours: int
    missing: Sequence[int]
    newest: datetime | None
    cannot_tell: Sequence[str]


def of_span(user: User, span: Span, only: Mapping[str, str], now: float) -> Report:
    """Return the losses of a span, of what ``user`` may know, of all or of :data:`ONLY`.

    Some 20 queries, and those of :func:`saving.intervals`. Raises :class:`ParameterError` where
    that is too much.
    """
    asked = Asked.of(user, span, By.SITE, only)
    found = summing.add_up(asked, now)
    apart = found, summing.add_up(replace(asked, by=By.PROJECT), now)
    us = found.us.sum(axis=0)
    prices = _Prices.of(found)
    usual, usual_waits = _usual(asked)
    gains, cannot_tell = _of_saving(asked, now)
    across_gpu_h = _across_gpu_h(user, span, asked)
    if across_gpu_h is None:
        cannot_tell.append(_NO_GANGS)
    if "site" in only:
        cannot_tell.append(_NO_PLACE)
    sums = _Sums(us, found.hours)
    lines = [
        *_of_causes(_Beside(sums, prices, usual, gains, _shifts(asked)), across_gpu_h, apart),
        *(_of_wait(each, sums, usual_waits.get(each.reason)) for each in _waits(found)),
    ]
    return Report(
        asked, lines, _not_ranked(us, found.waiting), sums.held_us, sums.total_us,
        float(found.priced_us.sum()) / sums.total_us if sums.total_us else None,
        prices.metered_us / sums.held_us if sums.held_us else None, found.hours, found.missing,
        AccountedHour.objects.aggregate(newest=Max("hour"))["newest"], cannot_tell,
    )  # fmt: skip


@dataclass(frozen=True)
class _Sums:
    """µs by cause over ``hours`` with an account."""

    us: Ints
    hours: int

    @property
    def total_us(self) -> int:
        return int(self.us.sum())

    @property
    def held_us(self) -> int:
        return int(self.us[_HELD].sum())

    def of_us(self, loss: str) -> int:
        """Return what a loss is a share of."""
        return self.total_us if loss in OF_ALL else self.held_us


# --- What the account tells ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Beside:
    """What stands beside losses, by loss; ``shifts`` by condition."""

    sums: _Sums
    prices: _Prices
    usual: Mapping[str, Usual | None]
    gains: Mapping[str, Gain]
    shifts: Mapping[str, Mapping[Metric, Shift]]


def _of_causes(
    beside: _Beside, across_gpu_h: float | None, apart: tuple[Found, Found]
) -> Iterator[Line]:
    """Yield the losses of which the account tells, and those that better saves would lower.

    ``apart``: the same sums by site and by project.
    """
    by_site, by_project = apart
    sums, prices = beside.sums, beside.prices
    for loss, names in CAUSES_OF.items():
        places = [CAUSES.index(name) for name in names]
        causes = {name: int(sums.us[at]) for name, at in zip(names, places, strict=True)}
        took_us, gain = sum(causes.values()), beside.gains.get(loss)
        if not took_us and gain is None:
            continue
        of_us, lever, usual = sums.of_us(loss), losses.lever_of(causes), beside.usual.get(loss)
        share = _share(took_us, of_us)
        back = losses.back_to_usual(share, of_us / _US_PER_H, sums.hours, usual, lever)
        yield Line(
            loss=loss, gpu_h=took_us / _US_PER_H, share=share, lever=lever,
            causes={name: us for name, us in causes.items() if us},
            sites=_apart(by_site, places), projects=_apart(by_project, places),
            kwh=prices.kwh(places), money=prices.money(places),
            across_sites_gpu_h=across_gpu_h if loss == Loss.NETWORK else None,
            usual=usual, degraded=beside.shifts.get(_CONDITIONS.get(loss, loss), {}),
            gain=_greater(gain, back),
        )  # fmt: skip


def _apart(found: Found, places: Sequence[int]) -> dict[str, int]:
    """Return what causes took by the name that sums are kept apart by, of those that have one."""
    took_us = found.us[:, places].sum(axis=1).tolist()
    pairs = zip(found.keys, took_us, strict=True)
    return {name: us for (name,), us in pairs if name and us}


def _share(part_us: int, of_us: int) -> float:
    return part_us / of_us if of_us else 0.0


def _greater(one: Gain | None, other: Gain | None) -> Gain | None:
    """Return the greater of two gains: both are of the same time, and never add up."""
    known = [each for each in (one, other) if each is not None]
    return max(known, key=lambda each: each.gpu_h, default=None)


def _across_gpu_h(user: User, span: Span, asked: Asked) -> float | None:
    """Return the waits for other ranks of gangs at several sites, GPU-hours; None: not kept."""
    try:
        Asked.of(user, span, By.ATTEMPT, asked.only)
    except ParameterError:
        return None
    given: dict[str, Any] = {
        "place": CAUSES.index(Cause.SYNCHRONIZATION) + 1,
        "start": _moment(asked.start), "end": _moment(asked.end),
        "site": asked.only.get("site"), "projects": _projects(asked),
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_ACROSS, given)
        (us,) = cursor.fetchone()
    return float(us) / _US_PER_H


def _not_ranked(us: Ints, waiting: Sequence[Waiting]) -> dict[str, int]:
    """Return the time of which it is not known whether it was lost, the most first."""
    known = {cause: int(us[CAUSES.index(cause)]) for cause in NOT_RANKED}
    if known[Unheld.FREE]:
        known[Unheld.FREE] -= sum(each.wanted_us for each in waiting)
    return dict(sorted(((c, t) for c, t in known.items() if t > 0), key=lambda each: -each[1]))


# --- What it comes to ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prices:
    """What the time of causes comes to, by cause, and of how much of it each is known, µs."""

    kwh_by: Floats
    money_by: Floats
    metered_by: Ints
    priced_by: Ints

    @classmethod
    def of(cls, found: Found) -> _Prices:
        """Return it for time by site: GPU-hours at their price, and energy. One query.

        Energy is shared out by time: that of a site's jobs over the GPU-hours that they held. What
        nobody held has none.
        """
        asked, count = found.asked, len(CAUSES)
        start, end = _moment(asked.start), _moment(asked.end)
        by_site = reports.jobs_by_site(start, end, _projects(asked))
        kwh, money = np.zeros(count), found.money.sum(axis=0)
        metered, priced = np.zeros((2, count), dtype=np.int64)
        for (site,), us, priced_us in zip(found.keys, found.us, found.priced_us, strict=True):
            row, is_priced = by_site.get(site), np.full(count, priced_us > 0.0)
            if row is not None and row.gpu_ms:
                own_kwh = us[_HELD] / _US_PER_H * (row.kwh / row.gpu_h)
                kwh[_HELD] += own_kwh
                metered[_HELD] += us[_HELD]
                if row.price_mj:
                    money[_HELD] += own_kwh * (row.money["energy"] * MJ_PER_KWH / row.price_mj)
                    is_priced[_HELD] = True
            priced += np.where(is_priced, us, 0)
        return cls(kwh, money, metered, priced)

    @property
    def metered_us(self) -> int:
        return int(self.metered_by.sum())

    def kwh(self, places: Sequence[int]) -> float | None:
        """Return the energy of causes; None: it is known of none of their time."""
        return float(self.kwh_by[places].sum()) if self.metered_by[places].any() else None

    def money(self, places: Sequence[int]) -> float | None:
        """Return the money of causes; None: no price is known of any of their time."""
        return float(self.money_by[places].sum()) if self.priced_by[places].any() else None


def _projects(asked: Asked) -> list[str] | None:
    """Return the projects that are asked for, of those that may be known; None: all."""
    project, may_know = asked.only.get("project"), asked.projects
    if project is None:
        return None if may_know is None else [*may_know]
    return [project] if may_know is None or project in may_know else []


# --- What waited ---------------------------------------------------------------------------------


def _waits(found: Found) -> list[Waiting]:
    return [each for each in found.waiting if each.demand_us]


def _of_wait(found: Waiting, sums: _Sums, usual: Usual | None) -> Line:
    """Return what waited for one reason: lost is what of it stood against free GPUs.

    No gain is told of it: what waits may not fit where GPUs are free.
    """
    return Line(
        loss=Loss.WAITING, reason=found.reason, gpu_h=found.wanted_us / _US_PER_H,
        share=_share(found.wanted_us, sums.total_us), lever=FLEET_LEVERS[Unheld.FREE],
        money=money_of_wait(found.demand_us), waited_gpu_h=found.demand_us / _US_PER_H, usual=usual,
    )  # fmt: skip


# --- What is usual -------------------------------------------------------------------------------


def _usual(asked: Asked) -> tuple[dict[str, Usual | None], dict[str, Usual | None]]:
    """Return what is usual by loss, and of what waited by reason, of the days before. 2 queries."""
    end = asked.start // _DAY_S * _DAY_S
    before = replace(asked, start=end - _DAYS * _DAY_S, end=end)
    days = {day: _Sums(us, 24) for day, us in summing.by_day(before).items()}
    by_loss = {
        loss: losses.usual([
            sums.us[[CAUSES.index(name) for name in names]].sum() / sums.of_us(loss)
            for sums in days.values() if sums.of_us(loss)
        ])
        for loss, names in CAUSES_OF.items()
    }  # fmt: skip
    waited = summing.waits_by_day(before)
    by_reason = {
        reason: losses.usual([
            waited.get((day, reason), 0) / sums.total_us
            for day, sums in days.items() if sums.total_us
        ])
        for reason in {reason for _, reason in waited}
    }  # fmt: skip
    return by_loss, by_reason


def _shifts(asked: Asked) -> dict[str, dict[Metric, Shift]]:
    """Return by condition how gangs differed from normal in the last of the span. One query."""
    return shifts(baselines.over(replace(asked, start=max(asked.start, asked.end - _DEGRADED_S))))


def _of_saving(asked: Asked, now: float) -> tuple[dict[str, Gain], list[str]]:
    """Return what better intervals of saves bring back, and what cannot be told of it."""
    try:
        found, left_out = saving.intervals(asked, now)
    except ParameterError as error:
        return {}, [f"how often gangs should save: {error}"]
    return losses.of_intervals(found), [_LEFT_OUT.format(left_out)] if left_out else []


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
