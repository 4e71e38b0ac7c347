"""Book hosts, and end a booking: refused where the start could not be promised.

What is promised is that no job of anybody else is on the hosts when it begins, and none comes until
it ends. Cycles see to that by walltimes. What runs there already must have ended by then, by its
walltime too, and so must other bookings.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from django.db import transaction
from django.db.models import F

from accounts import audit
from accounts.models import User
from admission.allocation import open_attempts
from admission.bookings import store
from admission.bookings.models import Booking
from admission.core.placement.bookings import SPARE_S
from admission.core.placement.topology import Bools, Floats
from admission.jobs.models import Project
from admission.learned.models import Cycle
from fleet import snapshot
from fleet.snapshot import FleetArrays
from policies.scopes import Scope, UnknownScope, nodes_in

__all__ = ["Asked", "Refused", "book", "end"]


class Refused(Exception):
    """A booking could not be promised. ``hint`` is the way out."""

    def __init__(self, code: str, message: str, hint: str, field: str = "") -> None:
        super().__init__(message)
        self.code, self.hint, self.field = code, hint, field


@dataclass(frozen=True)
class Asked:
    """A booking that somebody asks for: of a place, or of hosts with so many GPUs.

    ``scope`` or ``gpus`` is given. ``model``: of those hosts; empty: any. ``project`` None: it is
    maintenance.
    """

    starts_at: datetime
    ends_at: datetime
    reason: str
    project: Project | None = None
    scope: Scope | None = None
    gpus: int = 0
    model: str = ""


@transaction.atomic
def book(asked: Asked, user: User, *, now: datetime) -> Booking:
    """Book hosts. Raises :class:`Refused` where their start cannot be promised."""
    if asked.ends_at <= max(asked.starts_at, now):
        raise Refused("invalid", "it ends before it begins, or in the past", "give a later end",
                      "ends_at")  # fmt: skip
    # What a cycle has decided that has not seen this one is not committed: see ``admit``.
    Cycle.objects.get_or_create(pk=1)
    Cycle.objects.filter(pk=1).update(number=F("number") + 1)
    fleet = snapshot.current()
    busy_until = _busy_until(fleet, asked, now)
    nodes = _place(fleet, asked, busy_until) if asked.scope else _hosts(fleet, asked, busy_until)
    row = Booking.objects.create(
        project=asked.project,
        scope_kind=asked.scope.kind.value if asked.scope else "",
        scope_name=asked.scope.name if asked.scope else "",
        nodes=[str(name) for name in fleet.nodes.names[nodes]],
        gpus=int(np.diff(fleet.gpu_bounds)[nodes].sum()),
        starts_at=max(asked.starts_at, now),
        ends_at=asked.ends_at,
        reason=asked.reason[:500],
        made_by=user.get_username(),
        made_at=now,
    )
    audit.record(user, "booking.make", str(row), reason=row.reason, id=row.pk,
                 project=asked.project.name if asked.project else "")  # fmt: skip
    return row


@transaction.atomic
def end(row: Booking, user: User, *, why: str, now: datetime) -> Booking:
    """End a booking before its time. Raises :class:`Refused` where it is over."""
    row = Booking.objects.select_for_update().get(pk=row.pk)
    if row.state_at(now) in ("over", "ended"):
        raise Refused("over", "it is over already", "")
    row.ended_at, row.ended_by = now, user.get_username()
    row.save(update_fields=["ended_at", "ended_by"])
    audit.record(user, "booking.end", str(row), reason=why, id=row.pk)
    return row


def _busy_until(fleet: FleetArrays, asked: Asked, now: datetime) -> Floats:
    """Return until when each node may be taken by others, Unix s: by walltimes, and by bookings.

    -inf: it is free. Bookings that begin once this one has ended take nothing of it.
    """
    found = np.full(len(fleet.nodes), -np.inf)
    project = asked.project.name if asked.project else None
    held = open_attempts.fresh(fleet)
    for attempt in held.attempts:
        if attempt.request.project != project:
            since = attempt.started_at or now.timestamp()
            nodes = list(attempt.placement.nodes)
            found[nodes] = np.maximum(found[nodes], since + attempt.request.walltime_s + SPARE_S)
    for row in Booking.objects.live(now).filter(starts_at__lt=asked.ends_at):
        mask = store.mask_of(row, fleet)
        found[mask] = np.maximum(found[mask], row.ends_at.timestamp())
    return found


def _place(fleet: FleetArrays, asked: Asked, busy_until: Floats) -> Bools:
    """Return the nodes of a place. Raises :class:`Refused` where some may be taken then."""
    scope = asked.scope
    if scope is None:
        raise ValueError("no place is asked for")
    try:
        nodes = nodes_in(fleet, scope)
    except UnknownScope as error:
        raise Refused("unknown_scope", str(error), "see the inventory", "scope_name") from error
    if not nodes.any():
        raise Refused("nothing_there", f"{scope} has no hosts", "name another place", "scope_name")
    late = nodes & (busy_until > asked.starts_at.timestamp())
    if late.any():
        free_at = datetime.fromtimestamp(float(busy_until[late].max()), UTC)
        some = ", ".join(str(name) for name in fleet.nodes.names[late][:3])
        more = f" and {int(late.sum()) - 3} more" if late.sum() > 3 else ""
        raise Refused(
            "taken",
            f"{some}{more} may be taken by other jobs or bookings beyond the start",
            f"book from {free_at:%Y-%m-%d %H:%M} UTC on, or end what is there first",
            "starts_at",
        )
    return nodes


def _hosts(fleet: FleetArrays, asked: Asked, busy_until: Floats) -> Bools:
    """Return hosts with so many GPUs that are free by then, in as few racks as will do."""
    count = np.diff(fleet.gpu_bounds)
    usable = count > 0
    if asked.model:
        row = fleet.models.index_by_name.get(asked.model)
        if row is None:
            raise Refused(
                "unknown_model", f"there is no hardware model {asked.model!r}",
                "see the inventory", "model",
            )  # fmt: skip
        of_model = np.zeros(len(fleet.nodes), dtype=bool)
        of_model[fleet.gpus.node[fleet.gpus.model == row]] = True
        usable &= of_model
    free = usable & (busy_until <= asked.starts_at.timestamp())
    of_rack = np.bincount(fleet.nodes.rack[free], count[free], minlength=len(fleet.racks))
    order = np.flatnonzero(free)
    order = order[np.lexsort((order, -of_rack[fleet.nodes.rack[order]]))]
    enough = int(np.searchsorted(np.cumsum(count[order]), asked.gpus)) + 1
    chosen = order[:enough]
    have = int(count[chosen].sum())
    if have < asked.gpus:
        raise Refused(
            "taken",
            f"{asked.gpus} GPUs are asked for, and hosts with {have} are free of other jobs and"
            " bookings by then",
            f"ask for {have}" if have else "give a later start",
            "gpus",
        )
    found = np.zeros(len(fleet.nodes), dtype=bool)
    found[chosen] = True
    return found
