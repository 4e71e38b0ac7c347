"""What events of a VTN ask for: intervals, each with a limit and its time. Pure.

The objects are those of OpenADR 3.0.1 and 3.1; what is not needed of them is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, field

from admission.core.curtailment import Ask, BadAsk

__all__ = ["Asked", "Event", "NotAsked", "Program", "asked_by", "duration"]


class Program(Struct, frozen=True, rename="camel"):
    """A program: what a grid and its customers have agreed on."""

    id: str
    program_name: str


class Values(Struct, frozen=True):
    """Values of one type."""

    type: str
    values: list[Any]


class Period(Struct, frozen=True):
    """When something begins (ISO 8601), and how long it lasts (PT…)."""

    start: str
    duration: str | None = None


class Interval(Struct, frozen=True, rename="camel"):
    """One part of an event."""

    id: int
    payloads: list[Values]
    interval_period: Period | None = None


class Descriptor(Struct, frozen=True, rename="camel"):
    """The units of a type of values."""

    payload_type: str
    units: str | None = None


class Event(Struct, frozen=True, rename="camel"):
    """An event of a program."""

    id: str
    program_id: str = field(name="programID")
    intervals: list[Interval]
    event_name: str | None = None
    interval_period: Period | None = None
    payload_descriptors: list[Descriptor] | None = None


@dataclass(frozen=True)
class Asked:
    """What one interval of an event asks for."""

    event_id: str
    interval_id: int
    name: str
    ask: Ask
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True)
class NotAsked:
    """An interval that asks for nothing that can be held, and why."""

    event_id: str
    interval_id: int
    why: str


#: Watts in a unit of power; without a descriptor values are kW.
_UNITS_W = {"W": 1.0, "KW": 1e3, "MW": 1e6}
_USUAL_UNIT = "KW"
_LIMITS = ("IMPORT_CAPACITY_LIMIT", "DISPATCH_SETPOINT")
_RELATIVE, _SIMPLE = "DISPATCH_SETPOINT_RELATIVE", "SIMPLE"
_DURATION = re.compile(
    r"P(?:(?P<years>\d+)Y)?(?:(?P<months>\d+)M)?(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_DAYS = {"years": 365.0, "months": 30.0, "weeks": 7.0, "days": 1.0}
#: Nothing is looked at that lasts longer.
_LONGEST = timedelta(days=36_500)


def duration(text: str) -> timedelta:
    """Return a duration in ISO 8601; a month is 30 days. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration")
    parts = {name: float(value) for name, value in found.groupdict().items() if value}
    days = sum(parts.get(name, 0.0) * each for name, each in _DAYS.items())
    clock = {name: parts.get(name, 0.0) for name in ("hours", "minutes", "seconds")}
    try:
        return min(timedelta(days=days, **clock), _LONGEST)
    except OverflowError:
        return _LONGEST


def asked_by(
    event: Event, *, simple_shares: Sequence[float], latest: datetime
) -> Iterator[Asked | NotAsked]:
    """Yield what the intervals of an event ask for, in order.

    ``simple_shares``: what levels 1, 2 and 3 of SIMPLE take of the baseline. ``latest``: what has
    no end ends then.
    """
    units = {each.payload_type: each.units for each in event.payload_descriptors or ()}
    begins: datetime | None = None
    for interval in event.intervals:
        try:
            starts_at, lasts = _when(interval, event, begins)
            ends_at = min(starts_at + lasts, latest) if lasts else latest
            begins = ends_at
            ask = _ask(interval.payloads, units, simple_shares)
        except (ValueError, OverflowError) as error:
            yield NotAsked(event.id, interval.id, str(error))
            continue
        if ask is None:
            continue
        name = event.event_name or event.id
        yield Asked(event.id, interval.id, name, ask, starts_at, ends_at)


def _when(interval: Interval, event: Event, begins: datetime | None) -> tuple[datetime, timedelta]:
    """Return when an interval begins, and how long it lasts; 0: without end.

    Intervals without a time of their own follow each other, each as long as the event says.
    """
    own, usual = interval.interval_period, event.interval_period
    if own is not None:
        return _moment(own.start), duration(own.duration or _lasts(usual))
    if usual is None:
        raise ValueError("neither the interval nor its event says when it begins")
    return begins or _moment(usual.start), duration(_lasts(usual))


def _lasts(period: Period | None) -> str:
    return (period.duration if period is not None else None) or "PT0S"


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _ask(
    payloads: Sequence[Values],
    units: Mapping[str, str | None],
    simple_shares: Sequence[float],
) -> Ask | None:
    """Return what values ask for; None: nothing of the load. Raises ValueError."""
    for each in payloads:
        if each.type == _SIMPLE:
            return _by_level(each, simple_shares)
        if each.type in (*_LIMITS, _RELATIVE):
            watts = _number(each) * _watts_in(units.get(each.type))
            if each.type in _LIMITS:
                return Ask(to_w=watts)
            if watts > 0.0:
                raise BadAsk("by_w", "it asks for more load, which is not shed")
            return Ask(by_w=-watts) if watts else None
    return None


def _by_level(values: Values, shares: Sequence[float]) -> Ask | None:
    level = _number(values)
    if level not in range(len(shares) + 1):
        raise ValueError(f"SIMPLE is a level from 0 to {len(shares)}, not {level:g}")
    return Ask(by_share=shares[int(level) - 1]) if level else None


def _number(values: Values) -> float:
    found = values.values
    if len(found) != 1 or isinstance(found[0], bool) or not isinstance(found[0], int | float):
        raise ValueError(f"{values.type} has to have one number")
    return float(found[0])


def _watts_in(unit: str | None) -> float:
    name = (unit or _USUAL_UNIT).upper()
    if name not in _UNITS_W:
        raise ValueError(f"{name} is no unit of power: give W, KW or MW")
    return _UNITS_W[name]
