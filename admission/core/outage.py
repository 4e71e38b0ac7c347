"""What follows when a part of the fleet fails: who is hit, what is over, who gives way. Pure.

The controller decides on the load that would then be, as it would in the round after; fallback
decides on the sites as they would then be, were they to stay so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from admission.core.allocation.allocations import Allocations
from admission.core.directives.fallback import Falling, facts_about, leaves
from admission.core.holding import Holding
from admission.core.reliance import Relies, relying_on
from admission.core.response.checkpoints import Known
from admission.core.response.fallback import Fallback, Policy, Transition, first_way
from admission.core.response.shedding import Candidate, Choice, least_loss
from admission.core.response.sites import Sites
from policies.controller.levels import Kind
from policies.headroom.columns import Bools, Floats
from policies.headroom.evaluate import Headroom
from policies.headroom.outage import Outage
from policies.headroom.reach import ROUNDING_W, Room, needs_of, reach_of
from policies.restrictions.strictest import InForce
from policies.scopes import Scope

__all__ = [
    "Consequences",
    "Hit",
    "Knowledge",
    "Moves",
    "Over",
    "Slowed",
    "consequences",
]

#: A cap that is lower by less than this is no other cap, W.
_LEAST_W = 1.0


@dataclass(frozen=True)
class Over:
    """A budget that would be exceeded. ``short_w``: what caps cannot take off it, W."""

    scope: Scope
    load_w: float
    budget_w: float
    short_w: float


@dataclass(frozen=True)
class Hit:
    """An attempt of which ``dark`` of its ``gpus`` would have no power."""

    key: str
    gpus: int
    dark: int


@dataclass(frozen=True)
class Slowed:
    """What would be capped lower than now, W per GPU, and has power.

    ``key`` is that of an attempt; empty: load of no known owner in ``rack``, all of it together.
    ``was_w`` is the lowest cap of now, infinite for none, and ``cap_w`` the lowest then.
    """

    key: str
    rack: str
    kind: Kind
    gpus: int
    was_w: float
    cap_w: float


@dataclass(frozen=True)
class Moves:
    """A job that fallback would bring to ``state`` once it has been so for ``after_s``.

    ``stopped`` are the keys of its attempts that would be told to end: their phases wait again.
    """

    job: str
    was: Fallback
    state: Fallback
    why: str
    after_s: float
    stopped: tuple[str, ...]


@dataclass(frozen=True)
class Consequences:
    """What follows when ``scope`` fails.

    ``relying`` are those that rely on the link or endpoint that fails, ``moves`` what fallback does
    that it would not do anyway.

    ``is_held``: caps can be counted on somewhere, so that the controller acts; ``stopped`` are
    those that would be ended for what caps and pauses leave, ``short_w`` what even that leaves, W.
    """

    scope: Scope
    dark_racks: int
    dark_gpus: int
    dark_w: float
    hit: tuple[Hit, ...]
    over: tuple[Over, ...]
    is_held: bool
    slowed: tuple[Slowed, ...]
    slowed_w: float
    paused: tuple[str, ...]
    stopped: tuple[str, ...]
    short_w: float
    relying: tuple[Relies, ...] = ()
    moves: tuple[Moves, ...] = ()


@dataclass(frozen=True)
class Knowledge:
    """What is known of the jobs of a moment besides their allocations.

    ``falling`` returns the jobs whose fallback is looked at under some conditions, ``checkpoints``
    what is known of those of jobs by name.
    """

    in_force: InForce
    policy: Policy
    candidates: Candidates
    falling: Callable[[Sites], Iterable[Falling]]
    checkpoints: Callable[[Collection[str]], Mapping[str, Known]]


#: The candidates to end among attempts, given by their ids, at what they draw in a headroom.
Candidates = Callable[[Headroom, Sequence[int]], Sequence[Candidate]]


def consequences(
    outage: Outage,
    headroom: Headroom,
    held: Allocations,
    now: Holding | None,
    then: Holding | None,
    known: Knowledge,
) -> Consequences:
    """Return what follows of ``outage``, beside ``headroom`` and the controller as they are now.

    ``then`` is what the controller makes of the fleet after it; None: it has nothing to act on.
    """
    fleet, rack_w = headroom.fleet, headroom.summary.racks.load_w
    room = Room.of(outage.after)
    short_w = _short_w(room, then)
    choice = _stopped(outage, held, then, replace(room, left_w=-short_w), known.candidates)
    slowed = () if then is None else _slowed(outage, held, now, then)
    return Consequences(
        scope=outage.scope,
        dark_racks=int(outage.dark.sum()),
        dark_gpus=int(fleet.node_gpus[outage.dark[fleet.nodes.rack]].sum()),
        dark_w=float(rack_w[outage.dark].sum()),
        hit=_hit(outage.dark_gpus, held),
        over=_over(outage, room, short_w),
        is_held=then is not None,
        slowed=slowed,
        slowed_w=0.0 if then is None else _slowed_w(outage, now, then),
        paused=() if then is None else _paused(held, then),
        stopped=tuple(each.key for each in choice.chosen),
        short_w=max(choice.short_w, default=0.0),
        relying=relying_on(outage.scope, held, known.checkpoints),
        moves=_moves(outage, headroom, held, known),
    )


# --- Fallback -------------------------------------------------------------------------------------


def _moves(
    outage: Outage, headroom: Headroom, held: Allocations, known: Knowledge
) -> tuple[Moves, ...]:
    """Return what fallback would do of the outage, and would not do as things are now."""
    before = Sites(headroom, known.in_force)
    after = Sites(outage.after, known.in_force, outage.dark_gpus)
    found = []
    for job in known.falling(after):
        first = _first_way(job, after, known.policy)
        anyway = _first_way(job, before, known.policy)
        if first is None or (anyway is not None and anyway[1].state is first[1].state):
            continue
        found.append(_move(job, *first, headroom.at, held))
    return tuple(sorted(found, key=lambda each: (each.after_s, each.job)))


def _first_way(job: Falling, sites: Sites, policy: Policy) -> tuple[float, Transition] | None:
    return first_way(job.status, facts_about(job, sites), policy, now=sites.headroom.at)


def _move(job: Falling, at: float, taken: Transition, now: float, held: Allocations) -> Moves:
    name = job.request.job
    stopped = [
        each.key
        for each in held.attempts
        if each.request.job == name and leaves(taken.state, job.home, each.placement.sites)
    ]
    return Moves(name, taken.was, taken.state, taken.why, round(at - now), tuple(stopped))


# --- Power ----------------------------------------------------------------------------------------


def _hit(dark: Bools, held: Allocations) -> tuple[Hit, ...]:
    found = []
    for attempt, rows in held.each():
        gpus = held.gpu_rows(rows)
        if (lost := int(dark[gpus].sum())) > 0:
            found.append(Hit(attempt.key, len(gpus), lost))
    return tuple(sorted(found, key=lambda each: (-each.dark, each.key)))


def _short_w(room: Room, then: Holding | None) -> Floats:
    """Return of each budget what caps leave above it, W; without a controller all that is above."""
    over_w = np.nan_to_num(-room.left_w, nan=0.0, neginf=0.0)
    over_w = np.where(over_w > ROUNDING_W, over_w, 0.0)
    return over_w if then is None else np.minimum(over_w, then.found.filled.short_w)


def _over(outage: Outage, room: Room, short_w: Floats) -> tuple[Over, ...]:
    reach, found = reach_of(outage.after.fleet), []
    for need in needs_of(room, reach):
        place = reach.place_of(need)
        budget_w = float(room.budget_w[place])
        found.append(Over(need.scope, budget_w + need.watts, budget_w, float(short_w[place])))
    return tuple(sorted(found, key=lambda each: each.budget_w - each.load_w))


def _slowed(
    outage: Outage, held: Allocations, now: Holding | None, then: Holding
) -> tuple[Slowed, ...]:
    was_w, units = _caps(now), then.units
    keys = {each.id: each.key for each in held.attempts}
    has_power = ~outage.dark_gpus[units.gpu]
    first = np.zeros(len(units), dtype=np.int64)
    first[units.unit[::-1]] = units.gpu[::-1]  # of several the last one written stays
    gpus = np.bincount(units.unit[has_power], minlength=len(units))
    found: dict[tuple[str, str], Slowed] = {}
    for unit, (id_, cap_w) in enumerate(_caps(then).items()):
        before_w = was_w.get(id_, np.inf)
        lower = np.isfinite(cap_w) and cap_w < before_w - _LEAST_W
        if not lower or units.is_starting[unit] or not gpus[unit]:
            continue
        key = keys.get(id_, "")
        rack = "" if key else _rack_of(outage, int(first[unit]))
        each = Slowed(key, rack, Kind(int(units.kind[unit])), int(gpus[unit]), before_w, cap_w)
        found[key, rack] = _together(found.get((key, rack)), each)
    return tuple(sorted(found.values(), key=lambda each: (-each.gpus, each.key, each.rack)))


def _rack_of(outage: Outage, gpu: int) -> str:
    fleet = outage.after.fleet
    return str(fleet.racks.paths[fleet.nodes.rack[fleet.gpus.node[gpu]]])


def _together(known: Slowed | None, more: Slowed) -> Slowed:
    if known is None:
        return more
    return replace(
        known,
        gpus=known.gpus + more.gpus,
        was_w=min(known.was_w, more.was_w),
        cap_w=min(known.cap_w, more.cap_w),
    )


def _caps(holding: Holding | None) -> dict[int, float]:
    """Return the cap of each unit by its id, W, in the order of units; infinite: none."""
    if holding is None:
        return {}
    return dict(zip(holding.units.id.tolist(), holding.found.cap_w.tolist(), strict=True))


def _slowed_w(outage: Outage, now: Holding | None, then: Holding) -> float:
    """Return by how much less the GPUs that are not dark would draw for the lower caps, W."""
    count = len(outage.dark_gpus)
    drawn_w = outage.after.summary.gpus.load_w
    before_w, after_w = (_limit_w(each, count) for each in (now, then))
    less_w = np.minimum(drawn_w, before_w) - np.minimum(drawn_w, np.minimum(before_w, after_w))
    return float(less_w[~outage.dark_gpus].sum())


def _limit_w(holding: Holding | None, count: int) -> Floats:
    limit_w = np.full(count, np.inf)
    if holding is not None:
        limit_w[holding.units.gpu] = holding.found.cap_w[holding.units.unit]
    return limit_w


def _paused(held: Allocations, then: Holding) -> tuple[str, ...]:
    keys = {each.id: each.key for each in held.attempts}
    new = then.paused.saves_w.keys() - then.before.saves_w.keys()
    return tuple(sorted(keys[each] for each in new if each in keys))


def _stopped(
    outage: Outage,
    held: Allocations,
    then: Holding | None,
    room: Room,
    candidates: Candidates,
) -> Choice:
    """Return who would be ended for what caps leave above budgets, by the least loss of work.

    ``room`` is what caps leave.
    """
    reach = reach_of(outage.after.fleet)
    needs = needs_of(room, reach)
    if not needs:
        return Choice((), 0.0, ())
    low = outage.after if then is None else then.brought_down()[0]
    places = [reach.place_of(need) for need in needs]
    below: Bools = np.asarray(np.isin(reach.place, places).any(axis=1))
    fleet = outage.after.fleet
    gpu_below = below[fleet.nodes.rack[fleet.gpus.node]] & ~outage.dark_gpus
    ids = [
        attempt.id
        for attempt, rows in held.each()
        if attempt.is_running and gpu_below[held.gpu_rows(rows)].any()
    ]
    return least_loss(candidates(low, ids), needs, reach)
