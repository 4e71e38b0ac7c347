"""Sync with the bridge of a scheduler: write down what it tells, answer with what is wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog
from django.db import transaction

from admission.executors.node_queue import moment
from admission.executors.schedulers import moves, news, places, registered
from admission.executors.schedulers.leases import RUNS, WAITS, end_of, has_started, wanted_of
from admission.executors.schedulers.models import (
    Lease,
    Move,
    Scheduler,
    SchedulerJob,
    SchedulerNode,
)
from admission.executors.schedulers.queue import close
from fleet import snapshot
from headroom.contracts import BatchError
from headroom.jobs.spec import slug
from headroom.schedulers import contract
from headroom.schedulers.contract import (
    Directives,
    JobOrder,
    JobState,
    NodeOrder,
    NodeState,
    Parcel,
    SchedulerOrders,
    SchedulerReport,
    Wait,
    WantedOfJob,
)
from telemetry.checks import OutOfScope
from telemetry.directory import AgentScope, names_of

__all__ = ["sync"]

log = structlog.get_logger(__name__)

#: Comments that one answer has at most: their bridge writes some tens of them a second.
_MOST_COMMENTS = 200
#: Parcels that one answer asks for: a script may be long.
_MOST_PARCELS = 10
_MOST = 1000
_LONGEST_NAME = 120


def sync(scope: AgentScope, name: str, report: SchedulerReport, now: float) -> SchedulerOrders:
    """Write the report of a bridge down, and return what is wanted of its scheduler.

    About eight queries where nothing has changed. Raises BatchError, of which OutOfScope is a kind.
    """
    at = moment(now)
    with transaction.atomic():
        scheduler, is_known = _scheduler(scope, name, report, at)
        if not is_known and not report.complete:
            return SchedulerOrders(now=now, resync=True)
        _nodes(scope, scheduler, report.nodes, at)
        _jobs(scheduler, report, at)
        _moves(scheduler, report, at)
        orders = _orders(scheduler, now)
    if report.nodes is None:
        return orders
    said = places.disagreements(snapshot.current(), report.nodes)
    if said:
        log.warning("scheduler_nodes_disagree", scheduler=name, count=len(said), first=said[0])
    return msgspec.structs.replace(orders, disagreements=said)


def _scheduler(
    scope: AgentScope, name: str, report: SchedulerReport, at: datetime
) -> tuple[Scheduler, bool]:
    """Return the scheduler, locked, and whether the beginning of its bridge's session was heard."""
    if re.match(contract.SCHEDULER_NAME, name) is None or len(name) > 20:
        raise BatchError(
            "bad_name", f"{name!r} is no name of a scheduler", field="name",
            hint="take at most 20 lower case letters, digits, dots, dashes and underscores",
        )  # fmt: skip
    if name in registered.RESERVED:
        raise BatchError("bad_name", f"{name!r} is an executor of ours", field="name")
    told: dict[str, Any] = {
        "kind": report.kind, "version": report.version, "when_away": report.when_away, "seen_at": at
    }  # fmt: skip
    row, is_new = Scheduler.objects.select_for_update().get_or_create(
        name=name, defaults={**told, "agent_id": scope.agent_id}
    )
    if row.agent_id != scope.agent_id:
        raise OutOfScope(
            "scheduler_out_of_scope", f"another agent speaks for the scheduler {name!r}",
            field="name", hint="give its bridge the token of that agent, or another name",
        )  # fmt: skip
    if is_new:
        transaction.on_commit(registered.invalidate)
    is_known = row.session == report.session
    if report.complete:
        told["session"] = report.session
    if report.complete and not is_known:
        # Its bridge has begun anew, and keeps nothing: it is told again why jobs wait.
        row.jobs.filter(ended_at=None, state=JobState.HELD).exclude(comment="").update(
            is_comment_new=True
        )
    if not is_known and not report.complete:
        return row, False
    for field, value in told.items():
        setattr(row, field, value)
    row.save(update_fields=list(told))
    return row, is_known


# --- Nodes ---------------------------------------------------------------------------------------


def _nodes(
    scope: AgentScope,
    scheduler: Scheduler,
    told: Sequence[contract.SchedulerNode] | None,
    at: datetime,
) -> None:
    """Write down all nodes. Those that the inventory lacks are left out: none is placed there."""
    if told is None:
        return
    down = scheduler.nodes.filter(state=NodeState.DOWN)
    since = dict(down.values_list("node_id", "down_since"))
    directory = names_of(snapshot.current())
    rows = []
    for place, each in enumerate(told):
        known = directory.node(each.node)
        if known is None:
            continue
        if not scope.holds(node_id=known.node_id, site_id=known.site_id):
            raise OutOfScope(
                "node_out_of_scope", f"the agent {scope.name!r} may not speak for {each.node!r}",
                field=f"nodes[{place}]", hint="the Agents page says which nodes a token is for",
            )  # fmt: skip
        rows.append(
            SchedulerNode(
                scheduler=scheduler, node_id=known.node_id, node=each.node, state=each.state,
                reason=each.reason, drained_by=each.drained_by, is_ours=each.is_ours,
                down_since=(since.get(known.node_id) or at) if each.state is NodeState.DOWN
                else None,
            )
        )  # fmt: skip
    ids = [row.node_id for row in rows]
    foreign = SchedulerNode.objects.filter(node_id__in=ids).exclude(scheduler=scheduler).first()
    if foreign is not None:
        raise BatchError(
            "node_of_another", f"{foreign.node!r} is a node of the scheduler {foreign.scheduler}",
            field="nodes", hint="two schedulers cannot share a node",
        )  # fmt: skip
    scheduler.nodes.exclude(node_id__in=ids).delete()
    SchedulerNode.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["node_id"],
        update_fields=["node", "state", "reason", "drained_by", "is_ours", "down_since"],
    )


