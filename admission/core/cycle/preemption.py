"""Choose which running jobs give way to a waiting one.

A job asks by its class, or it asks back what is due to its project from those that hold more than
is due to them (see ``entitlement``). What the admission policy protects is left alone. Nobody is
stopped unless all that have to be are, and then those that lose least work (see ``victims``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from admission.core.cycle.entitlement import Claim, Ground
from admission.core.cycle.queue import Queue, Stage, Verdict
from admission.core.cycle.victims import Leaving, Victim, Wanted, cheapest
from admission.core.request import Request
from admission.core.snapshot import Running
from headroom.jobs.words import lasting

__all__ = ["Asked", "preempt_for"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: A job of a point of priority more, or one whose project holds no more than is due to it then, is
#: asked back only where others are not enough: as if it lost so much more, GPU seconds.
_PER_PRIORITY, _BELOW_DUE = 1e9, 1e14
#: Whoever began while a job waited is left alone by it for so long, s, whatever the policy says: to
#: be stopped for it in the next cycle it need not have begun.
_LET_AHEAD_S = 60.0


@dataclass(frozen=True)
class Asked:
    """Who gives way to a job and on what ground, or in a sentence why nobody does.

    Nobody, and no sentence: it may not ask.
    """

    leaving: tuple[Running, ...] = ()
    ground: Ground = Ground.CLASS
    refused: str = ""


def preempt_for(queue: Queue, request: Request, rank: int, verdict: Verdict) -> Asked:
    """Return the jobs that give way to one that does not start now, and keep their places for it.

    Nobody does where neither its class nor what is due to its project lets it ask, where it will
    fit as soon without, or where all that may be asked do not free enough.
    """
    by_class = verdict.is_cured_by_ends and _asks_by_class(queue, request)
    claim, wait_s = _claim(queue, request, verdict)
    if wait_s > 0.0:
        if not by_class:
            return Asked(refused=f"may ask back what is due to its project in {lasting(wait_s)}")
        claim = None
    if claim is None and not by_class:
        return Asked()
    wanted = Wanted(queue, request, rank, by_quota=verdict.stage is Stage.QUOTAS)
    if soon := wanted.fits_soon():
        queue.await_end(request, soon)
        return Asked(refused="fits once what ends within the grace of a preemption has ended")
    victims, spared = _victims(queue, request, claim, by_class=by_class)
    found = cheapest(victims, wanted)
    if found is None:
        return Asked(refused=_not_enough(len(victims), spared))
    found = _behind_others(found, victims, wanted)
    if found is None:
        return Asked(refused="what comes free goes to jobs ahead of it, and is not enough for both")
    leaving, placement = found
    if refused := _too_many(queue, len(leaving)):
        return Asked(refused=refused)
    keys = [each.request.key for each in leaving]
    endings = [queue.endings[key] for key in keys]
    end_at = max(map(queue.left_at, endings)) + request.walltime_s
    if queue.reservations.are_put_off_by(endings, request, placement, end_at, rank):
        return Asked(refused="would stand where a job ahead of it is to")
    queue.make_room(keys, request, rank, placement)
    return Asked(leaving, Ground.CLASS if by_class or claim is None else claim.ground)


def _behind_others(found: Leaving, victims: Sequence[Victim], wanted: Wanted) -> Leaving | None:
    """Return the jobs that end where those ahead take of what comes free; None: all are too few.

    What comes free goes by the order. Were they enough for the asking job alone, they would end
    for others, and it would ask again.
    """
    leaving, _ = found
    behind = wanted.behind_others()
    placement = behind.fits([each.request.key for each in leaving])
    return cheapest(victims, behind) if placement is None else (leaving, placement)


def _asks_by_class(queue: Queue, request: Request) -> bool:
    rules = queue.snapshot.classes.get(request.job_class)
    return rules is not None and rules.preempts


def _claim(queue: Queue, request: Request, verdict: Verdict) -> tuple[Claim | None, float]:
    """Return what a job may ask back, and in how long, s; None: nothing."""
    policy = queue.snapshot.preemption
    if not (verdict.is_cured_by_ends or verdict.is_cured_by_lenders):
        return None, 0.0
    claim = queue.holdings.claim(request)
    if claim is None:
        return None, 0.0
    is_quota = claim.ground is Ground.QUOTA
    after_s = policy.reclaim_quota_after_s if is_quota else policy.reclaim_share_after_s
    if after_s is None or (verdict.is_cured_by_lenders and not is_quota):
        return None, 0.0
    return claim, max(request.submitted_at + after_s - queue.now, 0.0)


def _too_many(queue: Queue, count: int) -> str:
    """Return why no more jobs may be asked in this cycle; empty: they may.

    One job alone may ask more than a cycle does otherwise: else a large gang never could.
    """
    most, asked = queue.snapshot.tuning.max_preemptions, len(queue.leaving)
    if most > 0 and (asked == 0 or asked + count <= most):
        return ""
    return f"needs {count} jobs to end, and this cycle has asked {asked} of {most} already"


# --- Who may be asked -----------------------------------------------------------------------------


def _victims(
    queue: Queue, request: Request, claim: Claim | None, *, by_class: bool
) -> tuple[list[Victim], Counter[str]]:
    """Return the jobs that may be asked, and how many others that run are spared, and why."""
    jobs, stay, spared = queue.stayers, queue.are_staying(), Counter[str]()
    rows, costs = np.zeros(0, dtype=np.int64), np.zeros(0)
    if by_class:
        rows = _below(queue, request, stay, spared)
        costs = jobs.lost[rows]
    if claim is not None:
        own = stay.copy()
        own[rows] = False
        back = _asked_back(queue, claim, own, spared if not by_class else Counter())
        rows, costs = np.append(rows, back[0]), np.append(costs, back[1])
    return _unprotected(queue, request, rows, costs, spared), spared


def _below(queue: Queue, request: Request, stay: Bools, spared: Counter[str]) -> Ints:
    """Return which of those that stay a class may have give way to one of its jobs."""
    snapshot, jobs = queue.snapshot, queue.stayers
    gap, policy = snapshot.tuning.preemption_gap, snapshot.preemption
    may_stop = [policy.may_stop(request.job_class, each) for each in jobs.classes]
    left = stay
    for why, passes in (
        ("may not be stopped", jobs.is_preemptible),
        (
            "are of a class that its class may not stop",
            np.array(may_stop, dtype=np.bool_)[jobs.job_class],
        ),
        (f"are not {gap} points of priority below it", jobs.priority <= request.priority - gap),
    ):
        spared[why] += int((left & ~passes).sum())
        left = left & passes
    return np.flatnonzero(left)


def _asked_back(
    queue: Queue, claim: Claim, stay: Bools, spared: Counter[str]
) -> tuple[Ints, Floats]:
    """Return those that what is due to a project may be asked back from, and their costs."""
    jobs = queue.stayers
    may = jobs.asked_back[(stay & jobs.is_preemptible)[jobs.asked_back]]
    spared["may not be stopped"] += int(stay.sum()) - len(may)
    first, last = queue.holdings.givers(claim, [jobs.running[row] for row in may.tolist()])
    spared["hold no more than is due to their projects"] += len(may) - len(first) - len(last)
    rows = may[np.array([*first, *last], dtype=np.int64)]
    above = jobs.priority[rows] - jobs.priority[may].min(initial=np.inf)
    below_due = np.repeat([0.0, _BELOW_DUE], [len(first), len(last)])
    return rows, jobs.lost[rows] + _PER_PRIORITY * above + below_due


def _unprotected(
    queue: Queue, request: Request, rows: Ints, costs: Floats, spared: Counter[str]
) -> list[Victim]:
    """Return the jobs that the policy does not protect from a job: the cheapest of each project."""
    jobs, policy, now = queue.stayers, queue.snapshot.preemption, queue.now
    started_at = jobs.started_at[rows]
    is_old = now - started_at >= policy.least_runtime_s
    spared[f"have run for less than {lasting(policy.least_runtime_s)}"] += int((~is_old).sum())
    # They have just begun while it waited already.
    let_ahead = (request.submitted_at < started_at) & (started_at > now - _LET_AHEAD_S)
    spared["began while it waited, just now"] += int((is_old & let_ahead).sum())
    may = np.flatnonzero(is_old & ~let_ahead)
    may = may[np.lexsort((jobs.by_key[rows[may]], costs[may]))]
    rows, costs = rows[may], costs[may]
    left = [max(policy.most_of(name) - queue.disrupted[name], 0) for name in jobs.projects]
    project = jobs.project[rows]
    found = _place_within(project) < np.array(left, dtype=np.int64)[project]
    text = "are of a project of which as many as may be have been asked within the hour"
    spared[text] += len(rows) - int(found.sum())
    chosen = zip(rows[found].tolist(), costs[found].tolist(), strict=True)
    return [Victim(jobs.running[row], cost) for row, cost in chosen]


def _place_within(groups: Ints) -> Ints:
    """Return the place of each, from 0, among those of its group that come before it."""
    order = np.argsort(groups, kind="stable")
    found, in_order = np.empty_like(groups), groups[order]
    found[order] = np.arange(len(groups)) - np.searchsorted(in_order, in_order)
    return found


def _not_enough(count: int, spared: Counter[str]) -> str:
    """Say why nobody gives way though a job may ask."""
    jobs = "1 job may be asked, and is" if count == 1 else f"{count} jobs may be asked, and are"
    text = f"{jobs} not enough" if count else "nobody may be asked"
    others = [f"{number} {why}" for why, number in spared.most_common() if number]
    return text + (f": of the others {', '.join(others)}" if others else "")
