"""A small fleet that was observed for days, and what fails on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from admission.failures import reading
from admission.jobs.models import Attempt, Job
from fleet import snapshot
from fleet.models import Gpu, Node
from telemetry.models import Agent, XidEvent
from tests.builders.agents import make_agent
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import make_node

__all__ = ["at", "end_job", "observe", "two_nodes", "xid"]

DAYS = 10


def at(hours_ago: float) -> datetime:
    return timezone.now().astimezone(UTC) - timedelta(hours=hours_ago)


def two_nodes() -> list[Node]:
    """Make nodes n1 and n2 with two GPUs each, observed for ten days: 960 GPU-hours."""
    nodes = [make_node("n1"), make_node("n2", rack="A02")]
    observe(nodes)
    snapshot.fresh()
    reading.shared.invalidate()
    return nodes


def observe(nodes: Sequence[Node], days: float = DAYS) -> None:
    """Have an agent have told of nodes for so long."""
    agent, _ = make_agent(f"agent-{nodes[0].name}", nodes=nodes)
    Agent.objects.filter(pk=agent.pk).update(created_at=at(24 * days), last_seen_at=at(0))


def xid(node: str, code: int, hours_ago: float, *, gpu: int = 0) -> XidEvent:
    row = Gpu.objects.select_related("node").get(node__name=node, index=gpu)
    return XidEvent.objects.create(node=row.node, gpu=row, ts=at(hours_ago), xid=code)


def end_job(
    name: str,
    hours_ago: float,
    outcome: str,
    gpus: Mapping[str, Sequence[int]] | None = None,
    *,
    project: str = "vision",
    why: str = "",
    **given: Any,
) -> tuple[Job, Attempt]:
    """Have the attempt of a job have ended, after two hours."""
    job = make_job(name, project=project, gpus=2, state="running")
    ended = at(hours_ago)
    row = make_attempt(
        job.phases.get(), gpus or {"n1": [0, 1]}, state="ended", outcome=outcome,
        dispatched_at=ended - timedelta(hours=2), started_at=ended - timedelta(hours=2),
        ended_at=ended, why=why, **given,
    )  # fmt: skip
    return job, row
