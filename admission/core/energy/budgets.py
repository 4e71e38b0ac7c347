"""Budgets of energy, carbon and money: what is used of one, and what it will come to. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from admission.core.energy.rates import month_of

__all__ = ["Measure", "Spent", "Standing", "period_of", "standing"]

_HOUR = timedelta(hours=1)


class Measure(enum.StrEnum):
    """What a budget is of; its values are units, too."""

    KWH = "kwh"
    #: CO2e
    CARBON_KG = "carbon_kg"
    #: in the currency of the installation: energy, demand charges and GPU-hours
    MONEY = "money"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a project came to in the hours of a period that are closed, in the unit of a budget.

    ``known`` is the share of its energy whose rate is known; None: it used none. ``unread`` is the
    share of the time of its GPUs of which no reading tells what they drew; None: not told.
    ``lump`` of ``used`` is what does not grow by the hour: demand charges so far. ``recent`` is
    what it used without those in the last ``recent_hours`` that are closed.
    """

    used: float
    known: float | None
    unread: float | None
    lump: float
    closed_hours: int
    recent: float
    recent_hours: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a budget stands in its period. Hours are those of UTC.

    ``forecast`` is what it comes to by the period's end, at the mean of the last seven days: hours
    that are over and not closed count at it, too. None: no hour is closed yet. ``warned`` is the
    largest share to warn at that is used; None: none is.
    """

    start: datetime
    end: datetime
    used: float
    share: float
    forecast: float | None
    forecast_share: float | None
    known: float | None
    unread: float | None
    hours: int
    closed_hours: int
    #: that are over and not closed: what they used is not in ``used``
    open_hours: int
    warned: float | None

    @property
    def is_least(self) -> bool:
        """Whether more may have been used than is known.

        Hours are open, rates are not known, or readings are missing.
        """
        is_part = self.known is not None and self.known < 1.0
        return self.open_hours > 0 or is_part or bool(self.unread)


def period_of(
    begins_at: datetime, ends_at: datetime | None, now: datetime
) -> tuple[datetime, datetime]:
    """Return the period that a budget is in: its range, or the calendar month (UTC) of ``now``.

    Before it begins, its first month.
    """
    if ends_at is not None:
        return begins_at, ends_at
    return month_of(max(now, begins_at), ZoneInfo("UTC"))


def standing(
    amount: float,
    warn_at: Sequence[float],
    period: tuple[datetime, datetime],
    spent: Spent,
    now: datetime,
) -> Standing:
    """Return how a budget of ``amount`` (above 0) stands at ``now``."""
    start, end = period
    over = min(max(now.astimezone(UTC).replace(minute=0, second=0, microsecond=0), start), end)
    hours, over_hours = (int((each - start) / _HOUR) for each in (end, over))
    share = spent.used / amount
    forecast = None
    if spent.recent_hours:
        left = hours - spent.closed_hours
        forecast = spent.used + left * (spent.recent / spent.recent_hours)
    return Standing(
        start=start, end=end, used=spent.used, share=share, forecast=forecast,
        forecast_share=None if forecast is None else forecast / amount,
        known=spent.known, unread=spent.unread, hours=hours, closed_hours=spent.closed_hours,
        open_hours=max(over_hours - spent.closed_hours, 0),
        warned=max((each for each in warn_at if share >= each), default=None),
    )  # fmt: skip
