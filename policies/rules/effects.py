"""The restrictions of a rule where it fires, decided once: at the moment at which it fires."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, TypedDict

import numpy as np
import structlog

from fleet.tables import FleetArrays
from physics.hardware.drivers import LEAST_CLOCK_SHARE, LEAST_POWER_SHARE
from policies.firings import Firing
from policies.leases.book import SYSTEM
from policies.restrictions.book import RestrictionBook
from policies.restrictions.kinds import (
    KINDS,
    LIMITS,
    RestrictionKind,
    Wanted,
    gpus_in,
)
from policies.rules.document import Restrict
from policies.rules.engine import Evaluated
from policies.rules.places import related
from policies.scopes import Scope, ScopeKind, UnknownScope

log = structlog.get_logger(__name__)

#: How many characters of a summary go into the reason of a restriction.
_REASON = 500


class Restricted(TypedDict):
    """A restriction as an episode keeps it."""

    kind: str
    scope_kind: str
    scope_name: str
    value: float | None
    lease_s: float
    most_of_site: float | None


class Episode(Protocol):
    """An episode of a rule, wherever it is kept: one scope on which the rule fires, since when."""

    @property
    def pk(self) -> Any: ...

    @property
    def rule(self) -> str: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def since(self) -> datetime: ...

    @property
    def summary(self) -> str: ...

    @property
    def values(self) -> Mapping[str, Any]: ...

    @property
    def restricts(self) -> Iterable[Mapping[str, Any]]: ...


def restricts(one: Evaluated, firing: Firing, fleet: FleetArrays) -> list[Restricted]:
    """Return the restrictions that the rule sets because of ``firing``.

    A value that cannot be told restricts nothing, and the log says so.
    """
    found: list[Restricted] = []
    for _, effect in one.live.rule.restricts():
        try:
            scopes = related(fleet, firing.scope, effect.scope)
        except UnknownScope as error:  # it went from the inventory at this moment
            log.warning("rule_scope_is_gone", rule=firing.rule, why=str(error))
            continue
        for scope in scopes:
            value = _value(one, effect, firing.scope.name, scope, fleet)
            if value is not None and math.isnan(value):
                log.warning("rule_value_unknown", rule=firing.rule, scope=str(scope))
                continue
            found.append(
                Restricted(
                    kind=effect.kind.value,
                    scope_kind=scope.kind.value,
                    scope_name=scope.name,
                    value=value,
                    lease_s=effect.lease_s,
                    most_of_site=effect.most_of_site,
                )
            )
    return found


def _value(
    one: Evaluated, effect: Restrict, name: str, scope: Scope, fleet: FleetArrays
) -> float | None:
    """Return the effect's value on ``scope``, within the range of its kind and its GPUs."""
    if effect.value is None or isinstance(effect.value, float):
        return effect.value
    kind = KINDS[effect.kind]
    value = one.value(effect.value, name)
    if math.isnan(value):
        return value
    least = max(kind.least, _floor(effect.kind, scope, fleet))
    value = min(max(value, least), kind.most)
    return float(math.floor(value)) if kind.is_whole else value


def _floor(kind: RestrictionKind, scope: Scope, fleet: FleetArrays) -> float:
    """Return the lowest cap that all GPUs in ``scope`` can be brought to; else 0."""
    if kind not in LIMITS:
        return 0.0
    gpus, here = fleet.gpus, gpus_in(fleet, scope)
    if kind is RestrictionKind.POWER_CAP_W:
        floors = np.fmax(gpus.idle_w[here], LEAST_POWER_SHARE * gpus.rated_w[here])
    else:
        floors = LEAST_CLOCK_SHARE * gpus.sm_max_mhz[here]
    return math.ceil(float(np.nan_to_num(floors).max(initial=0.0)))


def wanted(episodes: Iterable[Episode], now: datetime) -> dict[tuple[str, ...], Wanted]:
    """Return the restrictions of episodes that go on, by their keys.

    They are to hold for the length of their lease from now.
    """
    found: dict[tuple[str, ...], Wanted] = {}
    for episode in episodes:
        for place, each in enumerate(episode.restricts):
            one = _wanted(episode, place, each, now)
            found[one.key] = one
    return found


def _wanted(episode: Episode, place: int, each: Mapping[str, Any], now: datetime) -> Wanted:
    return Wanted(
        kind=RestrictionKind(each["kind"]),
        scope=Scope(ScopeKind(each["scope_kind"]), each["scope_name"]),
        value=each["value"],
        reason=episode.summary[:_REASON],
        owner=owner_of(episode.rule),
        cause=f"episode {episode.pk}, effect {place + 1}",
        expires_at=now + timedelta(seconds=each["lease_s"]),
        most_of_site=each["most_of_site"],
        evidence={
            "rule": episode.rule,
            "scope": str(episode.scope),
            "since": episode.since.isoformat(),
            "values": episode.values,
        },
    )


def keep(book: RestrictionBook[Any], episodes: Iterable[Episode], now: datetime) -> None:
    """Hold the restrictions of ``episodes``, renew those about to expire, and end all others."""
    restrictions = wanted(episodes, now).values()
    book.keep(owner_of(""), restrictions, now=now, by=SYSTEM, why="the rule has cleared")


def owner_of(rule: str) -> str:
    """Return how restrictions name a rule as their owner."""
    return f"rule:{rule}"
