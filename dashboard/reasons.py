"""Why phases wait, in words: the meaning of each token, and a reason with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from admission.core.reasons import ReasonToken
from admission.queue import queue_status
from dashboard import scopes, units
from dashboard.evidence import facts
from dashboard.templatetags.telemetry_words import lasted
from fleet.snapshot import FleetArrays
from policies.headroom.binding import balance, quantity
from policies.scopes import Scope, ScopeKind

#: What a token says, as the title beside it.
MEANINGS: dict[str, str] = {
    ReasonToken.SPEC_INVALID: "What it asks for is wrong, or what it names is gone",
    ReasonToken.ON_HOLD: "Somebody holds it, or a policy wants it looked at",
    ReasonToken.DEPENDENCY_NEVER_MET: "What it waits for can never come about any more",
    ReasonToken.DEPENDENCY_PENDING: "A phase or job before it is not as far as it has to be",
    ReasonToken.ARTIFACT_PENDING: "What it takes of an earlier phase is not there for it yet",
    ReasonToken.POWER_PREFERENCE: "It agreed to wait, and a later hour is cheaper or cleaner",
    ReasonToken.QUOTA_EXCEEDED: "Its project holds as much as it may",
    ReasonToken.RESTRICTED: "A restriction in force keeps it out of every place it could go to",
    ReasonToken.BOOKED: "It would run into maintenance, or into hosts booked for another project",
    ReasonToken.TELEMETRY_STALE: "What would have to be known is not known freshly enough",
    ReasonToken.HARDWARE_MISMATCH: "No GPU of a model that it takes is where it may go",
    ReasonToken.COOLING_MISMATCH: "No cooling of a kind that it takes is where it may go",
    ReasonToken.LOCALITY_UNSATISFIABLE: "Not even an empty fleet has what it wants so close",
    ReasonToken.GPU_SHORTAGE: "Too few GPUs are free",
    ReasonToken.TOPOLOGY_UNSATISFIABLE: "Enough GPUs are free, and not close enough together",
    ReasonToken.RACK_POWER: "The racks with free GPUs have too little power left",
    ReasonToken.FEED_POWER: "A feed or another power domain has too little left",
    ReasonToken.FEED_REDUNDANCY: "If one feed of the pair failed, the other could not carry it",
    ReasonToken.SITE_POWER: "The site has too little power left",
    ReasonToken.THERMAL: "GPUs would come too close to their slowdown temperature",
    ReasonToken.COOLING_CAPACITY: "The cooling zone cannot take its heat as well",
    ReasonToken.LINK: "A link has too little left for what it moves",
    ReasonToken.STORAGE: "Its storage endpoint has too little left",
    ReasonToken.CONCURRENCY_CAP: "As many run at once as its class or a restriction lets",
    ReasonToken.STAGGERED_START: "Others have just begun here, and their heat is still to come",
    ReasonToken.BEHIND_HIGHER_PRIORITY: "What it needs goes to somebody ahead of it",
    ReasonToken.BACKFILL_RESERVATION: "What it needs is kept for somebody who has waited for long",
}
#: Units that take a prefix; the others count things.
_PHYSICAL = frozenset(("W", "°C", "bit/s", "byte/s", "J"))
#: Of these the numbers say nothing that the sentence does not.
_WITHOUT_NUMBERS = frozenset(
    (
        ReasonToken.ON_HOLD,
        ReasonToken.SPEC_INVALID,
        ReasonToken.DEPENDENCY_NEVER_MET,
        ReasonToken.DEPENDENCY_PENDING,
    )
)


def meaning(token: str) -> str:
    """Return the meaning of a token; empty for one that is not known."""
    return MEANINGS.get(token, "")


@dataclass(frozen=True, slots=True)
class Line:
    """One reason as a line of the table. Texts are with their unit; empty: nothing to say."""

    token: str
    meaning: str
    sentence: str
    need: str
    have: str
    short: str
    where: str
    href: str
    #: when what it rests on was read, Unix s; None: not said
    seen_at: float | None
    #: the rest of what it rests on
    evidence: list[tuple[str, str]]


def line_of(reason: queue_status.ReasonLine, fleet: FleetArrays) -> Line:
    """Return a reason in words."""
    without = not reason.unit or reason.token in _WITHOUT_NUMBERS
    need, have, short = ("", "", "") if without else _columns(reason)
    where = scope_of(reason)
    at = reason.evidence.get("at")
    return Line(
        token=reason.token,
        meaning=meaning(reason.token),
        sentence=reason.sentence,
        need=need,
        have=have,
        short=short if reason.short > 0 else "",
        where="" if where is None else scopes.words(where),
        href="" if where is None else scopes.href(fleet, where),
        seen_at=float(at) if isinstance(at, int | float) else None,
        evidence=facts({name: each for name, each in reason.evidence.items() if name != "at"}),
    )


def _columns(reason: queue_status.ReasonLine) -> tuple[str, str, str]:
    """Return need, supply and shortage in words: what is shown of them adds up."""
    if reason.unit not in _PHYSICAL | {"s"} or not math.isfinite(reason.need + reason.have):
        need, have, short = (
            amount(each, reason.unit) for each in (reason.need, reason.have, reason.short)
        )
        return need, have, short
    told = balance(reason.need, reason.have, reason.unit)
    return told.told(told.need), told.told(told.have), told.told(told.short)


def lines_of(given: Iterable[queue_status.ReasonLine], fleet: FleetArrays) -> list[Line]:
    return [line_of(each, fleet) for each in given]


def scope_of(reason: queue_status.ReasonLine) -> Scope | None:
    """Return the scope of a reason; None: nowhere in particular."""
    return Scope(ScopeKind(reason.scope_kind), reason.scope_name) if reason.scope_kind else None


def amount(value: float, unit: str) -> str:
    """Return a number in the unit of a reason: ``41.2 kW``, ``12 min``, ``1 GPU``."""
    if math.isnan(value) or math.isinf(value):
        return units.DASH
    if unit in _PHYSICAL:
        return quantity(value, unit)
    if unit == "s":
        return lasted(value)
    one = unit.removesuffix("s")
    return f"{units.number(value, 0 if value == int(value) else 1)} {one if value == 1 else unit}"
