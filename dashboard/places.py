"""Zones, power domains, links and storage endpoints as pages: their readings, and their parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from admission.calendar.committed import committed_at
from admission.core.ahead import Ahead as Committed
from dashboard import conditions, scopes, units
from dashboard.conditions import Line
from dashboard.templatetags.headroom_words import full_in
from fleet.snapshot import DOMAIN_KINDS, LINK_KINDS, FleetArrays
from policies.headroom.binding import of_budget, quantity
from policies.headroom.columns import Ints
from policies.headroom.evaluate import Headroom
from policies.scopes import Scope, ScopeKind, racks_in, row_of
from telemetry.spans import Span

__all__ = [
    "KINDS",
    "Ahead",
    "AheadOf",
    "Fact",
    "Part",
    "Parts",
    "Place",
    "ahead",
    "listed",
    "place",
]

#: The kinds of places that have this page; racks, nodes, GPUs and sites have others.
KINDS = scopes.PLACES
#: How far ahead it is told, s.
_AHEAD_S = {
    "now": 0.0, "within 1 h": 3_600.0, "within 6 h": 21_600.0, "within 24 h": 86_400.0,
    "within 7 d": 604_800.0,
}  # fmt: skip
#: So many parts of a kind are shown, those with the least left first.
_FEW = 24


@dataclass(frozen=True, slots=True)
class Fact:
    """A reading or a figure of the inventory in words; ``href``: a page that it leads to."""

    name: str
    text: str
    href: str = ""
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a place. ``level`` is of the scale of margins, ``left`` in words."""

    text: str
    href: str
    level: int
    left: str
    is_over: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of one kind, those with the least left first; ``all``: how many there are."""

    words: str
    shown: list[Part]
    all: int


@dataclass(frozen=True, slots=True)
class Place:
    """A place now. ``answer`` stands first; ``bound`` says what binds it, in a sentence."""

    scope: Scope
    site: str
    answer: str
    is_over: bool
    claim: str
    bound: str
    #: NaN where it has none, or none of power
    budget_w: float
    facts: list[Fact]
    parts: list[Parts]


@dataclass(frozen=True, slots=True)
class Ahead:
    """The most that a place is committed to within a time from now, W or bit/s; NaN: not known.

    ``at`` is when least is left of its budget in that time; None: it has none, or is not known.
    """

    words: str
    committed: float
    budget: float
    left: float
    at: datetime | None


@dataclass(frozen=True, slots=True)
class AheadOf:
    """What a place is committed to, the shortest time first."""

    scope: Scope
    lines: list[Ahead]

    @property
    def is_link(self) -> bool:
        """Whether amounts are bit/s."""
        return self.scope.kind is ScopeKind.LINK

    @property
    def is_halved(self) -> bool:
        """Whether racks on two feeds count by half."""
        return self.scope.kind is ScopeKind.POWER_DOMAIN


def place(
    headroom: Headroom, scope: Scope, sent_bits_per_s: Mapping[str, float] | None = None
) -> Place:
    """Return a place of one of :data:`KINDS`. Raises :class:`~policies.scopes.UnknownScope`.

    ``sent_bits_per_s``: of a link, what it sends by class of traffic.
    """
    fleet, row = headroom.fleet, row_of(headroom.fleet, scope)
    line = conditions.lines(headroom, scope.kind, [row])[0]
    load, budget, unit = _budget(scope.kind, line)
    facts = {
        ScopeKind.POWER_DOMAIN: _of_domain,
        ScopeKind.ZONE: _of_zone,
        ScopeKind.LINK: _of_link,
        ScopeKind.STORAGE: _of_storage,
    }[scope.kind]
    return Place(
        scope=scope,
        site=str(line["site"]),
        answer=_answer(load, budget, unit),
        is_over=load > budget,
        budget_w=budget if unit == "W" and budget > 0.0 else math.nan,
        claim=str(line["claim"]),
        bound=line["bound"].sentence if line["bound"] else "",
        facts=[
            *facts(fleet, row, line),
            *(
                Fact(f"sent, {name}", quantity(bits_per_s, "bit/s"))
                for name, bits_per_s in (sent_bits_per_s or {}).items()
            ),
            Fact("readings", _known(line), is_bad=bool(line["stale"])),
        ],
        parts=[each for each in _parts(headroom, scope, row) if each.all],
    )


def ahead(scope: Scope, now: float) -> AheadOf:
    """Return what a place is committed to from ``now`` on (Unix s). A few queries.

    Raises :class:`~policies.scopes.UnknownScope`.
    """
    length_s = max(_AHEAD_S.values())
    found = committed_at(scope, Span(now, now + length_s))
    return AheadOf(scope, [_within(found, words, s) for words, s in _AHEAD_S.items()])


def _within(found: Committed, words: str, length_s: float) -> Ahead:
    upto = max(1, math.ceil(length_s / found.step_s))
    near = replace(found, committed=found.committed[:upto], budget=found.budget[:upto])
    at = near.tightest
    most = int(np.argmax(near.committed)) if at is None else at
    committed, budget = float(near.committed[most]), float(near.budget[most])
    moment = None if at is None else datetime.fromtimestamp(float(near.at[at]), UTC)
    return Ahead(words, committed, budget, budget - committed, moment)


def _budget(kind: ScopeKind, line: Line) -> tuple[float, float, str]:
    """Return load and budget, and their unit."""
    names = {
        ScopeKind.POWER_DOMAIN: ("power_load_w", "power_budget_w", "W"),
        ScopeKind.ZONE: ("cooling_load_w", "cooling_capacity_w", "W"),
        ScopeKind.LINK: ("link_load_bits_per_s", "link_capacity_bits_per_s", "bit/s"),
        ScopeKind.STORAGE: (
            "storage_load_bytes_per_s", "storage_capacity_bytes_per_s", "byte/s",
        ),
    }  # fmt: skip
    load, budget, unit = names[kind]
    return float(line[load]), float(line[budget]), unit


def _answer(load: float, budget: float, unit: str) -> str:
    if math.isnan(load):
        return "its load is not known"
    if math.isnan(budget) or budget <= 0:
        return f"{quantity(load, unit)}, with no stated limit"
    return of_budget(load, budget, unit)


def _known(line: Line) -> str:
    if math.isnan(line["age_s"]):
        return "none yet"
    age = f"oldest {units.age(line['age_s'])} old"
    return f"{age}; some of it is assumed" if line["stale"] else age


# --- Facts ---------------------------------------------------------------------------------------


def _figure(line: Line, name: str, column: str, unit: str) -> Iterator[Fact]:
    """Yield a fact where it is known; red below zero, where it is what is left."""
    value = line[column]
    if not math.isnan(value):
        is_left = "headroom" in column or "margin" in column
        told = units.took(value) if unit == "s" else quantity(value, unit)
        yield Fact(name, told, is_bad=is_left and value < 0)


def _of_domain(fleet: FleetArrays, row: int, line: Line) -> Iterator[Fact]:
    domains = fleet.domains
    yield Fact("kind", DOMAIN_KINDS[domains.kind[row]])
    yield from _figure(line, "measured", "power_measured_w", "W")
    yield from _figure(line, "left", "power_headroom_w", "W")
    yield Fact("full, at today's slope", full_in(line["power_exhausted_in_s"]))
    yield from _figure(line, "load in 15 min", "power_load_15m_w", "W")
    yield from _figure(line, "load in an hour", "power_load_60m_w", "W")
    if (mate := int(domains.pair[row])) >= 0:
        other = Scope(ScopeKind.POWER_DOMAIN, str(domains.paths[mate]))
        yield Fact("other half of its pair", str(domains.names[mate]), scopes.href(fleet, other))
        yield from _figure(line, "load when that fails", "failover_load_w", "W")
        yield from _figure(line, "left when that fails", "failover_headroom_w", "W")


def _of_zone(_fleet: FleetArrays, _row: int, line: Line) -> Iterator[Fact]:
    yield from _figure(line, "left", "cooling_headroom_w", "W")
    yield Fact("full, at today's slope", full_in(line["cooling_exhausted_in_s"]))
    yield from _figure(line, "heat in 15 min", "cooling_load_15m_w", "W")
    yield from _figure(line, "heat in an hour", "cooling_load_60m_w", "W")
    yield from _figure(line, "supply", "supply_c", "°C")
    yield from _figure(line, "inlet of its racks", "inlet_c", "°C")
    yield from _figure(line, "hottest GPU", "hottest_c", "°C")
    yield from _figure(line, "to its slowdown", "thermal_margin_c", "°C")


def _of_link(fleet: FleetArrays, row: int, line: Line) -> Iterator[Fact]:
    links = fleet.links
    yield Fact("kind", LINK_KINDS[links.kind[row]])
    if (peer := int(links.peer_site[row])) >= 0:
        other = Scope(ScopeKind.SITE, str(fleet.sites.names[peer]))
        yield Fact("to", f"site {other.name}", conditions.place_url(fleet, other))
    yield from _figure(line, "reserved", "link_reserved_bits_per_s", "bit/s")
    yield from _figure(line, "left", "link_headroom_bits_per_s", "bit/s")
    yield from _figure(line, "left for bulk", "link_bulk_headroom_bits_per_s", "bit/s")
    yield Fact("full, at today's slope", full_in(line["link_exhausted_in_s"]))
    yield from _figure(line, "sent again", "retransmits_per_s", "1/s")
    yield from _figure(line, "latency", "latency_s", "s")


def _of_storage(_fleet: FleetArrays, _row: int, line: Line) -> Iterator[Fact]:
    yield from _figure(line, "left", "storage_headroom_bytes_per_s", "byte/s")
    yield from _figure(line, "fsync, 95 % within", "fsync_s", "s")
    yield from _figure(line, "read, 95 % within", "read_s", "s")
    yield Fact("mounts that are probed", units.number(line["mounts"]))


# --- Parts ---------------------------------------------------------------------------------------


def _parts(headroom: Headroom, scope: Scope, row: int) -> Iterator[Parts]:
    fleet = headroom.fleet
    if scope.kind is ScopeKind.POWER_DOMAIN:
        below = np.flatnonzero(fleet.domains.parent == row)
        yield listed(headroom, ScopeKind.POWER_DOMAIN, "power domains that it feeds", below)
    if scope.kind in (ScopeKind.POWER_DOMAIN, ScopeKind.ZONE):
        racks = np.flatnonzero(racks_in(fleet, scope))
        yield listed(headroom, ScopeKind.RACK, "racks", racks)
    if scope.kind is ScopeKind.STORAGE:
        nodes = np.flatnonzero(fleet.nodes.storage == row)
        yield listed(headroom, ScopeKind.NODE, "nodes that use it", nodes)


def listed(headroom: Headroom, kind: ScopeKind, words: str, rows: Ints) -> Parts:
    """Return the scopes at ``rows`` as parts called ``words``."""
    few = conditions.tightest_first(headroom, kind, rows)[:_FEW].tolist()
    shown = [_part(line) for line in conditions.lines(headroom, kind, few)]
    return Parts(words, shown, len(rows))


def _part(line: dict[str, Any]) -> Part:
    left = float(line["tightest"])
    words = f"{units.percent(abs(left))} {'over' if left < 0 else 'left'}"
    words = "not known" if math.isnan(left) else words
    return Part(line["short_name"], line["href"], line["level"], words, left < 0)
