"""When restrictions were in force at a place, as lanes of a figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime

import numpy as np
from django.db.models import Q

from accounts.visibility import Visibility
from fleet.tables import FleetArrays
from policies.headroom.reach import reach_of
from policies.restrictions import visible
from policies.restrictions.kinds import KINDS, RestrictionKind
from policies.restrictions.models import Restriction
from policies.rules.words import spoken
from policies.scopes import Scope, ScopeKind
from telemetry.figures.model import Lane
from telemetry.spans import Span

__all__ = ["around", "lanes", "span_of"]

#: So many are drawn, the newest.
_MOST = 500


def around(fleet: FleetArrays, gpus: Collection[int]) -> set[Scope]:
    """Return the scopes that have one of ``gpus`` (ids) in them: from GPUs up to their sites."""
    rows = [fleet.gpus.index_by_id[gpu] for gpu in gpus if gpu in fleet.gpus.index_by_id]
    of_gpus = fleet.nodes.names[fleet.gpus.node[rows]]
    nodes = np.unique(fleet.gpus.node[rows])
    reach = reach_of(fleet)
    places = np.unique(reach.place[np.unique(fleet.nodes.rack[nodes])])
    return {
        *(
            Scope(ScopeKind.GPU, f"{node}/{index}")
            for node, index in zip(of_gpus, fleet.gpus.index[rows], strict=True)
        ),
        *(Scope(ScopeKind.NODE, str(name)) for name in fleet.nodes.names[nodes]),
        *(reach.scope_at(int(place))[0] for place in places if place >= 0),
    }


def lanes(which: Q, span: Span, visibility: Visibility, now: datetime) -> list[Lane]:
    """Return when the restrictions of ``which`` had an effect, by kind. Two queries at most."""
    seen = Restriction.objects.seen_by(visibility).filter(
        which, effect_at__isnull=False, issued_at__lt=span.end_at
    )
    ended_before = Q(ended_at__lte=span.start_at) | Q(expires_at__lte=span.start_at)
    found = seen.exclude(ended_before).order_by("-issued_at")[:_MOST]
    by_kind: dict[str, list[Restriction]] = defaultdict(list)
    for row in visible.rows(found, visibility):
        by_kind[row.kind].append(row)
    return [
        Lane(kind, "restriction", [span_of(row, now) for row in rows], [_text(row) for row in rows])
        for kind, rows in by_kind.items()
    ]


def span_of(row: Restriction, now: datetime) -> tuple[float, float | None]:
    """Return from when to when a restriction has an effect, Unix s; None: it goes on.

    Raises ValueError where it never had one.
    """
    # Of one whose value has changed the first may have held since it was issued.
    begun = row.in_force_since if row.cycle <= 1 else row.issued_at
    begun = max(begun, row.starts_at or begun)
    goes_on = row.state == Restriction.State.IN_FORCE and row.expires_at > now
    end = None if goes_on else (row.ended_at or row.expires_at).timestamp()
    return begun.timestamp(), end


def _text(row: Restriction) -> str:
    unit = KINDS[RestrictionKind(row.kind)].unit
    value = "" if row.value is None else f" {spoken(row.value, unit)}"
    return f"{row.kind}{value} on {row.scope}, {row.state}, by {row.owner}: {row.reason}"
