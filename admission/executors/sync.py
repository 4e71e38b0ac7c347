"""Sync with machines: write their reports down, and answer with the state wanted of them.

A report moves assignments forward, never back. The answer follows from the assignments alone, so a
machine may ask as often as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from admission.allocation import shipping
from admission.executors import output, runners, shells
from admission.executors.models import Gang, NodeAssignment
from admission.executors.node_queue import assignments_of, locked, moment, resettle
from fleet import snapshot
from headroom.contracts import BatchError
from headroom.work.contract import (
    MAX_ORDERS,
    DesiredState,
    Input,
    Order,
    Output,
    SignalKind,
    SignalOrder,
    Slice,
    Task,
    WorkOrders,
    WorkOutcome,
    WorkReport,
    WorkReports,
    WorkState,
)
from telemetry.checks import OutOfScope, UnknownName
from telemetry.directory import AgentScope, KnownNode, names_of

__all__ = ["look", "nodes_of", "sync", "take", "told"]

log = structlog.get_logger(__name__)

_State = Gang.State
_Part = NodeAssignment.State
_Nodes = Sequence[tuple[str, KnownNode]]
#: A machine whose output was read within this, s, asks this often, s.
_READ_S, _READ_POLL_S = 10.0, 0.5
#: What a report may change.
_FIELDS = [
    "state", "store", "claimed_at", "started_at", "ended_at", "outcome", "exit_code",
    "checkpoint_at", "signals_seen", "signals_done", "done_at_step", "outputs", "text",
    "log_tail",
    "log_asked_from", "log_asked_at",
]  # fmt: skip


def sync(scope: AgentScope, message: WorkReports, now: float) -> WorkOrders:
    """Write the reports of a machine down, and return the state wanted of it.

    Three queries where nothing has changed. Raises BatchError, of which OutOfScope is a kind.
    """
    nodes = nodes_of(scope, message.nodes)
    reports = _reports(message)
    lease_s = runners.lease_for(message.runs_for_s)
    runners.seen(
        nodes,
        agent=scope.name,
        store=message.store,
        version=message.version,
        lease_s=lease_s,
        is_simulated=message.simulated,
        at=moment(now),
    )
    if message.logs:
        output.take([node.node_id for _, node in nodes], message.store, message.logs, moment(now))
    rows = _assignments(nodes, reports, now)
    moved = {
        row.gang.key
        for row in rows
        if (report := reports.get((row.gang.key, row.node)))
        and take(row, row.gang.state, report, message.store, moment(now))
    }
    if moved:
        _write(moved, reports, message.store, now)
    # What was taken above was taken in memory alone, and without a lock.
    rows = _assignments(nodes, reports, now) if moved else rows
    # What it has left of a longer lease it keeps; more it is not given.
    to_have_s = runners.lease_s() if message.runs_for_s is not None else lease_s
    return _answer(rows, reports, message.store, min(lease_s, to_have_s), now)


def look(scope: AgentScope, nodes: Sequence[str], store: str, now: float) -> WorkOrders:
    """Return the state wanted of a machine that reports nothing. One query."""
    rows = _assignments(nodes_of(scope, nodes), {}, now)
    return _answer(rows, {}, store, runners.lease_s(), now)


def nodes_of(scope: AgentScope, names: Sequence[str]) -> _Nodes:
    """Return the nodes that a machine reports for. Raises where one is not its agent's."""
    directory = names_of(snapshot.current())
    found = []
    for place, name in enumerate(names):
        node = directory.node(name)
        field = f"nodes[{place}]"
        if node is None:
            raise UnknownName(
                "unknown_node", f"there is no node {name!r} in the inventory", field=field,
                hint="start the agent with --node and the name that the inventory has",
            )  # fmt: skip
        if not scope.holds(node_id=node.node_id, site_id=node.site_id):
            raise OutOfScope(
                "node_out_of_scope", f"the agent {scope.name!r} may not speak for {name!r}",
                field=field, hint="the Agents page says which nodes a token is for",
            )  # fmt: skip
        found.append((name, node))
    return found


def _reports(message: WorkReports) -> dict[tuple[str, str], WorkReport]:
    own = set(message.nodes)
    for place, report in enumerate(message.reports):
        if report.node not in own:
            raise BatchError(
                "unknown_node", f"{report.node!r} is not among the nodes of the request",
                field=f"reports[{place}].node", hint="name it in nodes, too",
            )  # fmt: skip
    return {(report.attempt, report.node): report for report in message.reports}


