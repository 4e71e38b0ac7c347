"""What a well-formed batch may still have wrong: whom it speaks for, what it names, its times."""

from __future__ import annotations

from headroom.contracts import BatchError, LinkColumns, MeterColumns, NodeReport, TelemetryBatch
from headroom.contracts import blocks as blocks_of
from telemetry.directory import AgentScope, KnownThing, Names


class OutOfScope(BatchError):
    """The batch speaks for something that is another agent's."""


class UnknownName(BatchError):
    """The batch names something that the inventory does not have."""


def check_agent(batch: TelemetryBatch, scope: AgentScope) -> None:
    """Raise where the batch is not the token's agent's."""
    if batch.agent != scope.name:
        raise OutOfScope(
            "wrong_agent",
            f"the token is agent {scope.name!r}'s, the batch says {batch.agent!r}",
            field="agent",
            hint=f"start the agent with --agent {scope.name}, or give it its own token",
        )


def check_times(
    batch: TelemetryBatch, *, now: float, max_future_s: float, max_age_s: float
) -> None:
    """Raise where a reading is from the future, or older than what is kept."""
    for path, block in blocks_of(batch):
        if not block.ts:
            continue
        if max(block.ts) > now + max_future_s:
            raise BatchError(
                "future_time",
                f"the reading is {max(block.ts) - now:.1f} s ahead of the server's clock;"
                f" at most {max_future_s:g} s is taken",
                field=f"{path}.ts[{block.ts.index(max(block.ts))}]",
                hint="set the node's clock (chrony or systemd-timesyncd)",
            )
        if min(block.ts) < now - max_age_s:
            raise BatchError(
                "too_old",
                f"the reading is {(now - min(block.ts)) / 3600:.1f} h old;"
                f" samples are kept for {max_age_s / 3600:g} h",
                field=f"{path}.ts[{block.ts.index(min(block.ts))}]",
                hint="drop it, or raise TELEMETRY_RETENTION_H",
            )


def check_names(batch: TelemetryBatch, scope: AgentScope, names: Names) -> None:
    """Raise where the batch names something unknown, or something that is not the agent's."""
    for i, report in enumerate(batch.nodes):
        _check_node(f"nodes[{i}]", report, scope, names)
    if batch.links is not None:
        _check_links(batch.links, scope, names)
    if batch.meters is not None:
        _check_meters(batch.meters, scope, names)


def _check_node(path: str, report: NodeReport, scope: AgentScope, names: Names) -> None:
    node = names.node(report.node)
    if node is None:
        raise _unknown("node", report.node, f"{path}.node")
    if not scope.holds(node_id=node.node_id, site_id=node.site_id):
        raise _foreign("node", report.node, f"{path}.node", scope)
    if report.gpus is not None and not node.gpu_ids.keys() >= set(report.gpus.gpu):
        at = next(i for i, gpu in enumerate(report.gpus.gpu) if gpu not in node.gpu_ids)
        raise UnknownName(
            "unknown_gpu",
            f"node {report.node!r} has no GPU {report.gpus.gpu[at]} in the inventory",
            field=f"{path}.gpus.gpu[{at}]",
            hint="add it to the inventory: manage.py fleet plan, then apply",
        )


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
        raise _unknown(kind, name, path)
    if not scope.holds(node_id=thing.node_id, site_id=thing.site_id):
        raise _foreign(kind, name, path, scope)


def _unknown(kind: str, name: str, path: str) -> UnknownName:
    return UnknownName(
        f"unknown_{kind}",
        f"the inventory has no {kind} {name!r}",
        field=path,
        hint="add it to the inventory: manage.py fleet plan, then apply",
    )


def _foreign(kind: str, name: str, path: str, scope: AgentScope) -> OutOfScope:
    return OutOfScope(
        f"foreign_{kind}",
        f"agent {scope.name!r} may not speak for {kind} {name!r}",
        field=path,
        hint=f"add the {kind}'s node or site to the agent's scope on the Agents page",
    )
