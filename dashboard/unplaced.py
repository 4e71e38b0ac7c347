"""Jobs that telemetry tells of and Headroom did not place: where they run, and what they draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accounts.visibility import Visibility
from dashboard import scopes
from dashboard.hub import Link
from dashboard.state import View
from fleet.groups import count_by, sum_by
from policies.scopes import Scope, ScopeKind
from telemetry.live_frame import is_fresh
from telemetry.models import ReportedJob

__all__ = ["OnRack", "Unplaced", "find", "now"]


@dataclass(frozen=True, slots=True)
class OnRack:
    """A rack with GPUs of the job, and what these draw, W."""

    rack: Link
    gpus: int
    power_w: float


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A job by the readings of now. GPUs that are not fresh do not count."""

    gpus: int
    nodes: int
    power_w: float
    racks: list[OnRack]


def find(name: str, visibility: Visibility) -> ReportedJob | None:
    """Return a job that telemetry named; None where there is none, or it may not be seen.

    Whose it is nobody knows, so it is shown to those who see all jobs. One query.
    """
    return ReportedJob.objects.filter(name=name).first() if visibility.sees_all else None


def now(view: View, job: ReportedJob, stale_after_s: float) -> Unplaced:
    """Return where a job runs by the newest readings, racks with most of its GPUs first."""
    fleet = view.fleet
    record = view.frame.fields("gpu", fleet.gpus.ids, "ts", "job_id", "power_w")
    fresh = is_fresh(record["ts"], view.now, stale_after_s)
    mine = np.asarray(fresh & (record["job_id"] == job.pk))
    power_w = np.where(mine, np.nan_to_num(record["power_w"]), 0.0)
    rack = fleet.nodes.rack[fleet.gpus.node]
    count = len(fleet.racks)
    gpus, drawn_w = count_by(mine, rack, count), sum_by(power_w, rack, count)
    rows = np.argsort(-gpus, kind="stable")[: int((gpus > 0).sum())].tolist()
    places = [Scope(ScopeKind.RACK, str(fleet.racks.paths[row])) for row in rows]
    return Unplaced(
        gpus=int(mine.sum()),
        nodes=len(np.unique(fleet.gpus.node[mine])),
        power_w=float(power_w.sum()),
        racks=[
            OnRack(Link(place.name, scopes.href(fleet, place)), int(gpus[row]), float(drawn_w[row]))
            for row, place in zip(rows, places, strict=True)
        ],
    )