def _assignments(
    nodes: _Nodes, reports: Mapping[tuple[str, str], WorkReport], now: float
) -> list[NodeAssignment]:
    """Return the open assignments of ``nodes``, those that are reported on, and those being read.

    One query.
    """
    wanted = ~Q(state=_Part.ENDED) | output.asked(moment(now))
    if reports:
        wanted |= Q(gang__key__in={key for key, _ in reports})
    rows = NodeAssignment.objects.filter(wanted, node_id__in=[node.node_id for _, node in nodes])
    return list(rows.select_related("gang").order_by("pk")[: 2 * MAX_ORDERS])


def _write(
    moved: set[str], reports: Mapping[tuple[str, str], WorkReport], store: str, now: float
) -> None:
    with transaction.atomic():
        gangs = locked(moved)
        assignments = assignments_of(gangs)
        changed = [
            assignment
            for gang in gangs
            for assignment in assignments[gang.pk]
            if (report := reports.get((gang.key, assignment.node)))
            and take(assignment, gang.state, report, store, moment(now))
        ]
        NodeAssignment.objects.bulk_update(changed, _FIELDS)
        resettle(gangs, assignments, now)


def take(
    assignment: NodeAssignment, gang_state: str, report: WorkReport, store: str, at: datetime
) -> bool:
    """Put a report into ``assignment``; return whether that changes anything. Pure.

    One of another machine than the one that has claimed it, or that comes too late, changes
    nothing.
    """
    if assignment.state == _Part.ENDED or assignment.store not in ("", store):
        return False
    if assignment.state == _Part.OFFERED:
        return gang_state == _State.OFFERED and _answer_to_offer(assignment, report, store, at)
    if gang_state not in (_State.GO, _State.STOPPING):
        return False
    before = [getattr(assignment, name) for name in _FIELDS]
    _follow(assignment, report, at)
    if gang_state == _State.GO and _has_failed(assignment):
        # The first of its gang: the others end since it has.
        assignment.log_asked_from, assignment.log_asked_at = output.END, at
    return before != [getattr(assignment, name) for name in _FIELDS]


def _answer_to_offer(
    assignment: NodeAssignment, report: WorkReport, store: str, at: datetime
) -> bool:
    if report.state == WorkState.CLAIMED:
        assignment.state, assignment.store, assignment.claimed_at = _Part.CLAIMED, store, at
        return True
    if report.state == WorkState.ENDED:
        assignment.state, assignment.store, assignment.ended_at = _Part.ENDED, store, at
        assignment.outcome = WorkOutcome.NEVER_STARTED
        assignment.text = report.text
        return True
    # It cannot run what it was never told to run.
    log.warning("work_runs_unasked", attempt=report.attempt, node=report.node)
    return False


def _follow(assignment: NodeAssignment, report: WorkReport, at: datetime) -> None:
    assignment.signals_seen = max(assignment.signals_seen, report.signals_seen)
    assignment.signals_done = max(assignment.signals_done, report.signals_done)
    if report.done_at_step is not None:
        assignment.done_at_step = report.done_at_step
    if report.started_at is not None and assignment.started_at is None:
        assignment.started_at = min(moment(report.started_at), at)
    if report.checkpoint_at is not None:
        assignment.checkpoint_at = min(moment(report.checkpoint_at), at)
    if report.state == WorkState.CLAIMED:
        return
    assignment.state = _Part(report.state.value)
    if report.state == WorkState.ENDED:
        assignment.outcome = report.outcome or WorkOutcome.LOST
        assignment.exit_code = report.exit_code
        assignment.ended_at = at if report.ended_at is None else min(moment(report.ended_at), at)
        assignment.text, assignment.log_tail = report.text, report.log_tail
        assignment.outputs = msgspec.to_builtins(report.outputs) or None


def _has_failed(assignment: NodeAssignment) -> bool:
    is_ended = assignment.state == _Part.ENDED
    return is_ended and (assignment.outcome != WorkOutcome.EXITED or assignment.exit_code != 0)


# --- The answer -----------------------------------------------------------------------------------


