"""Throttle causes in words. The token is the same in API, URLs, CSS classes and docs."""

from __future__ import annotations

from dataclasses import dataclass

from headroom.contracts import ThrottleCause

_LABELS = {
    ThrottleCause.SW_POWER_CAP: "SW power cap",
    ThrottleCause.HW_SLOWDOWN: "HW slowdown",
    ThrottleCause.SYNC_BOOST: "sync boost",
    ThrottleCause.SW_THERMAL: "SW thermal",
    ThrottleCause.HW_THERMAL: "HW thermal",
    ThrottleCause.HW_POWER_BRAKE: "HW power brake",
    ThrottleCause.DISPLAY_CLOCK: "display clock",
}
_MEANINGS = {
    ThrottleCause.SW_POWER_CAP: "draws as much as its power limit allows",
    ThrottleCause.HW_SLOWDOWN: "slowed by hardware: heat, or power brake",
    ThrottleCause.SYNC_BOOST: "held back to the slowest GPU of its sync group",
    ThrottleCause.SW_THERMAL: "the driver lowers clocks to stay under the temperature target",
    ThrottleCause.HW_THERMAL: "too hot: hardware cuts clocks",
    ThrottleCause.HW_POWER_BRAKE: "the power supply asked for less",
    ThrottleCause.DISPLAY_CLOCK: "limited by a display clock",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A throttle cause, with its words for pages."""

    token: str
    label: str
    meaning: str


CAUSES = {cause: Cause(cause.token, _LABELS[cause], _MEANINGS[cause]) for cause in ThrottleCause}


def of(value: int) -> Cause:
    """Return the cause with NVML bit ``value``, as throttle events keep it."""
    return CAUSES[ThrottleCause(value)]


def in_mask(mask: int) -> list[Cause]:
    """Return the causes in a clocks-event-reason mask."""
    return [CAUSES[cause] for cause in ThrottleCause if mask & cause]


def by_token(token: str) -> ThrottleCause | None:
    """Return the cause with a token, if there is one."""
    return next((cause for cause in ThrottleCause if cause.token == token), None)
