"""Graduated response and shedding: from today's loads to what running jobs are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import transaction

from admission.core.elastic import draw_of
from admission.core.response import (
    Level,
    Responded,
    Standing,
    Subject,
    Throttling,
    Tuning,
    is_over,
    respond,
)
from admission.core.shedding import (
    Candidate,
    Choice,
    Need,
    Reach,
    Room,
    least_loss,
    margins_by_rack,
    needs_of,
)
from admission.core.watts import Watts
from admission.directives import actions, store
from admission.directives.models import Control, Directive, Overload
from admission.directives.placed import Placed
from admission.directives.running import Active
from admission.directives.store import Wanted
from admission.jobs import catalog, requests
from admission.jobs.models import Attempt, Job
from admission.jobs.terms import terms_of_phase
from fleet.snapshot import FleetArrays
from headroom.jobs.spec import PhaseSpec, Response
from policies.headroom.evaluate import Headroom
from policies.scopes import Scope

__all__ = ["RESPONSE", "SHEDDING", "reach_of", "respond_now", "shed"]

Floats = npt.NDArray[np.float64]

RESPONSE = "response"
SHEDDING = "shedding"
#: The reason of a directive that is given again: its lease had run out.
_STILL = "its margin is still too small for it to go back"
#: Directives of the response are renewed while they are wanted, and end so long after that.
LEASE = timedelta(seconds=120)
#: What caps and pauses have not brought down by then is brought down by ending jobs.
SHED_AFTER = timedelta(seconds=30)
TUNING = Tuning()


class _Reaches:
    """The reach of the last inventory: it takes some ms to make."""

    def __init__(self) -> None:
        self._last: Reach | None = None

    def of(self, fleet: FleetArrays) -> Reach:
        if self._last is None or self._last.fleet is not fleet:
            self._last = Reach.of(fleet)
        return self._last


reach_of = _Reaches().of


# --- Graduated response ---------------------------------------------------------------------------


@transaction.atomic
def respond_now(placed: Placed, headroom: Headroom, *, now: datetime) -> Responded:
    """Have jobs give way or go back as their margins want it; return what was decided."""
    reach, room, watts = reach_of(headroom.fleet), Room.of(headroom), Watts(headroom)
    concerned = _concerned(placed, margins_by_rack(room, reach), headroom.fleet)
    subjects = [_subject(each, terms, watts) for each, terms in concerned]
    responded = respond(subjects, room, reach, now=now.timestamp(), tuning=TUNING)
    by_key = {each.attempt.key: each for each, _ in concerned}
    _save_standings(by_key, responded, now)
    wanted = _wanted(by_key, {each.key: each for each in subjects}, responded, reach, now)
    store.keep(RESPONSE, wanted, now=now, why="there is room again")
    return responded


def _concerned(
    placed: Placed, margins: Floats, fleet: FleetArrays
) -> list[tuple[Active, Throttling]]:
    """Return jobs whose margin asks for something, or that something is remembered of.

    Of the rest nothing is wanted, and most of a fleet is that.
    """
    low = placed.ids[placed.least(margins) < placed.below()].tolist()
    remembered = Control.objects.exclude(response={}).filter(attempt__state__in=Attempt.OPEN)
    found = [
        each
        for each in placed.load([*low, *remembered.values_list("attempt", flat=True)])
        if len(each.nodes) and not each.is_ending and each.attempt.started_at is not None
    ]
    terms = _throttlings(found, fleet)
    return [(each, terms[each.attempt.pk]) for each in found if each.attempt.pk in terms]


def _throttlings(concerned: Sequence[Active], fleet: FleetArrays) -> dict[int, Throttling]:
    """Return what jobs agree to, by attempt; those that do nothing are left out. Two queries."""
    if not concerned:
        return {}
    specs = dict(
        Job.objects.filter(pk__in={each.job.pk for each in concerned}).values_list("pk", "spec")
    )
    classes, found = catalog.current(), {}
    for each in concerned:
        each.job.spec = specs[each.job.pk]
        terms = terms_of_phase(each.phase, classes)
        throttling = _throttling(each, terms, fleet)
        if throttling.shrink_below is not None or throttling.pause_below is not None:
            found[each.attempt.pk] = throttling
    return found


def _throttling(each: Active, terms: PhaseSpec, fleet: FleetArrays) -> Throttling:
    """Return what a phase agrees to: a smaller batch, or else a cap, and then a pause."""
    asked, responses = terms.throttling, terms.throttling.responses or []
    pause_below = asked.pause_below if Response.PAUSE in responses else None
    scale = asked.min_batch_scale or 1.0
    if Response.SHRINK_BATCH in responses and scale < 1.0:
        return Throttling(asked.shrink_below, pause_below, scale)
    request = requests.request_of(each.phase)
    draw = draw_of(fleet, int(fleet.gpus.model[each.gpus[0]]), 0, request)
    placed_w = each.attempt.placement.get("power_cap_w") or draw.peak_w
    if Response.CONTINUE in responses and draw.lowest_w < placed_w:
        speed = draw.speed(draw.lowest_w) / draw.speed(placed_w)
        return Throttling(asked.shrink_below, pause_below, speed, draw.lowest_w)
    return Throttling(None, pause_below)


def _standing(each: Active) -> Standing:
    control: Control | None = getattr(each.attempt, "control", None)
    if control is None or not control.response:
        return Standing()
    kept = dict(control.response)
    return Standing(**{**kept, "level": Level(kept["level"]), "full_w": tuple(kept["full_w"])})


def _subject(each: Active, throttling: Throttling, watts: Watts) -> Subject:
    return Subject(
        key=each.attempt.key,
        throttling=throttling,
        standing=_standing(each),
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


def _save_standings(by_key: Mapping[str, Active], responded: Responded, now: datetime) -> None:
    rows = []
    for key, standing in responded.standings.items():
        each = by_key[key]
        is_kept, forgets = _standing(each) != Standing(), is_over(standing, now.timestamp(), TUNING)
        if is_kept if forgets else standing != _standing(each):
            kept = {} if forgets else {**asdict(standing), "level": int(standing.level)}
            rows.append(Control(attempt=each.attempt, response=kept))
    Control.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["attempt"], update_fields=["response"]
    )


def _wanted(
    by_key: Mapping[str, Active],
    subjects: Mapping[str, Subject],
    responded: Responded,
    reach: Reach,
    now: datetime,
) -> list[Wanted]:
    """Return the directives of all that have given way: those of before are renewed."""
    changes = {change.key: change for change in responded.changes}
    found = []
    for key, standing in responded.standings.items():
        change = changes.get(key)
        for kind, value in _told(subjects[key].throttling, standing.level):
            found.append(
                Wanted(
                    attempt_id=by_key[key].attempt.pk,
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
    """Yield what a job is told at a level: one that pauses is to go on as a smaller one."""
    if level is not Level.FULL and throttling.shrink_below is not None:
        if throttling.cap_w is None:
            yield Directive.Kind.SET_BATCH_SCALE, throttling.batch_scale
        else:
            yield Directive.Kind.SET_POWER_CAP, throttling.cap_w
    if level is Level.PAUSED:
        yield Directive.Kind.PAUSE, None


def _evidence(change: Any, reach: Reach) -> dict[str, Any]:
    scope, is_failover = reach.scope_at(change.place)
    return {
        "margin": round(change.margin, 4),
        "scope": {"kind": scope.kind.value, "name": scope.name},
        "if_its_pair_failed": is_failover,
        "change_w": round(change.change_w, 1),
    }


# --- Shedding -------------------------------------------------------------------------------------


@transaction.atomic
def shed(
    placed: Placed, headroom: Headroom, responded: Responded | None, *, now: datetime
) -> list[Directive]:
    """End the jobs that lose the least where more is drawn than may be, for too long.

    What is about to be freed counts as freed: by jobs that are ending, and by those that have
    ``responded``.
    """
    reach, watts = reach_of(headroom.fleet), Watts(headroom)
    room = Room.proven(headroom)
    since = _overloads(needs_of(room, reach), now)
    late = {scope for scope, at in since.items() if now - at >= SHED_AFTER}
    if not late:
        return []
    over = placed.ids[placed.least(margins_by_rack(room, reach)) < 0.0]
    running = placed.load(over.tolist())
    if responded is not None:
        room = Room(room.budget_w, np.maximum(room.left_w, responded.left_w))
    _free_what_ends(room, reach, watts, running)
    needs = [need for need in needs_of(room, reach) if need.scope in late]
    if not needs:
        return []
    choice = least_loss(_candidates(running, watts, now), needs, reach)
    return _end(choice, needs, running, now)


def _overloads(needs: Sequence[Need], now: datetime) -> dict[Scope, datetime]:
    """Note which scopes are over their budget; return since when each is."""
    over = {need.scope for need in needs}
    known = {row.scope: row for row in Overload.objects.all()}
    Overload.objects.filter(pk__in=[row.pk for s, row in known.items() if s not in over]).delete()
    Overload.objects.bulk_create(
        [
            Overload(scope_kind=scope.kind.value, scope_name=scope.name, since=now)
            for scope in over - known.keys()
        ],
        ignore_conflicts=True,
    )
    return {scope: known[scope].since if scope in known else now for scope in over}


def _free_what_ends(room: Room, reach: Reach, watts: Watts, running: Sequence[Active]) -> None:
    for each in running:
        if each.is_ending and len(each.nodes):
            freed_w = np.maximum(watts.drawn_w(each) - watts.idle_w(each), 0.0)
            places, carried_w = reach.carried(each.nodes.tolist(), freed_w.tolist())
            room.left_w[places] += carried_w


def _candidates(running: Sequence[Active], watts: Watts, now: datetime) -> list[Candidate]:
    """Return who could go. Jobs that may not be preempted go last, when no other is left."""
    return [
        Candidate(
            key=each.attempt.key,
            nodes=tuple(each.nodes.tolist()),
            watts=tuple(np.maximum(watts.drawn_w(each) - watts.idle_w(each), 0.0).tolist()),
            lost_gpu_s=each.lost_gpu_s(now.timestamp()),
            tier=0 if each.is_preemptible else 1,
        )
        for each in running
        if len(each.nodes) and not each.is_ending
    ]


def _end(
    choice: Choice, needs: Sequence[Need], running: Sequence[Active], now: datetime
) -> list[Directive]:
    by_key = {each.attempt.key: each.attempt for each in running}
    where = ", ".join(f"{need.scope} by {need.watts / 1e3:.1f} kW" for need in needs[:3])
    more = f" and {len(needs) - 3} more" if len(needs) > 3 else ""
    given = []
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
        given += actions.stop(
            [by_key[candidate.key]], owner=SHEDDING, cause=f"overload:{needs[0].scope}", why=why,
            now=now, evidence=evidence,
        )  # fmt: skip
    return given
