"""How the demand charge of a month stands: its peak, who drew it, and what the next kW costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from admission.core.energy.rates import Terms, in_force, month_of
from admission.energy import rating
from admission.energy.models import PlaceHour, ProjectHour, SiteHour

__all__ = ["Drawer", "Month", "MonthPeak", "months"]

_HOUR = timedelta(hours=1)
#: So many racks are told of.
_MOST_RACKS = 20


@dataclass(frozen=True, slots=True)
class Drawer:
    """Who drew a part of a peak: its mean power, W, its share of it, and of the charge."""

    name: str
    mean_w: float
    share: float
    money: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthPeak:
    """The greatest mean of a month so far, W, and its charge. The most comes first.

    ``projects`` and the ``rest`` (idle and unmanaged work, and what no part explains) add up to
    both; ``racks`` are IT alone, and the first of them. ``is_shared_by_hour``: what each drew is
    known of the hour that the peak is in, and not of the peak. ``bridged`` is the share of that
    hour's energy that stands for gaps in readings; None: it drew nothing.
    """

    at: datetime
    length_s: int
    mean_w: float
    charge: float
    is_shared_by_hour: bool
    bridged: float | None
    projects: Sequence[Drawer]
    rest: Drawer
    racks: Sequence[Drawer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """How the demand charge of a month stands at a site, as far as its hours are closed.

    Of its ``hours``, ``past_hours`` are over and ``closed_hours`` closed, and ``hours_by_mean`` of
    these count by their mean, since their five minutes are not known: a peak within them is not
    seen. ``covered`` is the share of GPU time that was read in closed hours; None: there is none.

    ``peak`` is None where none of these has a charge. ``next_kw`` is what each kW above the peak
    costs from now on, by means over ``interval_min``; None: the month is over, or has not begun, or
    no charge is stated now.
    """

    site: str
    start: datetime
    end: datetime
    hours: int
    past_hours: int
    closed_hours: int
    hours_by_mean: int
    covered: float | None
    peak: MonthPeak | None
    next_kw: float | None
    interval_min: int | None


def months(now: datetime, amid: datetime | None = None) -> list[Month]:
    """Return how months stand at the sites that have a demand charge in them, by name.

    ``amid`` is a moment in the month that is meant, far from its ends; None: that of ``now`` at
    each site. Two queries, and five for each site.
    """
    by_site = rating.terms_by_site()
    found = []
    for site, zone in sorted(rating.zones().items()):
        start, end = month_of(amid or now, zone)
        terms = by_site.get(site, [])
        held = [in_force(terms, start), *(each for each in terms if start < each.begins_at < end)]
        if any(each is not None and each.demand_per_kw is not None for each in held):
            found.append(_month(site, start, end, terms, now))
    return found


def _month(
    site: str, start: datetime, end: datetime, terms: Sequence[Terms], now: datetime
) -> Month:
    hours = SiteHour.objects.filter(site=site, hour__gte=start, hour__lt=end)
    row = hours.filter(peak_at__isnull=False).first()
    peak = None if row is None or row.peak is None else _peak(row, *row.peak)
    current = in_force(terms, now) if start <= now < end else None
    per_kw = None if current is None else current.demand_per_kw
    return Month(
        site=site, start=start, end=end, hours=_hours(start, end),
        past_hours=_hours(start, min(max(now, start), end)), peak=peak, next_kw=per_kw,
        interval_min=None if current is None or per_kw is None else current.demand_interval_min,
        **_readings(hours),
    )  # fmt: skip


def _hours(start: datetime, end: datetime) -> int:
    """Return how many whole hours there are, by the clock of UTC: zones may change theirs."""
    return (end.astimezone(UTC) - start.astimezone(UTC)) // _HOUR


def _readings(hours: QuerySet[SiteHour]) -> dict[str, Any]:
    """Return what is known of the hours of a month. One query."""
    known = hours.aggregate(
        closed_hours=Count("pk"), hours_by_mean=Count("pk", filter=Q(five_minutes_mj=[])),
        covered_ms=Sum("covered_ms", default=0), gpu_ms=Sum("gpu_ms", default=0),
    )  # fmt: skip
    covered_ms, gpu_ms = known.pop("covered_ms"), known.pop("gpu_ms")
    return {**known, "covered": covered_ms / gpu_ms if gpu_ms else None}


def _peak(row: SiteHour, at: datetime, length_s: int, mean_w: float) -> MonthPeak:
    """Return the peak that an hour carries, and who drew it. Two queries."""
    is_by_hour = not row.peak_mj
    whole_mj = row.peak_mj or row.whole_mj

    def drawers(drawn: Iterable[tuple[str, int]]) -> list[Drawer]:
        shares = ((name, mj / whole_mj if whole_mj else 0.0) for name, mj in drawn)
        found = [Drawer(name, each * mean_w, each, each * row.demand) for name, each in shares]
        return sorted(found, key=lambda each: (-each.share, each.name))

    def drawn_mj(each: ProjectHour | PlaceHour) -> int:
        return each.whole_mj if is_by_hour else each.peak_mj or 0

    here = {"hour": row.hour, "site": row.site}
    projects = [(each.project, drawn_mj(each)) for each in ProjectHour.objects.filter(**here)]
    racks = PlaceHour.objects.filter(kind=PlaceHour.Kind.RACK, **here)
    (rest,) = drawers([("", whole_mj - sum(mj for _, mj in projects))])
    return MonthPeak(
        at=at, length_s=length_s, mean_w=mean_w, charge=row.demand, is_shared_by_hour=is_by_hour,
        bridged=row.bridged_mj / row.whole_mj if row.whole_mj > 0 else None,
        projects=drawers(projects), rest=rest,
        racks=drawers((each.place, drawn_mj(each)) for each in racks)[:_MOST_RACKS],
    )  # fmt: skip