def _answer(
    rows: Sequence[NodeAssignment],
    reports: Mapping[tuple[str, str], WorkReport],
    store: str,
    lease_s: float,
    now: float,
) -> WorkOrders:
    orders = list(told(rows, reports, store, _nodes_of_gangs(rows)))
    is_read = any(row.log_asked_at and row.log_asked_at > moment(now - _READ_S) for row in rows)
    return WorkOrders(
        now=now,
        orders=orders[:MAX_ORDERS],
        logs=output.asks_of(rows, store, moment(now)),
        shells=shells.asks_of(rows, store, moment(now)),
        ships=shipping.limits_for((row.gang.key for row in rows), now),
        poll_s=min(_READ_POLL_S, settings.WORK_POLL_S) if is_read else settings.WORK_POLL_S,
        report_s=runners.report_s(lease_s),
        fence_s=runners.fence_s(lease_s),
    )


def told(
    rows: Sequence[NodeAssignment],
    reports: Mapping[tuple[str, str], WorkReport],
    store: str,
    nodes_of_gang: Mapping[str, Sequence[str]],
) -> Iterator[Order]:
    """Yield the orders for the machine with ``store``. Pure.

    ``rows`` are the assignments of its nodes, ``reports`` what it holds, by attempt and node;
    ``nodes_of_gang`` has the nodes, by rank, of the gangs that are offered.
    """
    known = set()
    for row in rows:
        if row.store not in ("", store):
            continue
        key = (row.gang.key, row.node)
        known.add(key)
        order = _wanted(row, reports.get(key), nodes_of_gang)
        if order is not None:
            yield order
    for key, report in reports.items():
        if key not in known:
            yield _unwanted(report)


def _wanted(
    row: NodeAssignment, report: WorkReport | None, nodes_of_gang: Mapping[str, Sequence[str]]
) -> Order | None:
    """Return the order for one assignment; None: nothing but to wait."""
    gang = row.gang
    if row.state == _Part.ENDED or gang.state == _State.ENDED:
        return _unwanted(report) if report else None
    if gang.state == _State.STOPPING:
        return Order(attempt=gang.key, node=row.node, wanted=DesiredState.STOP, why=gang.why)
    if gang.state == _State.GO:
        signals = [_signal(each) for each in gang.signals if each["seq"] > row.signals_seen]
        return Order(attempt=gang.key, node=row.node, wanted=DesiredState.RUN, signals=signals)
    if row.state == _Part.OFFERED and gang.state == _State.OFFERED:
        task = _task(row, nodes_of_gang[gang.key])
        return Order(attempt=gang.key, node=row.node, wanted=DesiredState.CLAIM, task=task)
    return None


def _unwanted(report: WorkReport) -> Order:
    """Return the order for work that is over for us, or that we do not know."""
    is_over = report.state == WorkState.ENDED
    return Order(
        attempt=report.attempt,
        node=report.node,
        wanted=DesiredState.FORGET if is_over else DesiredState.STOP,
        why="" if is_over else "the server takes it for ended",
    )


def _signal(row: Mapping[str, object]) -> SignalOrder:
    value = row["value"]
    return SignalOrder(
        seq=int(str(row["seq"])),
        kind=SignalKind(str(row["kind"])),
        value=None if value is None else float(str(value)),
    )


def _nodes_of_gangs(rows: Sequence[NodeAssignment]) -> dict[str, list[str]]:
    """Return the nodes, by rank, of the gangs that are offered in ``rows``. At most one query."""
    offered = {
        row.gang_id
        for row in rows
        if row.state == _Part.OFFERED and row.gang.state == _State.OFFERED
    }
    names: dict[str, list[str]] = {}
    if offered:
        found = NodeAssignment.objects.filter(gang__in=offered).order_by("gang", "rank")
        for key, node in found.values_list("gang__key", "node"):
            names.setdefault(key, []).append(node)
    return names


def _task(row: NodeAssignment, nodes: Sequence[str]) -> Task:
    work = row.gang.work
    return Task(
        job=work["job"],
        phase=work["phase"],
        number=work["number"],
        command=work["command"],
        env=work["env"],
        rank=row.rank,
        nodes=list(nodes),
        gpus=[] if work.get("slices") else row.gpus,
        slices=[Slice(**each) for each in work.get("slices", ())],
        cores=work.get("cores", {}).get(row.node, []),
        cores_of_node=work.get("cores_of", {}).get(row.node, 0),
        gpus_of_node=row.gpus_of_node,
        power_cap_w=row.gang.power_cap_w,
        walltime_s=work["walltime_s"],
        grace_s=work["grace_s"],
        # What was dispatched by an older version does not say.
        project=work.get("project", ""),
        inputs=[Input(**each) for each in work.get("inputs", ())],
        outputs=[Output(**each) for each in work.get("outputs", ())],
    )
