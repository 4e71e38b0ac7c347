"""Graduated response and shedding: from today's loads to directives for running jobs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from admission.core.allocation.watts import Watts
from admission.core.directives.book import DirectiveBook, Kind, Wanted
from admission.core.directives.placed import Active, Placed
from admission.core.placement.elastic import draw_of
from admission.core.response.respond import (
    Level,
    Responded,
    ResponseStatus,
    Subject,
    Throttling,
    Tuning,
    is_over,
    respond,
)
from admission.core.response.shedding import Candidate, Choice, least_loss
from fleet.tables import FleetArrays
from policies.headroom.columns import Bools
from policies.headroom.evaluate import Headroom
from policies.headroom.reach import Need, Reach, Room, margins_by_rack, needs_of, reach_of

__all__ = [
    "LEASE",
    "RESPONSE",
    "SHEDDING",
    "SHED_AFTER_S",
    "candidates_of",
    "respond_now",
    "settled",
    "shed",
]

Floats = npt.NDArray[np.float64]

RESPONSE = "response"
SHEDDING = "shedding"
#: The reason of a directive that is given again: its lease had run out.
_STILL = "its margin is still too small for it to go back"
#: Directives of the response are renewed while they are wanted, and end so long after that.
LEASE = timedelta(seconds=120)
#: What caps and pauses have not brought down by then is brought down by ending jobs.
SHED_AFTER_S = 30.0


# --- Graduated response ---------------------------------------------------------------------------


def respond_now(
    placed: Placed,
    directives: DirectiveBook[Any],
    headroom: Headroom,
    *,
    tuning: Tuning,
    now: datetime,
    kept: Bools | None = None,
) -> Responded:
    """Have jobs give way or go back as their margins demand; return the decisions.

    ``kept`` says of which budgets of the reach caps take care: nobody gives way for these.
    """
    reach, room, watts = reach_of(headroom.fleet), Room.of(headroom), Watts(headroom)
    if kept is not None:
        room = room.without(kept)
    with directives.store.writing():
        concerned = _concerned(placed, margins_by_rack(room, reach))
        subjects = [_subject(each, terms, watts) for each, terms in concerned]
        responded = respond(subjects, room, reach, now=now.timestamp(), tuning=tuning)
        by_key = {each.key: each for each, _ in concerned}
        _remember(placed, by_key, responded, tuning, now)
        wanted = _wanted(by_key, {each.key: each for each in subjects}, responded, reach, now)
        directives.keep(RESPONSE, wanted, now=now, by=RESPONSE, why="there is room again")
    return responded


def _concerned(placed: Placed, margins: Floats) -> list[tuple[Active, Throttling]]:
    """Return jobs whose margin calls for a change, or that have a response status.

    Of the rest nothing is wanted, and most of a fleet is that.
    """
    low = placed.ids[placed.least(margins) < placed.below()].tolist()
    found = [
        each
        for each in placed.load([*low, *placed.remembered()])
        if len(each.nodes) and not each.is_ending and each.has_begun
    ]
    agreed = placed.agreed(found)
    terms = {pk: settled(each, agreed[pk], placed.fleet) for pk, each in _by_id(found).items()}
    return [(each, terms[each.id]) for each in found if _does_something(terms[each.id])]


def _by_id(active: Sequence[Active]) -> dict[int, Active]:
    return {each.id: each for each in active}


def _does_something(terms: Throttling) -> bool:
    return terms.shrink_below is not None or terms.pause_below is not None


def settled(each: Active, agreed: Throttling, fleet: FleetArrays) -> Throttling:
    """Return the throttling of an attempt: a smaller batch, or else a cap, and then a pause."""
    if agreed.shrink_below is None or agreed.batch_scale < 1.0:
        return agreed
    draw = draw_of(fleet, int(fleet.gpus.model[each.gpus[0]]), 0, each.request)
    placed_w = each.placed_cap_w or draw.peak_w
    if draw.lowest_w >= placed_w:
        return Throttling(None, agreed.pause_below)
    speed = draw.speed(draw.lowest_w) / draw.speed(placed_w)
    return Throttling(agreed.shrink_below, agreed.pause_below, speed, draw.lowest_w)


def _subject(each: Active, throttling: Throttling, watts: Watts) -> Subject:
    return Subject(
        key=each.key,
        throttling=throttling,
        status=each.status,
        gpus=each.gpu_count,
        nodes=tuple(each.nodes.tolist()),
        draw_w=tuple(watts.drawn_w(each).tolist()),
        floor_w=tuple(watts.idle_w(each).tolist()),
        peak_w=tuple(watts.peak_w(each).tolist()),
        capped_w=(
            None
            if throttling.cap_w is None
            else tuple(watts.capped_w(each, throttling.cap_w).tolist())
        ),
    )


def _remember(
    placed: Placed,
    by_key: Mapping[str, Active],
    responded: Responded,
    tuning: Tuning,
    now: datetime,
) -> None:
    changed = {}
    for key, status in responded.statuses.items():
        after = ResponseStatus() if is_over(status, now.timestamp(), tuning) else status
        if after != by_key[key].status:
            changed[by_key[key].id] = after
    placed.remember(changed)


def _wanted(
    by_key: Mapping[str, Active],
    subjects: Mapping[str, Subject],
    responded: Responded,
    reach: Reach,
    now: datetime,
) -> list[Wanted]:
    """Return the directives of all jobs that have given way: those of before are renewed."""
    changes = {change.key: change for change in responded.changes}
    found = []
    for key, status in responded.statuses.items():
        change = changes.get(key)
        for kind, value in _told(subjects[key].throttling, status.level):
            found.append(
                Wanted(
                    attempt_id=by_key[key].id,
                    kind=kind,
                    value=value,
                    owner=RESPONSE,
                    cause="power",
                    reason=_STILL if change is None else change.sentence,
                    expires_at=now + LEASE,
                    evidence={} if change is None else _evidence(change, reach),
                )
            )
    return found


def _told(throttling: Throttling, level: Level) -> Iterator[tuple[str, float | None]]:
    """Yield the directives of a level: one that pauses is to go on as a smaller one."""
    if level is not Level.FULL and throttling.shrink_below is not None:
        if throttling.cap_w is None:
            yield Kind.SET_BATCH_SCALE, throttling.batch_scale
        else:
            yield Kind.SET_POWER_CAP, throttling.cap_w
    if level is Level.PAUSED:
        yield Kind.PAUSE, None


def _evidence(change: Any, reach: Reach) -> dict[str, Any]:
    if math.isinf(change.margin):  # caps keep every budget above it
        return {"change_w": round(change.change_w, 1)}
    scope, is_failover = reach.scope_at(change.place)
    return {
        "margin": round(change.margin, 4),
        "scope": {"kind": scope.kind.value, "name": scope.name},
        "if_its_pair_failed": is_failover,
        "change_w": round(change.change_w, 1),
    }


# --- Shedding -------------------------------------------------------------------------------------


def shed(
    placed: Placed,
    headroom: Headroom,
    responded: Responded | None,
    *,
    after_s: float,
    now: datetime,
) -> None:
    """End the jobs that lose the least where more is drawn than may be, for too long.

    What is about to be freed counts as freed: by jobs that are ending, and by those that have
    ``responded``.
    """
    reach, watts = reach_of(headroom.fleet), Watts(headroom)
    room = Room.proven(headroom)
    since = placed.overloads({need.scope for need in needs_of(room, reach)}, now)
    late = {scope for scope, at in since.items() if (now - at).total_seconds() >= after_s}
    if not late:
        return
    over = placed.ids[placed.least(margins_by_rack(room, reach)) < 0.0]
    running = placed.load(over.tolist())
    if responded is not None:
        left_w = np.where(np.isinf(responded.left_w), room.left_w, responded.left_w)
        room = Room(room.budget_w, np.maximum(room.left_w, left_w))
    _free_what_ends(room, reach, watts, running)
    needs = [need for need in needs_of(room, reach) if need.scope in late]
    if needs:
        choice = least_loss(candidates_of(running, watts, now), needs, reach)
        _end(placed, choice, needs, running, now)


def _free_what_ends(room: Room, reach: Reach, watts: Watts, running: Sequence[Active]) -> None:
    for each in running:
        if each.is_ending and len(each.nodes):
            freed_w = np.maximum(watts.drawn_w(each) - watts.idle_w(each), 0.0)
            places, carried_w = reach.carried(each.nodes.tolist(), freed_w.tolist())
            room.left_w[places] += carried_w


def candidates_of(running: Sequence[Active], watts: Watts, now: datetime) -> list[Candidate]:
    """Return the candidates for shedding. Jobs that may not be preempted go last."""
    return [
        Candidate(
            key=each.key,
            nodes=tuple(each.nodes.tolist()),
            watts=tuple(np.maximum(watts.drawn_w(each) - watts.idle_w(each), 0.0).tolist()),
            lost_gpu_s=each.lost_gpu_s(now.timestamp()),
            tier=0 if each.request.preemptible else 1,
        )
        for each in running
        if len(each.nodes) and not each.is_ending
    ]


def _end(
    placed: Placed,
    choice: Choice,
    needs: Sequence[Need],
    running: Sequence[Active],
    now: datetime,
) -> None:
    by_key = {each.key: each for each in running}
    where = ", ".join(f"{need.scope} by {need.watts / 1e3:.1f} kW" for need in needs[:3])
    more = f" and {len(needs) - 3} more" if len(needs) > 3 else ""
    for candidate in choice.chosen:
        why = (
            f"{where}{more} over budget: frees {candidate.total_w / 1e3:.1f} kW and loses "
            f"{candidate.lost_gpu_s / 3600:.1f} GPU·h of work, the least for the watts"
        )
        evidence = {
            "needs": [
                {"kind": n.scope.kind.value, "name": n.scope.name, "w": round(n.watts, 1)}
                for n in needs[:20]
            ],
            "change_w": -round(candidate.total_w, 1),
            "lost_gpu_s": round(candidate.lost_gpu_s, 1),
        }
        placed.stop(
            [by_key[candidate.key]], owner=SHEDDING, cause=f"overload:{needs[0].scope}", why=why,
            now=now, evidence=evidence,
        )  # fmt: skip
