"""What is planned from now on: bookings, curtailments, announced restrictions and deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from accounts.models import User
from accounts.visibility import Visibility
from admission.bookings.models import Booking
from admission.bookings.store import mask_of
from admission.core.placement.topology import Bools, Floats
from admission.curtailments.models import Curtailment
from admission.jobs.models import Job, Phase, Project
from fleet.groups import sum_by
from fleet.snapshot import FleetArrays
from policies.restrictions.models import Restriction
from telemetry.spans import Span
from telemetry.summary import UNRATED_HOST_W

__all__ = ["Kind", "Planned", "booked_nodes_w", "planned"]

#: Of each kind so many are told, the next ones.
MOST = 200


class Kind(StrEnum):
    """What it is that is planned."""

    #: hosts are kept for a project
    RESERVATION = "reservation"
    #: hosts are kept for nobody
    MAINTENANCE = "maintenance"
    #: a grid has asked a site to draw less
    CURTAILMENT = "curtailment"
    #: a restriction was announced
    RESTRICTION = "restriction"
    #: a job is to have begun
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Planned:
    """One thing that is planned. Times are Unix s.

    ``name`` is the id of its row, or of a deadline the name of its job. ``watts`` is what it takes
    of its sites at most, or of a curtailment and a restriction what may be drawn; None: it says
    nothing of watts. ``project`` is empty where there is none, or where the reader may not know.
    """

    kind: Kind
    name: str
    what: str
    sites: tuple[str, ...]
    begin_at: float
    end_at: float | None
    watts: float | None = None
    project: str = ""
    reason: str = ""


def planned(user: User, fleet: FleetArrays, span: Span) -> list[Planned]:
    """Return what is planned in ``span`` as ``user`` may know it, the next first. Some queries."""
    visibility = Visibility(user)
    found = [
        *_bookings(user, fleet, span),
        *_curtailments(visibility, span),
        *_restrictions(visibility, fleet, span),
        *_deadlines(user, span),
    ]
    return sorted(found, key=lambda each: (each.begin_at, each.kind, each.name))


# --- Bookings ------------------------------------------------------------------------------------


def booked_nodes_w(row: Booking, fleet: FleetArrays) -> Floats:
    """Return what each host of a booking may draw beyond idle, W: none for nobody."""
    if row.project_id is None:
        return np.zeros(len(fleet.nodes))
    return np.where(mask_of(row, fleet), _most_w(fleet) - _idle_w(fleet), 0.0)


def _bookings(user: User, fleet: FleetArrays, span: Span) -> Iterator[Planned]:
    known = set(Project.objects.visible_to(user).values_list("pk", flat=True))
    live = Booking.objects.live(span.start_at).filter(starts_at__lt=span.end_at)
    for row in live.select_related("project")[:MOST]:
        is_known = row.is_known_to(known)
        yield Planned(
            kind=Kind.RESERVATION if row.project_id else Kind.MAINTENANCE,
            name=str(row.pk),
            what=row.what,
            sites=_sites_of(mask_of(row, fleet), fleet),
            begin_at=row.starts_at.timestamp(),
            end_at=row.ends_at.timestamp(),
            watts=float(booked_nodes_w(row, fleet).sum()) if row.project_id else None,
            project=row.project.name if row.project and is_known else "",
            reason=row.reason if is_known else "",
        )


def _node_site(fleet: FleetArrays) -> np.ndarray:
    return fleet.racks.site[fleet.nodes.rack]


def _sites_of(nodes: Bools, fleet: FleetArrays) -> tuple[str, ...]:
    return tuple(map(str, fleet.sites.names[np.unique(_node_site(fleet)[nodes])]))


def _most_w(fleet: FleetArrays) -> Floats:
    """Return what each node is rated for, with its GPUs, W."""
    gpus_w = sum_by(np.nan_to_num(fleet.gpus.rated_w), fleet.gpus.node, len(fleet.nodes))
    return gpus_w + np.nan_to_num(fleet.nodes.host_rated_w, nan=UNRATED_HOST_W)


def _idle_w(fleet: FleetArrays) -> Floats:
    gpus_w = sum_by(np.nan_to_num(fleet.gpus.idle_w), fleet.gpus.node, len(fleet.nodes))
    return gpus_w + np.nan_to_num(fleet.nodes.host_idle_w)


# --- Limits --------------------------------------------------------------------------------------


def _curtailments(visibility: Visibility, span: Span) -> Iterator[Planned]:
    rows = Curtailment.objects.open(span.start_at).filter(starts_at__lt=span.end_at)
    for row in visibility.veiled(rows.order_by("starts_at", "pk")[:MOST], "reason"):
        yield Planned(
            kind=Kind.CURTAILMENT,
            name=str(row.pk),
            what=f"site {row.site}",
            sites=(row.site,),
            begin_at=row.starts_at.timestamp(),
            end_at=row.ends_at.timestamp(),
            watts=row.target_w,
            reason=row.reason,
        )


def _restrictions(visibility: Visibility, fleet: FleetArrays, span: Span) -> Iterator[Planned]:
    """Yield restrictions that have yet to be met, but for those by which curtailments are held."""
    rows = (
        Restriction.objects.standing(span.start_at)
        .seen_by(visibility)
        .filter(starts_at__gt=span.start_at, starts_at__lt=span.end_at)
        .exclude(pk__in=Curtailment.objects.open(span.start_at).values("restriction"))
        .order_by("starts_at", "pk")
    )
    for row in visibility.veiled(rows[:MOST], "reason"):
        yield Planned(
            kind=Kind.RESTRICTION,
            name=str(row.pk),
            what=f"{row.kind} on {row.scope_kind.replace('_', ' ')} {row.scope_name}",
            sites=_site_named(row, fleet),
            begin_at=row.starts_at.timestamp() if row.starts_at else span.start,
            end_at=row.expires_at.timestamp(),
            watts=row.value if row.kind.endswith("_w") else None,
            reason=row.reason,
        )


def _site_named(row: Restriction, fleet: FleetArrays) -> tuple[str, ...]:
    """Return the site that the name of a scope begins with, if any does."""
    site = row.scope_name.partition("/")[0]
    return (site,) if site in fleet.sites.index_by_name else ()


# --- Deadlines -----------------------------------------------------------------------------------


def _deadlines(user: User, span: Span) -> Iterator[Planned]:
    """Yield when jobs that wait are to have begun."""
    waiting = Phase.objects.filter(
        state__in=Phase.PENDING,
        job__in=Job.objects.visible_to(user),
        request__deadline_at__gt=span.start,
        request__deadline_at__lt=span.end,
    )
    rows = waiting.order_by("request__deadline_at", "pk").values_list(
        "job__name", "name", "job__project__name", "request__deadline_at", "request__sites"
    )
    for job, phase, project, at, sites in rows[:MOST]:
        yield Planned(
            kind=Kind.DEADLINE,
            name=job,
            what=f"{job}/{phase} is to have begun",
            sites=tuple(sites or ()),
            begin_at=float(at),
            end_at=None,
            project=project,
        )
