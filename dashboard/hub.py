"""A rack as a hub: what is open about it, what limits it, and what runs there, each a link."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef

from accounts.visibility import Visibility
from admission.jobs.models import Attempt
from dashboard import queue
from dashboard.queue import RunRow
from fleet.snapshot import FleetArrays
from policies import scoped
from policies.incidents import visible as seen_incidents
from policies.incidents.models import Incident, IncidentMember
from policies.incidents.places import Places
from policies.restrictions import visible as seen_restrictions
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind

__all__ = ["Hub", "of_rack"]

#: Of each list so many are shown.
MOST = 20


@dataclass(frozen=True, slots=True)
class Hub:
    """The newest first. Incidents are those that are not over, restrictions those in force."""

    incidents: list[Incident]
    restrictions: list[Restriction]
    #: jobs that the reader may not see have no name
    jobs: list[RunRow]


def of_rack(fleet: FleetArrays, row: int, visibility: Visibility, now: datetime) -> Hub:
    """Return what is open about a rack, its parts, and all that it is a part of.

    Two queries, and one to four for the jobs; three more for readers who do not see all jobs.
    """
    inside = _inside(fleet, row)
    rack = Scope(ScopeKind.RACK, str(fleet.racks.paths[row]))
    about = [*inside, rack, *Places(fleet).above(rack)]
    firing = IncidentMember.objects.filter(
        scoped.on(about), incident=OuterRef("pk"), cleared_at=None
    )
    incidents = Incident.objects.unresolved().seen_by(visibility)
    incidents = incidents.filter(scoped.on(about) | Exists(firing)).order_by("-opened_at", "-pk")
    restrictions = Restriction.objects.in_force(now).seen_by(visibility).filter(scoped.on(about))
    nodes = [each.name for each in inside if each.kind is ScopeKind.NODE]
    held = Attempt.objects.open().filter(placement__racks__contains=[rack.name]) if nodes else ()
    return Hub(
        seen_incidents.incidents(incidents[:MOST], visibility),
        seen_restrictions.rows(restrictions.order_by("-issued_at", "-pk")[:MOST], visibility),
        queue.run_rows([each.phase_id for each in held][:MOST], visibility),
    )


def _inside(fleet: FleetArrays, row: int) -> list[Scope]:
    """Return the nodes of a rack, and their GPUs."""
    nodes = fleet.nodes.names[fleet.nodes.rack == row].tolist()
    holds = fleet.nodes.rack[fleet.gpus.node] == row
    gpus = zip(
        fleet.nodes.names[fleet.gpus.node[holds]], fleet.gpus.index[holds].tolist(), strict=True
    )
    return [
        *(Scope(ScopeKind.NODE, name) for name in nodes),
        *(Scope(ScopeKind.GPU, f"{name}/{index}") for name, index in gpus),
    ]
