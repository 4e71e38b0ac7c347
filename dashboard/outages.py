"""What would follow if a part of the fleet failed, in words for its page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np
from django.urls import reverse

from accounts.visibility import ANOTHER, Visibility
from admission.core.outage import Consequences, Moves, Over, Slowed
from admission.core.reliance import Relies, Use
from dashboard import scopes, units
from fleet.snapshot import FleetArrays
from policies.controller.levels import Kind
from policies.headroom.binding import quantity
from policies.headroom.evaluate import Headroom
from policies.headroom.outage import KINDS
from policies.scopes import Scope, ScopeKind

__all__ = [
    "Line",
    "MovesLine",
    "Named",
    "Parts",
    "ReliesLine",
    "SlowedLine",
    "about",
    "answer",
    "asking",
    "kinds",
    "moves_lines",
    "named",
    "over_lines",
    "parts",
    "relies_lines",
    "scope_of",
    "slowed_lines",
    "what_if",
]

#: So many things of each kind are offered to choose from, and of one kind that is asked for.
_FEW, _MANY = 12, 300
_USES = {
    Use.GANG: "its GPUs talk over it",
    Use.DATA: "its data",
    Use.CHECKPOINTS: "its checkpoints",
    Use.STORAGE: "reads and writes",
}
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
class ReliesLine:
    """Who relies on the link or endpoint that fails, in words."""

    whose: Named
    gpus: int
    uses: str
    #: empty where it declares none
    reserved: str
    another_way: bool
    #: empty where nothing is known of checkpoints at other sites
    elsewhere: str


@dataclass(frozen=True, slots=True)
class MovesLine:
    """What fallback would do with a job, and how many of its attempts would be told to end."""

    whose: Named
    was: str
    state: str
    after_s: float
    why: str
    stopped: int


@dataclass(frozen=True, slots=True)
class Parts:
    """Things of one kind that may fail, those with the least left first; ``all``: how many."""

    kind: str
    words: str
    named: list[Named]
    all: int


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


def parts(headroom: Headroom, kind: str = "", words: str = "") -> list[Parts]:
    """Return the things that may fail, by kind; of ``kind`` alone where one is given.

    Those whose names hold all of ``words``; only kinds of which there are some.
    """
    wanted = [each for each in KINDS if kind in ("", each.value)]
    found = [_parts(headroom, each, words.lower().split(), bool(kind)) for each in wanted]
    return [each for each in found if each.all]


def _parts(headroom: Headroom, kind: ScopeKind, words: Sequence[str], is_alone: bool) -> Parts:
    table = headroom.table(kind)
    names = table.names.tolist()
    rows = [row for row, name in enumerate(names) if all(word in name.lower() for word in words)]
    left = np.nan_to_num(table.columns["tightest"][rows], nan=np.inf)
    chosen = np.asarray(rows, dtype=np.int64)[np.argsort(left, kind="stable")]
    shown = [names[row] for row in chosen[: _MANY if is_alone else _FEW].tolist()]
    return Parts(
        kind=kind.value,
        words=_plural(kind),
        named=[Named(name, what_if(Scope(kind, name))) for name in shown],
        all=len(rows),
    )


def _plural(kind: ScopeKind) -> str:
    words = kind.value.replace("_", " ")
    return {"storage": "storage endpoints", "zone": "cooling zones"}.get(words, f"{words}s")


def answer(found: Consequences) -> str:
    """Return the sentences that stand first: what would be, and whether it is in hand."""
    what = f"If {scopes.words(found.scope)} failed now, {_dark(found)}"
    if not found.over:
        said = [f"{what}, and no budget would be exceeded."]
    else:
        said = [f"{what}, and {units.count(len(found.over), 'budget')} would be exceeded."]
        said += _done(found)
    return " ".join([*said, *_relying(found), *_moving(found)])


def _relying(found: Consequences) -> Iterator[str]:
    if found.scope.kind not in (ScopeKind.LINK, ScopeKind.STORAGE):
        return
    if not found.relying:
        yield "No job that is known to run relies on it."
        return
    without = sum(not each.another_way for each in found.relying)
    jobs = units.count(len(found.relying), "job")
    verb = "relies" if len(found.relying) == 1 else "rely"
    yield f"{jobs} {verb} on it, {without or 'none'} of them without another way."


def _moving(found: Consequences) -> Iterator[str]:
    if found.moves:
        first = min(each.after_s for each in found.moves)
        jobs = units.count(len(found.moves), "job")
        yield f"Fallback would move {jobs}, the first after {units.age(first)}."


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


def about(scope: Scope, fleet: FleetArrays) -> Named:
    """Return ``scope`` in words, with its page."""
    return Named(scopes.words(scope), scopes.href(fleet, scope))


def over_lines(found: Sequence[Over], fleet: FleetArrays) -> list[Line]:
    """Return the budgets that would be exceeded, with their pages."""
    return [_line(each, fleet) for each in found]


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


def relies_lines(found: Sequence[Relies], scope: Scope, visibility: Visibility) -> list[ReliesLine]:
    """Return who relies on ``scope``, in words."""
    unit = "byte/s" if scope.kind is ScopeKind.STORAGE else "bit/s"
    return [
        ReliesLine(
            whose=name,
            gpus=each.gpus,
            uses=", ".join(_USES[use] for use in each.uses),
            reserved=quantity(each.reserved, unit) if each.reserved else "",
            another_way=each.another_way,
            elsewhere=", ".join(f"step {step} at {site}" for site, step in each.elsewhere),
        )
        for name, each in zip(named([one.key for one in found], visibility), found, strict=True)
    ]


def moves_lines(found: Sequence[Moves], visibility: Visibility) -> list[MovesLine]:
    """Return what fallback would do, the soonest first."""
    return [
        MovesLine(name, each.was.value, each.state.value, each.after_s, each.why, len(each.stopped))
        for name, each in zip(named([one.job for one in found], visibility), found, strict=True)
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


def what_if(scope: Scope) -> str:
    """Return the address of the answer for ``scope``; empty: it cannot fail."""
    query = asking(scope)
    return f"{reverse('what-if-page')}?{query}" if query else ""


def scope_of(kind: str, name: str) -> Scope | None:
    """Return the scope that a query asks for; None: it asks for none that may fail."""
    known = {each.value: each for each in KINDS}
    return Scope(ScopeKind(kind), name) if kind in known and name else None
