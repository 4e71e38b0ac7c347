"""Checks of well-formed batches: whom they speak for, the names in them, and their times."""

from __future__ import annotations

from collections.abc import Sequence

from headroom.contracts import (
    BatchError,
    CheckpointReport,
    LinkColumns,
    MeterColumns,
    NodeReport,
    TelemetryBatch,
    TooManyRows,
)
from headroom.contracts import blocks as blocks_of
from headroom.layouts import Layout
from telemetry.directory import AgentScope, KnownNode, KnownThing, Names

#: How the boot_ids begin under which the server itself makes batches.
SERVER_BOOT_ID = "server:"


class OutOfScope(BatchError):
    """The batch speaks for something that is another agent's."""


class UnknownName(BatchError):
    """The batch names something that the inventory does not have."""


class ForeignJob(BatchError):
    """The batch names a job that does not run on the agent's nodes. That costs its row alone."""


class TooManyBootIds(BatchError):
    """The agent has begun too many lives."""


def check_agent(batch: TelemetryBatch | Layout, scope: AgentScope) -> None:
    """Raise where a batch, or a layout of some, names another agent than its token's."""
    if batch.agent != scope.name:
        raise OutOfScope(
            "wrong_agent",
            f"the token is agent {scope.name!r}'s, the batch says {batch.agent!r}",
            field="agent",
            hint=f"start the agent with --agent {scope.name}, or give it its own token",
        )
    if batch.boot_id.startswith(SERVER_BOOT_ID):
        raise BatchError(
            "reserved_boot_id",
            f"a boot_id that begins with {SERVER_BOOT_ID!r} is the server's own",
            field="boot_id",
            hint="choose another, such as a random one",
        )


def check_times(
    batch: TelemetryBatch, *, now: float, max_future_s: float, max_age_s: float
) -> None:
    """Raise where a reading is from the future, or older than the samples that are kept."""
    for path, block in blocks_of(batch):
        if not block.ts:
            continue
        if max(block.ts) > now + max_future_s:
            at = block.ts.index(max(block.ts))
            raise future_time(f"{path}.ts[{at}]", block.ts[at] - now, max_future_s)
        if min(block.ts) < now - max_age_s:
            at = block.ts.index(min(block.ts))
            raise too_old(f"{path}.ts[{at}]", now - block.ts[at], max_age_s)


def check_report_times(batch: TelemetryBatch, *, now: float, max_future_s: float) -> None:
    """Raise where a report of a checkpoint, or of versions, is from the future."""
    for i, report in enumerate(batch.checkpoints):
        wrong = future_report(f"checkpoints[{i}]", report, now=now, max_future_s=max_future_s)
        if wrong is not None:
            raise wrong
    for i, version in enumerate(batch.versions):
        if version.at > now + max_future_s:
            raise future_time(f"versions[{i}].at", version.at - now, max_future_s)


def future_report(
    path: str, report: CheckpointReport, *, now: float, max_future_s: float
) -> BatchError | None:
    """Return the error of a report at ``path`` that was told, or is of what was saved, later."""
    found = report.store.checkpoint
    times = {"at": report.at}
    if found is not None:
        times |= {"store.checkpoint.saved_at": found.saved_at}
        times |= {"store.checkpoint.verified_at": found.verified_at}
    for field, at in times.items():
        if at > now + max_future_s:
            return future_time(f"{path}.{field}", at - now, max_future_s)
    return None


def check_names(batch: TelemetryBatch, scope: AgentScope, names: Names) -> None:
    """Raise where the batch names something unknown, or something that is not the agent's."""
    for i, report in enumerate(batch.nodes):
        _check_node(f"nodes[{i}]", report, scope, names)
    for i, limit in enumerate(batch.limits):
        known_node(f"limits[{i}]", limit.node, scope, names)
    for i, told in enumerate(batch.checkpoints):
        known_store(f"checkpoints[{i}]", told, scope, names)
    for i, version in enumerate(batch.versions):
        known_node(f"versions[{i}]", version.node, scope, names)
    if batch.links is not None:
        _check_links(batch.links, scope, names)
    if batch.meters is not None:
        _check_meters(batch.meters, scope, names)


def known_node(path: str, name: str, scope: AgentScope, names: Names) -> KnownNode:
    """Return the node that the document at ``path`` names; raise where it may not be named."""
    node = names.node(name)
    if node is None:
        raise unknown("node", name, f"{path}.node")
    if not scope.holds(node_id=node.node_id, site_id=node.site_id):
        raise foreign("node", name, f"{path}.node", scope)
    return node


def known_store(path: str, report: CheckpointReport, scope: AgentScope, names: Names) -> None:
    """Raise where the report at ``path`` names a node that it may not, or an unknown site."""
    known_node(path, report.node, scope, names)
    if report.store.site and names.site(report.store.site) is None:
        raise unknown("site", report.store.site, f"{path}.store.site")


def _check_node(path: str, report: NodeReport, scope: AgentScope, names: Names) -> None:
    node = known_node(path, report.node, scope, names)
    if report.gpus is not None:
        _check_gpus(f"{path}.gpus", report.gpus.gpu, report.node, node)
    if report.xids is not None and report.xids.gpu is not None:
        _check_gpus(f"{path}.xids", report.xids.gpu, report.node, node)


