"""Choose which running jobs give way to a waiting one.

A job asks by its class, or it asks back what is due to its project from those that hold more than
is due to them (see ``entitlement``). What the admission policy protects is left alone. Nobody is
stopped unless all that have to be are, and then those that lose least work (see ``victims``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from admission.core.cycle.entitlement import Claim, Ground
from admission.core.cycle.queue import Queue, Stage, Verdict
from admission.core.cycle.victims import Leaving, Victim, Wanted, cheapest
from admission.core.request import Request
from admission.core.response.shedding import lost_gpu_s
from admission.core.snapshot import Running
from headroom.jobs.words import lasting

__all__ = ["Asked", "preempt_for"]

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
    if wanted.fits_soon():
        queue.awaiting.add(request.key)
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
    spared = Counter[str]()
    open_ = queue.staying()
    may: list[Victim] = []
    if by_class:
        asked = _below(queue, request, open_, spared)
        may += [Victim(each, _lost(each, queue.now)) for each in asked]
    if claim is not None:
        known = {each.running.request.key for each in may}
        own = [each for each in open_ if each.request.key not in known] if known else open_
        may += _asked_back(queue, claim, own, spared if not by_class else Counter())
    return _unprotected(queue, request, may, spared), spared


def _below(
    queue: Queue, request: Request, running: Iterable[Running], spared: Counter[str]
) -> list[Running]:
    """Return the jobs that a class may have give way to one of its jobs."""
    snapshot = queue.snapshot
    highest = request.priority - snapshot.tuning.preemption_gap
    found = []
    for each in running:
        if not each.request.preemptible:
            spared["may not be stopped"] += 1
        elif not snapshot.preemption.may_stop(request.job_class, each.request.job_class):
            spared["are of a class that its class may not stop"] += 1
        elif each.request.priority > highest:
            spared[f"are not {snapshot.tuning.preemption_gap} points of priority below it"] += 1
        else:
            found.append(each)
    return found


def _asked_back(
    queue: Queue, claim: Claim, running: Sequence[Running], spared: Counter[str]
) -> list[Victim]:
    """Return the jobs that what is due to a project may be asked back from."""
    may = [each for each in running if each.request.preemptible]
    spared["may not be stopped"] += len(running) - len(may)
    # Of those of equal priority the newest: their projects took last what was not theirs.
    may.sort(key=lambda each: (each.request.priority, -each.started_at, each.request.key))
    first, last = queue.holdings.givers(claim, may)
    spared["hold no more than is due to their projects"] += len(may) - len(first) - len(last)
    lowest = min((each.request.priority for each in may), default=0)
    below_due = [0.0] * len(first) + [_BELOW_DUE] * len(last)
    return [
        Victim(
            each,
            _lost(each, queue.now) + _PER_PRIORITY * (each.request.priority - lowest) + more,
        )
        for each, more in zip((*first, *last), below_due, strict=True)
    ]


def _lost(running: Running, now: float) -> float:
    lost = lost_gpu_s(
        gpus=len(running.placement.gpus),
        started_at=running.started_at,
        last_checkpoint_at=running.last_checkpoint_at,
        now=now,
    )
    # Of those that have just saved the fewest go.
    return max(lost, 1.0)


def _was_let_ahead(running: Running, request: Request, now: float) -> bool:
    """Say whether a job has just begun while another one waited already."""
    return request.submitted_at < running.started_at > now - _LET_AHEAD_S


def _unprotected(
    queue: Queue,
    request: Request,
    victims: Sequence[Victim],
    spared: Counter[str],
) -> list[Victim]:
    """Return the jobs that the policy does not protect from a job: the cheapest of each project."""
    policy, now = queue.snapshot.preemption, queue.now
    old = [each for each in victims if now - each.running.started_at >= policy.least_runtime_s]
    if young := len(victims) - len(old):
        spared[f"have run for less than {lasting(policy.least_runtime_s)}"] += young
    established = [each for each in old if not _was_let_ahead(each.running, request, now)]
    if new := len(old) - len(established):
        spared["began while it waited, just now"] += new
    left = {
        name: max(policy.most_of(name) - queue.disrupted[name], 0)
        for name in {each.running.request.project for each in established}
    }
    found = []
    for each in sorted(established, key=lambda each: (each.cost, each.running.request.key)):
        project = each.running.request.project
        if left[project] > 0:
            left[project] -= 1
            found.append(each)
    if len(established) > len(found):
        text = "are of a project of which as many as may be have been asked within the hour"
        spared[text] += len(established) - len(found)
    return found


def _not_enough(count: int, spared: Counter[str]) -> str:
    """Say why nobody gives way though a job may ask."""
    jobs = "1 job may be asked, and is" if count == 1 else f"{count} jobs may be asked, and are"
    text = f"{jobs} not enough" if count else "nobody may be asked"
    others = [f"{number} {why}" for why, number in spared.most_common() if number]
    return text + (f": of the others {', '.join(others)}" if others else "")