# --- Jobs ----------------------------------------------------------------------------------------


def _jobs(scheduler: Scheduler, report: SchedulerReport, at: datetime) -> None:
    told = {each.ref: each for each in report.jobs if each.gpus or each.cores}
    rows = SchedulerJob.objects.open().filter(scheduler=scheduler).select_for_update()
    if not report.complete:
        rows = rows.filter(ref__in=[*told, *report.gone])
    known = {row.ref: row for row in rows}
    gone = known.keys() - told.keys() if report.complete else known.keys() & set(report.gone)
    over = [known[ref] for ref in gone]
    moved = []
    for ref in told.keys() & known.keys():
        row, new = known[ref], told[ref]
        if _is_another(row.report, new):
            # The ref is used again: the one that had it is gone.
            over.append(known.pop(ref))
        else:
            is_other = _asks_for(row.report) != _asks_for(new)
            row.is_changed |= new.state in WAITS and is_other
            row.is_parcel_wanted |= is_other and moves.may_move(scheduler.kind, new)
            _put(row, new, at)
            moved.append(row)
    for row in over:
        lost = msgspec.structs.replace(
            row.report, state=JobState.ENDED, ended_as=contract.EndedAs.LOST,
            why="its scheduler does not know it any more",
        )  # fmt: skip
        _put(row, lost, at)
    fields = [
        "state", "restarts", "told", "told_at", "ended_at", "is_changed", "is_parcel_wanted",
    ]  # fmt: skip
    # First those that are over: one of a ref is open.
    SchedulerJob.objects.bulk_update([*over, *moved], fields, _MOST)
    fresh = [each for ref, each in told.items() if ref not in known and _is_open(each)]
    SchedulerJob.objects.bulk_create(_new(scheduler, fresh, at), _MOST)
    _leases([*over, *moved], at)
    if fresh or _make_room(scheduler, [*over, *moved]):
        news.ask_cycle()
    commented = SchedulerJob.objects.filter(scheduler=scheduler, ref__in=report.commented)
    commented.filter(is_comment_new=True).update(is_comment_new=False)


def _make_room(scheduler: Scheduler, changed: Sequence[SchedulerJob]) -> bool:
    """Say whether a job has ended while another waits. One query, where one has ended."""
    waits = SchedulerJob.objects.open().filter(scheduler=scheduler, state=JobState.HELD)
    return any(row.ended_at is not None for row in changed) and waits.exists()


def _is_open(told: contract.SchedulerJob) -> bool:
    return told.state is not JobState.ENDED


def _is_another(known: contract.SchedulerJob, told: contract.SchedulerJob) -> bool:
    """Say whether a ref is of another job than it was.

    One that is put back is the same, submitted anew: Slurm counts its start when that is asked for,
    and moves the time once its nodes have let go of it.
    """
    is_put_back = told.restarts > known.restarts or told.restarts == known.restarts > 0
    is_newer = told.submitted_at > known.submitted_at + 1.0
    return told.user != known.user or (is_newer and not is_put_back)


def _asks_for(told: contract.SchedulerJob) -> tuple[object, ...]:
    """Return what of a job's specification its scheduler tells, where it waits."""
    return (
        told.comment, told.priority, told.gpus, told.nodes_wanted, told.min_nodes,
        told.gpus_per_node, told.cores, told.mem_bytes, told.model, told.time_limit_s,
        sorted(told.only_nodes),
    )  # fmt: skip


def _put(row: SchedulerJob, told: contract.SchedulerJob, at: datetime) -> None:
    row.state, row.restarts, row.told_at = told.state, told.restarts, at
    row.told = msgspec.to_builtins(told)
    if told.state is JobState.ENDED:
        row.ended_at = at if told.ended_at is None else min(moment(told.ended_at), at)


def _new(
    scheduler: Scheduler, told: Sequence[contract.SchedulerJob], at: datetime
) -> list[SchedulerJob]:
    names = {each.ref: _name(scheduler, each) for each in told}
    taken = SchedulerJob.objects.filter(name__in=names.values())
    before = set(taken.values_list("name", flat=True))
    rows = []
    for each in told:
        name = names[each.ref]
        if name in before:
            name = f"{name}-{int(each.submitted_at):x}"
        row = SchedulerJob(
            scheduler=scheduler,
            ref=each.ref,
            name=name,
            is_parcel_wanted=moves.may_move(scheduler.kind, each),
        )
        _put(row, each, at)
        rows.append(row)
    return rows