def _check_gpus(path: str, named: Sequence[int | None], name: str, node: KnownNode) -> None:
    for at, gpu in enumerate(named):
        if gpu is not None and gpu not in node.gpu_ids:
            raise unknown_gpu(name, gpu, f"{path}.gpu[{at}]")


def _check_links(block: LinkColumns, scope: AgentScope, names: Names) -> None:
    for name in dict.fromkeys(block.link):
        _check_thing("link", name, f"links.link[{block.link.index(name)}]", names.link(name), scope)


def _check_meters(block: MeterColumns, scope: AgentScope, names: Names) -> None:
    for name in dict.fromkeys(block.meter):
        path = f"meters.meter[{block.meter.index(name)}]"
        _check_thing("meter", name, path, names.meter(name), scope)


def _check_thing(
    kind: str, name: str, path: str, thing: KnownThing | None, scope: AgentScope
) -> None:
    if thing is None:
        raise unknown(kind, name, path)
    if not scope.holds(node_id=thing.node_id, site_id=thing.site_id):
        raise foreign(kind, name, path, scope)


def future_time(field: str, ahead_s: float, max_future_s: float) -> BatchError:
    """Return the error of a reading that is ``ahead_s`` ahead of the server's clock."""
    return BatchError(
        "future_time",
        f"the reading is {ahead_s:.1f} s ahead of the server's clock;"
        f" at most {max_future_s:g} s is taken",
        field=field,
        hint="set the node's clock (chrony or systemd-timesyncd)",
    )


def too_old(field: str, age_s: float, max_age_s: float) -> BatchError:
    """Return the error of a reading whose partition may be gone."""
    return BatchError(
        "too_old",
        f"the reading is {age_s / 3600:.1f} h old; samples are kept for {max_age_s / 3600:g} h",
        field=field,
        hint="drop it, or raise TELEMETRY_RETENTION_H",
    )


def unknown(kind: str, name: str, field: str) -> UnknownName:
    """Return the error of naming a node, link or meter that the inventory does not have."""
    return UnknownName(
        f"unknown_{kind}",
        f"the inventory has no {kind} {name!r}",
        field=field,
        hint="add it to the inventory: manage.py fleet plan, then apply",
    )


def unknown_gpu(node: str, index: int, field: str) -> UnknownName:
    """Return the error of naming a GPU that its node does not have."""
    return UnknownName(
        "unknown_gpu",
        f"node {node!r} has no GPU {index} in the inventory",
        field=field,
        hint="add it to the inventory: manage.py fleet plan, then apply",
    )


def foreign(kind: str, name: str, field: str, scope: AgentScope) -> OutOfScope:
    """Return the error of speaking for a thing that is another agent's."""
    return OutOfScope(
        f"foreign_{kind}",
        f"agent {scope.name!r} may not speak for {kind} {name!r}",
        field=field,
        hint=f"add the {kind}'s node or site to the agent's scope on the Agents page",
    )


def foreign_job(name: str, scope: AgentScope) -> ForeignJob:
    """Return the error of speaking for a job that runs elsewhere, or that nobody knows."""
    return ForeignJob(
        "foreign_job",
        f"agent {scope.name!r} may not speak for job {name!r}: it is not placed on its nodes",
        hint="report on jobs from where they run; an agent of another scheduler's jobs, or of a"
        " replay, is enrolled with any_job",
    )


def too_many_jobs(name: str, scope: AgentScope, most: int) -> BatchError:
    """Return the error of naming one job more than an agent may bring into being."""
    return BatchError(
        "too_many_names",
        f"agent {scope.name!r} has named {most} jobs that Headroom did not place, and may not name"
        f" {name[:100]!r} too",
        hint="name what runs, not each try of it; or raise TELEMETRY_MAX_JOB_NAMES_PER_AGENT",
    )


def too_many_mounts(name: str, most: int) -> BatchError:
    """Return the error of naming one mount more than a node may have."""
    return BatchError(
        "too_many_names",
        f"the node has {most} mounts already, and may not have {name[:100]!r} too",
        hint="probe fewer of them, or raise TELEMETRY_MAX_MOUNTS_PER_NODE",
    )


def names_at_once(names: int, most: int) -> TooManyRows:
    """Return the error of a batch with too many names of jobs and mounts."""
    return TooManyRows(
        "too_many_names",
        f"{names} names of jobs and mounts in one batch; at most {most} are taken",
        hint="send smaller batches",
    )


def too_many_boot_ids(scope: AgentScope, most: int) -> TooManyBootIds:
    """Return the error of one boot_id more than an agent may have."""
    return TooManyBootIds(
        "too_many_boot_ids",
        f"agent {scope.name!r} has used {most} boot_ids within the time that samples are kept",
        field="boot_id",
        hint="keep the spool on a disk that outlives the agent, so that its boot_id stays",
    )


def at(error: BatchError, field: str) -> BatchError:
    """Return ``error`` as one of the field ``field``."""
    told = error.error
    return type(error)(told.code, told.message, field=field, hint=told.hint)
