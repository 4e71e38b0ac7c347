"""What would follow if a part of the fleet failed, in words for its page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np
from django.urls import reverse

from accounts.visibility import ANOTHER, Visibility
from admission.core.outage import Consequences, Over, Slowed
from dashboard import scopes, units
from fleet.groups import above
from fleet.snapshot import FleetArrays
from policies.controller.levels import Kind
from policies.headroom.outage import KINDS
from policies.scopes import Scope, ScopeKind

__all__ = [
    "Line",
    "Named",
    "SlowedLine",
    "answer",
    "asking",
    "kinds",
    "named",
    "over_lines",
    "parts",
    "scope_of",
    "slowed_lines",
]

#: So many names are offered to choose from; others can be typed.
_MOST = 500
_AGREED = {
    Kind.AGREED: "agreed to be slower",
    Kind.UNMANAGED: "as the policy has it for load of no known owner",
    Kind.FIRM: "agreed to nothing",
}


@dataclass(frozen=True, slots=True)
class Named:
    """A job as its reader may see it, or a place. ``href`` is empty where it has no page."""

    text: str
    href: str


@dataclass(frozen=True, slots=True)
class SlowedLine:
    """What would be capped lower than now, W per GPU. ``was_w`` is None where no cap is."""

    whose: Named
    agreed: str
    gpus: int
    was_w: float | None
    cap_w: float


@dataclass(frozen=True, slots=True)
class Line:
    """A budget that would be exceeded, W."""

    where: str
    href: str
    load_w: float
    budget_w: float
    over_w: float
    short_w: float


def kinds() -> list[tuple[str, str]]:
    """Return the kinds of things that may fail, each with its words."""
    return [(kind.value, kind.value.replace("_", " ")) for kind in KINDS]


def parts(fleet: FleetArrays) -> list[str]:
    """Return names of things that may fail, those above others first, some hundreds at most."""
    domains = fleet.domains
    levels = (above(fleet, np.arange(len(domains))) >= 0).sum(axis=0)
    tops = np.argsort(levels, kind="stable")
    named = [*fleet.sites.names.tolist(), *domains.paths[tops].tolist()]
    return [*named, *fleet.zones.paths.tolist(), *fleet.racks.paths.tolist()][:_MOST]


def answer(found: Consequences) -> str:
    """Return the sentence that stands first: what would be, and whether it is in hand."""
    what = f"If {scopes.words(found.scope)} failed now, {_dark(found)}"
    if not found.over:
        return f"{what}, and no budget would be exceeded."
    over = f"{what}, and {units.count(len(found.over), 'budget')} would be exceeded"
    return f"{over}. {' '.join(_done(found))}"


def _dark(found: Consequences) -> str:
    if not found.dark_racks:
        return "no rack would lose its power"
    gpus = units.count(found.dark_gpus, "GPU")
    racks = units.count(found.dark_racks, "rack")
    jobs = f", with {units.count(len(found.hit), 'job')} on them" if found.hit else ""
    return f"{racks} with {gpus} would lose their power{jobs}"


def _done(found: Consequences) -> Iterator[str]:
    if not found.is_held:
        yield "No agent sets caps, so that nothing would be slowed."
    elif found.slowed:
        gpus = units.count(sum(each.gpus for each in found.slowed), "GPU")
        taken = units.kilowatts(found.slowed_w)
        yield f"The controller would cap {gpus} lower and take {taken} kW."
    if found.paused:
        yield f"{units.count(len(found.paused), 'job')} would stand still."
    if found.stopped:
        yield f"{units.count(len(found.stopped), 'job')} would be ended for what is left."
    if found.short_w > 0.0:
        yield f"{units.kilowatts(found.short_w)} kW would still be missing."
    elif found.slowed or found.paused or found.stopped:
        yield "That keeps them."


def over_lines(found: Consequences, fleet: FleetArrays) -> list[Line]:
    """Return the budgets that would be exceeded, those by most first."""
    return [_line(each, fleet) for each in found.over]


def _line(each: Over, fleet: FleetArrays) -> Line:
    return Line(
        where=scopes.words(each.scope),
        href=scopes.href(fleet, each.scope),
        load_w=each.load_w,
        budget_w=each.budget_w,
        over_w=each.load_w - each.budget_w,
        short_w=each.short_w,
    )


def slowed_lines(
    found: Sequence[Slowed], fleet: FleetArrays, visibility: Visibility
) -> list[SlowedLine]:
    """Return whose GPUs would be capped lower, what they agreed to, and by how much."""
    names = named([each.key for each in found], visibility)
    return [
        SlowedLine(
            whose=name if each.key else _place(each.rack, fleet),
            agreed=_AGREED[each.kind],
            gpus=each.gpus,
            was_w=each.was_w if math.isfinite(each.was_w) else None,
            cap_w=each.cap_w,
        )
        for name, each in zip(names, found, strict=True)
    ]


def _place(rack: str, fleet: FleetArrays) -> Named:
    scope = Scope(ScopeKind.RACK, rack)
    return Named(f"load of no known owner in {scopes.words(scope)}", scopes.href(fleet, scope))


def named(keys: Sequence[str], visibility: Visibility) -> list[Named]:
    """Return jobs by the keys of their attempts, as a reader may see them. One query at most."""
    return [
        Named(text, "" if text in ("", ANOTHER) else _page(text))
        for text in visibility.shown(list(keys))
    ]


def _page(key: str) -> str:
    job, phase, *_ = [*key.split("/"), ""]
    return reverse("job-page", args=[job]) + (f"?phase={phase}" if phase else "")


def asking(scope: Scope) -> str:
    """Return the query string by which the page is asked for ``scope``; empty: it cannot fail."""
    return urlencode({"kind": scope.kind.value, "name": scope.name}) if scope.kind in KINDS else ""


def scope_of(kind: str, name: str) -> Scope | None:
    """Return the scope that a query asks for; None: it asks for none that may fail."""
    known = {each.value: each for each in KINDS}
    return Scope(ScopeKind(kind), name) if kind in known and name else None