def _name(scheduler: Scheduler, told: contract.SchedulerJob) -> str:
    return slug(f"{scheduler.name}-{told.ref}", _LONGEST_NAME)


def _leases(jobs: Sequence[SchedulerJob], at: datetime) -> None:
    """Bring the open leases of jobs that have changed to what follows for them."""
    told = {job.pk: job.report for job in jobs}
    rows = Lease.objects.select_for_update().filter(job__in=told, ended_at=None).order_by("pk")
    leases = list(rows)
    for lease in leases:
        of_job = told[lease.job_id]
        if lease.started_at is None and has_started(lease, of_job):
            lease.started_at = _not_before(lease.released_at, of_job.started_at, at)
            lease.is_late = False
        lease.version += 1
        end = end_of(lease, of_job)
        if end is not None:
            ended_at = of_job.ended_at if of_job.state is JobState.ENDED else None
            close(lease, end, _not_before(lease.started_at, ended_at, at), of_job.exit_code)
    Lease.objects.bulk_update(
        leases,
        ["started_at", "ended_at", "outcome", "exit_code", "why", "is_late", "version"],
        _MOST,
    )


def _not_before(earliest: datetime | None, told: float | None, at: datetime) -> datetime:
    """Return when something happened by a scheduler, which tells whole seconds; ``at``: unknown.

    Nothing begins before it was let go, nor ends before it began.
    """
    found = moment(told) if told else at
    return found if earliest is None else max(found, earliest)


# --- What moves ---------------------------------------------------------------------------------


def _moves(scheduler: Scheduler, report: SchedulerReport, at: datetime) -> None:
    """Keep what jobs are submitted with elsewhere, and what is not taken here."""
    for ref, parcel in report.parcels.items():
        rows = SchedulerJob.objects.open().filter(scheduler=scheduler, ref=ref)
        rows.update(parcel=msgspec.to_builtins(parcel), is_parcel_wanted=False)
    for key, why in report.refused.items():
        refused = scheduler.moves.filter(key=key, state=Move.State.AWAY, refused_at=None)
        refused.update(refused_at=at, why=why[:500])


# --- What is wanted ------------------------------------------------------------------------------


def _orders(scheduler: Scheduler, now: float) -> SchedulerOrders:
    leases = Lease.objects.open().filter(job__scheduler=scheduler).select_related("job")
    orders, directives = [], {}
    for lease in leases:
        told = lease.job.report
        wanted = WantedOfJob.CANCEL if lease.job.cancel_for else wanted_of(lease, told)
        if wanted is not None:
            orders.append(_order(lease.job, wanted, lease))
        if told.state in RUNS and told.signals_seen < lease.directives.get("seq", 0):
            directives[lease.job.ref] = msgspec.convert(lease.directives, Directives)
    unleased = SchedulerJob.objects.open().filter(scheduler=scheduler).exclude(cancel_for="")
    for job in unleased.exclude(leases__ended_at=None, leases__isnull=False):
        orders.append(_order(job, WantedOfJob.CANCEL))
    comments = _comments(scheduler)
    return SchedulerOrders(
        now=now,
        jobs=orders,
        nodes=_node_orders(scheduler),
        comments={row.ref: row.comment for row in comments},
        waits={row.ref: Wait(start_in_s=row.start_in_s, is_never=row.is_never) for row in comments},
        directives=directives,
        pack=_to_pack(scheduler),
        submit={
            move.key: msgspec.convert(move.parcel, Parcel)
            for move in scheduler.moves.filter(state=Move.State.AWAY, refused_at=None)
        },
    )


def _to_pack(scheduler: Scheduler) -> list[str]:
    rows = SchedulerJob.objects.open().filter(scheduler=scheduler, is_parcel_wanted=True)
    return list(rows.order_by("pk").values_list("ref", flat=True)[:_MOST_PARCELS])


def _order(job: SchedulerJob, wanted: WantedOfJob, lease: Lease | None = None) -> JobOrder:
    return JobOrder(
        ref=job.ref,
        wanted=wanted,
        restarts=job.restarts,
        lease=lease.key if lease else "",
        nodes=lease.nodes if lease and wanted is WantedOfJob.RUN else [],
        why=job.cancel_for or (lease.stop_for if lease else ""),
    )


def _comments(scheduler: Scheduler) -> list[SchedulerJob]:
    rows = SchedulerJob.objects.open().filter(scheduler=scheduler, is_comment_new=True)
    told = rows.order_by("pk").only("ref", "comment", "start_in_s", "is_never")
    return list(told[:_MOST_COMMENTS])


def _node_orders(scheduler: Scheduler) -> list[NodeOrder]:
    """Return the nodes to drain, or to bring back: only those that we have drained."""
    drain = scheduler.nodes.exclude(drain_for="").filter(state=NodeState.UP)
    back = scheduler.nodes.filter(drain_for="", is_ours=True, state=NodeState.DRAINED)
    found = {row.node: row.drain_for for row in [*drain, *back]}
    return [NodeOrder(node=node, reason=reason) for node, reason in found.items()]
