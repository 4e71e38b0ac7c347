"""A made fleet whose losses are known: a month as usual, a bad day, and the day after it."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.builders.accounted import last_hour, write_account

__all__ = ["DAY_H", "bad_day", "day_after", "make_month"]

H = 3600.0
#: GPU-hours that jobs hold in each hour of a day.
HELD_GPU_H = 100.0
DAY_H = 24


def bad_day() -> datetime:
    """Return when the bad day begins: at midnight (UTC), two days and more before now."""
    return last_hour().replace(hour=0) - timedelta(days=3)


def day_after() -> datetime:
    return bad_day() + timedelta(days=1)


def write_hour(at: datetime, *, heat: float, **shares: float) -> None:
    """Account for an hour of vision at oslo: shares of what it held, ``heat`` to throttling."""
    taken = {"throttled_hw_thermal_unexpected": heat, "data_wait": 0.03, "repeated": 0.04, **shares}
    spent = {cause: HELD_GPU_H * H * share for cause, share in taken.items()}
    productive = HELD_GPU_H * H - sum(spent.values())
    write_account(at, "vision", "oslo", productive=productive, **spent)


def make_month() -> None:
    """Account for four weeks of 1 % lost to heat, a day of 6 %, and one that is as usual again.

    Throughout 3 % wait for data, and 4 % are made again. Of the days before, an hour each is there.
    """
    for before in range(1, 29):
        write_hour(bad_day() - timedelta(days=before), heat=0.01)
    for hour in range(DAY_H):
        write_hour(bad_day() + timedelta(hours=hour), heat=0.06)
        write_hour(day_after() + timedelta(hours=hour), heat=0.01)
