"""Agents for tests."""

from __future__ import annotations

from collections.abc import Iterable

from accounts import audit
from fleet.models import Node, Site
from telemetry import enrollment
from telemetry.enrollment import Enrollment
from telemetry.models import Agent


def make_agent(
    name: str,
    *,
    nodes: Iterable[Node] = (),
    sites: Iterable[Site] = (),
    any_job: bool = False,
) -> tuple[Agent, str]:
    """Enroll an agent for ``nodes`` and ``sites``; return it with its token."""
    wanted = Enrollment(
        name, tuple(node.name for node in nodes), tuple(site.name for site in sites), any_job
    )
    (enrolled,) = enrollment.enroll(audit.SYSTEM, [wanted])
    return enrolled.agent, enrolled.token
