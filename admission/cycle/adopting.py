"""Adopt the jobs of schedulers that people have already: a job of ours for each of theirs.

What waits there waits in our queue, and starts when a cycle admits it; what runs there is counted
at once, as what it may draw. Each call makes good what is not so yet, so it may die anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q

from admission.allocation import open_attempts
from admission.core.placement.cluster import Cluster
from admission.core.placement.found import found_on
from admission.core.placement.gpu_use import GpuUse
from admission.core.request import Request, placement_as_json
from admission.cycle import adopted_spec, crossing
from admission.cycle.adopted_spec import Adopted
from admission.executors.node_queue import moment
from admission.executors.protocol import WorkOutcomeKind
from admission.executors.schedulers import registered
from admission.executors.schedulers.leases import RUNS
from admission.executors.schedulers.models import (
    Lease,
    SchedulerJob,
    SchedulerJobQuerySet,
    SchedulerNode,
)
from admission.jobs import catalog, elements, history, progress, resolution
from admission.jobs.models import Attempt, Job, JobEvent, Phase, Project
from admission.policy.catalog import policy_in_force
from fleet import snapshot
from fleet.slicing import model_name
from headroom.jobs import reading
from headroom.jobs.spec import slug
from headroom.schedulers import contract
from headroom.schedulers.contract import EndedAs, JobState, NodeState

__all__ = ["ADOPTED", "FOUND", "adopt", "count_running", "follow"]

#: The kinds of events.
ADOPTED, FOUND = "adopted", "found"
#: Who holds a phase that waits for something in its scheduler.
_SCHEDULER = "its scheduler"
#: Ends of which a silent node knows nothing.
_UNSEEN = (WorkOutcomeKind.LOST, WorkOutcomeKind.STOPPED)
#: Bridges read nodes this often, or with the end of a job, and some time passes until we hear.
_TOLD_WITHIN = timedelta(seconds=15)
#: As many as one cycle adopts.
_MOST = 2000
_AT_ONCE = 500
#: What changes of a phase that was found to run.
_BEGUN = (
    "state", "started_at", "expected_end_at", "reason", "reason_since", "held_by", "hold_reason",
)  # fmt: skip


def adopt(now: float) -> int:
    """Bring our jobs to what their schedulers tell of theirs; return how many were adopted."""
    if not registered.names():
        return 0
    at = moment(now)
    # What is to be told of attempts before the reconciliation closes them.
    _settle(at, told__ended_as=EndedAs.CANCELLED)
    _cancel_there()
    crossing.call_off()
    new = list(_open().filter(is_adopted=False, cancel_for="").order_by("pk")[:_MOST])
    new = crossing.arrive(new)
    _follow_changes()
    return _adopt(new, at) if new else 0


def _open() -> SchedulerJobQuerySet:
    return SchedulerJob.objects.open().select_related("scheduler")


# --- Over, there or here -------------------------------------------------------------------------


def _settle(at: datetime, **which: str) -> None:
    """End our jobs whose own ones are over. Attempts are closed by the reconciliation, first."""
    over = SchedulerJob.objects.filter(~Exists(crossing.LEAVING), is_settled=False)
    over = over.exclude(ended_at=None)
    ours = Job.objects.filter(name=OuterRef("name"), state__in=Job.OPEN)
    attempts = Attempt.objects.open().filter(phase__job__name=OuterRef("name"))
    is_done = ~Exists(ours) & ~Exists(attempts)
    over.filter(Q(is_adopted=False) | is_done).update(is_settled=True)
    for row in over.filter(is_adopted=True, **which)[:_MOST]:
        with transaction.atomic():
            _settle_one(row, at)


def _settle_one(row: SchedulerJob, at: datetime) -> None:
    job = Job.objects.select_for_update().filter(name=row.name).first()
    if job is not None:
        told = row.report
        why = (told.why or f"its scheduler says {told.ended_as}")[:500]
        attempts = Attempt.objects.open().filter(phase__job=job)
        if told.ended_as is EndedAs.CANCELLED:
            attempts.filter(outcome="").update(outcome=Attempt.Outcome.CANCELLED, why=why)
        # Admitted as it was about to end: nobody has heard of it, and nobody will tell its end.
        unheard = attempts.filter(outcome="").exclude(key__in=row.leases.values("key"))
        unheard.update(outcome=Attempt.Outcome.CANCELLED, why=why)
        if attempts.exists():
            return
        state = _ENDS.get(told.ended_as or EndedAs.LOST, Phase.State.FAILED)
        if told.ended_as is EndedAs.LOST and told.started_at is None:
            # It waited, and is not known there any more.
            state = Phase.State.CANCELLED
        for phase in job.phases.open():
            progress.phase_ended(phase, state, at, why, job=job)
    row.is_settled = True
    row.save(update_fields=["is_settled"])


_ENDS = {
    EndedAs.SUCCEEDED: Phase.State.SUCCEEDED,
    EndedAs.CANCELLED: Phase.State.CANCELLED,
}


def _cancel_there() -> None:
    """Cancel jobs of schedulers that were cancelled here, or that failed for good."""
    over = Job.objects.filter(name=OuterRef("name")).exclude(state__in=Job.OPEN)
    open_there = SchedulerJob.objects.open().filter(is_adopted=True, cancel_for="")
    open_there.filter(Exists(over)).update(cancel_for="it is over in Headroom")


# --- New ones ------------------------------------------------------------------------------------


def _adopt(rows: Sequence[SchedulerJob], at: datetime) -> int:
    """Make a job of ours for each of ``rows``. All at once: hundreds come with the first report."""
    specifications, names = _Specifications(rows), [row.name for row in rows]
    taken = set(Job.objects.filter(name__in=names).values_list("name", flat=True))
    jobs: list[Job] = []
    phases: list[Phase] = []
    adopted: list[tuple[Job, SchedulerJob, tuple[str, ...]]] = []
    for row in rows:
        if row.name in taken:
            # Somebody has submitted one of that name to us.
            row.name = f"{row.name}-{row.pk}"
        row.is_adopted = True
        project, found = specifications.of(row)
        job, its = _job(row, project, found)
        jobs.append(job)
        phases += its
        adopted.append((job, row, found.wrong))
    with transaction.atomic():
        Job.objects.bulk_create(jobs, _AT_ONCE)
        Phase.objects.bulk_create(phases, _AT_ONCE)
        told = [_adopted(job, row, wrong, at) for job, row, wrong in adopted]
        JobEvent.objects.bulk_create(told, _AT_ONCE)
        SchedulerJob.objects.bulk_update(rows, ["is_adopted", "name"], _AT_ONCE)
    return len(rows)


class _Specifications:
    """Specifications of jobs, with their projects: what all have in common is looked up once."""

    def __init__(self, rows: Sequence[SchedulerJob]) -> None:
        self._classes = catalog.current()
        self._models = snapshot.current().models.names.tolist()
        self._projects, self._grants = _projects(rows), policy_in_force().grants
        self._sites = registered.sites_of(registered.executor_by_node(), snapshot.current())

    def of(self, row: SchedulerJob) -> tuple[Project, Adopted]:
        project = self._projects[_project_name(row)]
        allowed = self._grants.allowed(project.name, self._classes.values())
        may = {*allowed, *adopted_spec.CLASSES}
        mine = {name: each for name, each in self._classes.items() if name in may}
        found = adopted_spec.spec_of(row, project.name, mine, self._models, self._sites)
        return project, found


def _follow_changes() -> None:
    """Have jobs that wait ask for what their scheduler now says that they ask for.

    An owner has changed it, or the scheduler has: Kueue chooses other nodes each time that it
    reserves quota. Those that have begun ask anew when they wait again.
    """
    rows = list(_open().filter(is_adopted=True, is_changed=True).order_by("pk")[:_MOST])
    if not rows:
        return
    specifications = _Specifications(rows)
    with transaction.atomic():
        found = Job.objects.select_for_update().filter(name__in=[row.name for row in rows])
        jobs = {job.name: job for job in found.order_by("pk")}
        pending = Phase.objects.pending().filter(job__in=jobs.values())
        phases = {phase.job_id: phase for phase in pending}
        for row in rows:
            job = jobs.get(row.name)
            if job is None or job.pk in phases:
                row.is_changed = False
            if job is not None and job.pk in phases:
                _, new = specifications.of(row)
                _ask_anew(job, phases[job.pk], new)
        Job.objects.bulk_update(
            jobs.values(), ["job_class", "priority", "spec", "labels", "pipeline"], _AT_ONCE
        )
        Phase.objects.bulk_update(phases.values(), ["request", "gpus", "name"], _AT_ONCE)
        SchedulerJob.objects.bulk_update(rows, ["is_changed"], _AT_ONCE)


def _ask_anew(job: Job, phase: Phase, new: Adopted) -> None:
    spec = new.resolved.spec
    job.job_class, job.priority, job.spec = spec.job_class, spec.priority, reading.as_json(spec)
    job.labels, job.pipeline = spec.labels, new.pipeline
    (asked,) = resolution.requests_of(new.resolved, name=job.name, submitted_at=job.submitted_at)
    phase.request, phase.gpus = resolution.stored(asked), asked.gpus
    phase.name = spec.phases[0].name


def _job(row: SchedulerJob, project: Project, found: Adopted) -> tuple[Job, list[Phase]]:
    told, spec = row.report, found.resolved.spec
    submitted_at = moment(told.submitted_at)
    job = Job(
        name=row.name,
        project=project,
        job_class=spec.job_class,
        priority=spec.priority,
        spec=reading.as_json(spec),
        spec_version=spec.version,
        submitted_by=told.user or row.scheduler.name,
        submitted_at=submitted_at,
        labels=spec.labels,
        pipeline=found.pipeline,
    )
    requests = resolution.requests_of(found.resolved, name=row.name, submitted_at=submitted_at)
    return job, elements.phase_rows(job, spec, requests, submitted_at)


def _adopted(job: Job, row: SchedulerJob, wrong: Sequence[str], at: datetime) -> JobEvent:
    told = row.report
    text = f"Adopted from {row.scheduler}: job {row.ref} of {told.user}, {told.name!r}"
    if wrong:
        text += f"; of its comment was left out: {'; '.join(wrong)}"
    return history.event(job.pk, ADOPTED, text, at, ref=row.ref, scheduler=row.scheduler.name)


def _project_name(row: SchedulerJob) -> str:
    """Return the project of a job by its account; without one, that of its scheduler."""
    return slug(row.report.account, 60) or row.scheduler.name


def _projects(rows: Sequence[SchedulerJob]) -> dict[str, Project]:
    """Return the projects of jobs by name. Those that there are not yet are made."""
    names = {_project_name(row) for row in rows}
    found = {each.name: each for each in Project.objects.filter(name__in=names)}
    for name in sorted(names - found.keys()):
        found[name], _ = Project.objects.get_or_create(
            name=name, defaults={"description": "Made for adopted jobs"}
        )
    return found


# --- What waits for something there --------------------------------------------------------------


def follow(now: float) -> None:
    """Settle what the reconciliation has closed, and hold what waits for its scheduler.

    Between reconciliation and decision: what has just been lost, and is gone there or may still
    run, is not to be admitted again.
    """
    if registered.names():
        _settle(moment(now))
        silent = _may_still_run()
        crossing.follow(moment(now), silent.keys())
        _follow_holds({**_blocked(), **silent, **crossing.waiting()})


@transaction.atomic
def _follow_holds(blocked: Mapping[str, str]) -> None:
    """Hold phases whose jobs wait for something in their scheduler, and let go those that do not.

    ``blocked`` says why, by the name of the job. A hold of a person here stays. What they wait for
    is followed, of some at a time: many wait for the same, whose numbers change with each job that
    starts.
    """
    waiting = Phase.objects.pending()
    held = waiting.filter(held_by=_SCHEDULER).values_list("pk", "job__name", "hold_reason")
    free: list[int] = []
    changed = 0
    by_why: dict[str, list[int]] = defaultdict(list)
    for pk, name, said in held.order_by("pk"):
        if name not in blocked:
            free.append(pk)
        elif _why(blocked[name]) != said and changed < _AT_ONCE:
            changed += 1
            by_why[_why(blocked[name])].append(pk)
    Phase.objects.filter(pk__in=free).update(held_by="", hold_reason="")
    new = waiting.filter(held_by="", job__name__in=blocked).values_list("pk", "job__name")
    for pk, name in new:
        by_why[_why(blocked[name])].append(pk)
    for why, ids in by_why.items():
        Phase.objects.filter(pk__in=ids).update(held_by=_SCHEDULER, hold_reason=why)


def _why(told: str) -> str:
    return (told or "it does not say why")[:500]


def _blocked() -> dict[str, str]:
    """Return why jobs may not start for reasons of their scheduler, by name."""
    blocked = _open().filter(is_adopted=True, state__in=[JobState.BLOCKED, JobState.ENDING])
    return {
        name: "it is about to end there" if state == JobState.ENDING else why
        for name, state, why in blocked.values_list("name", "state", "told__why")
    }


def _may_still_run() -> dict[str, str]:
    """Return why jobs that wait may still run on a silent node, by name.

    Slurm gives such a node up, and what it ran goes on there, unseen; so does what was told to end.
    """
    down = dict(
        SchedulerNode.objects.filter(state=NodeState.DOWN).values_list("node", "down_since")
    )
    if not down:
        return {}
    leases = Lease.objects.filter(job__in=_open()).order_by("pk")
    fields = ("job__name", "outcome", "nodes", "ended_at")
    found = {}
    for name, (outcome, nodes, ended_at) in {
        row[0]: row[1:] for row in leases.values_list(*fields)
    }.items():
        if outcome not in _UNSEEN:
            continue
        # A node that fell silent later had told of the end.
        silent = [node for node in nodes if node in down and down[node] <= ended_at + _TOLD_WITHIN]
        if silent:
            found[name] = (
                f"it ran on {', '.join(sorted(silent)[:3])}, where it may still run: nobody hears"
                ' of it. Bring the node back, or set its reason to "off" once it has no power'
            )
    return found


# --- What runs there -----------------------------------------------------------------------------


def count_running(cluster: Cluster, now: float) -> int:
    """Count jobs that run without a lease of ours, as what they may draw; return how many.

    They were there before us, are exempt, or an administrator started them.
    """
    if not registered.names():
        return 0
    # What is about to end may be put back, and then it never ran as what it would be counted as.
    running = _open().filter(is_adopted=True, state__in=RUNS - {JobState.ENDING})
    leases = Lease.objects.open().filter(job=OuterRef("pk"))
    found = {row.name: row for row in running.filter(~Exists(leases))[:_MOST]}
    if not found:
        return 0
    with transaction.atomic():
        # Jobs first, as everywhere: see jobs.progress.
        list(Job.objects.select_for_update().filter(name__in=found).order_by("pk"))
        phases = Phase.objects.pending().filter(job__name__in=found).select_related("job")
        known, placed = _Rows(cluster), []
        for phase in phases.annotate(tried=Count("attempts")):
            row = found[phase.job.name]
            if gpus := known.of(row.report, resolution.request_of(phase)):
                placed.append(_Found(phase, row, gpus))
        _count(placed, cluster, moment(now))
    if placed:
        open_attempts.recheck()
    return len(placed)


@dataclass(frozen=True)
class _Found:
    """A job that runs already: our phase for it, and the GPUs that it is on."""

    phase: Phase
    row: SchedulerJob
    gpus: Sequence[int]


class _Rows:
    """The rows of the inventory that jobs run on, as their schedulers tell it."""

    def __init__(self, cluster: Cluster) -> None:
        self._fleet = cluster.fleet
        #: by what is held already, or was just told of another job
        self._is_taken = cluster.constants.use == GpuUse.GANG

    def of(self, told: contract.SchedulerJob, request: Request) -> list[int]:
        """Return the GPUs or slices that a job runs on, as far as the inventory knows them."""
        each = -(-told.gpus // max(len(told.nodes), 1))
        if request.slice:
            return [row for node in told.nodes for row in self._slices(node, request, each)]
        named = {node: told.gpu_indices.get(node) or range(each) for node in told.nodes}
        return [row for node, gpus in named.items() for gpu in gpus for row in self._gpu(node, gpu)]

    def _gpu(self, node: str, gpu: int) -> list[int]:
        parts, key = self._fleet.parts, (node, gpu)
        if parts is None:
            row = self._fleet.gpu_index_by_node.get(key)
            return [] if row is None else [row]
        whole = parts.whole.gpu_index_by_node.get(key)
        return [] if whole is None else np.flatnonzero(parts.gpu == whole).tolist()

    def _slices(self, node: str, request: Request, count: int) -> list[int]:
        """Return slices of a node that nobody has: a scheduler does not say which they are."""
        fleet, row = self._fleet, self._fleet.nodes.index_by_name.get(node)
        if row is None or fleet.parts is None:
            return []
        first, last = fleet.gpu_bounds[row : row + 2].tolist()
        models = [model_name(str(name), request.slice) for name in fleet.parts.whole.models.names]
        is_wanted = np.isin(fleet.models.names[fleet.gpus.model[first:last]], models)
        free = np.flatnonzero(is_wanted & ~self._is_taken[first:last])[:count]
        found: list[int] = (first + free).tolist()
        self._is_taken[found] = True
        return found


def _count(placed: Sequence[_Found], cluster: Cluster, at: datetime) -> None:
    """Write down that jobs run, all at once: hundreds are found with the first report."""
    attempts, leases, events = [], [], []
    for each in placed:
        phase, row, told = each.phase, each.row, each.row.report
        began_at = moment(told.started_at) if told.started_at else at
        request = resolution.request_of(phase)
        placement = found_on(cluster, request, each.gpus)
        number = phase.tried + 1  # type: ignore[attr-defined]  # annotated
        key = f"{phase.key}/{number}"
        phase.state, phase.started_at = Phase.State.RUNNING, phase.started_at or began_at
        phase.expected_end_at = began_at + timedelta(seconds=request.walltime_s)
        phase.reason, phase.reason_since = "", None
        phase.held_by, phase.hold_reason = "", ""
        attempts.append(
            Attempt(
                phase=phase, number=number, key=key, executor=row.scheduler.name,
                placement=placement_as_json(placement, cluster.fleet),
                state=Attempt.State.RUNNING, dispatched_at=began_at, started_at=began_at,
            )
        )  # fmt: skip
        leases.append(
            Lease(
                job=row, key=key, restarts=told.restarts, nodes=told.nodes,
                released_at=began_at, started_at=began_at,
            )
        )  # fmt: skip
        text = f"{phase.name} runs already, on {', '.join(told.nodes[:3])}: counted as it may draw"
        events.append(
            history.event(
                phase.job_id, FOUND, text, at, phase=phase.name, attempt=key,
                gpus=len(each.gpus), total_w=placement.total_w,
            )
        )  # fmt: skip
    phases = [each.phase for each in placed]
    Phase.objects.bulk_update(phases, _BEGUN, _AT_ONCE)
    Attempt.objects.bulk_create(attempts, _AT_ONCE)
    Lease.objects.bulk_create(leases, _AT_ONCE)
    JobEvent.objects.bulk_create(events, _AT_ONCE)
    progress.phases_began(phases)
