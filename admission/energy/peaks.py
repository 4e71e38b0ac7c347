"""Who drew the peaks that demand charges are for: sites, racks, projects and jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

import numpy as np
from django.db import transaction

from admission.core.energy.amounts import total_by
from admission.core.energy.holders import FIRST_JOB
from admission.energy import rating
from admission.energy.models import JobHour, PlaceHour, ProjectHour, SiteHour
from admission.energy.reading import Interval, read_hour, read_interval
from fleet.snapshot import FleetArrays
from telemetry.store.columns import Window

__all__ = ["share_out"]

#: So many peaks are looked at in one turn.
_AT_ONCE = 6
_ROWS_AT_ONCE = 5_000

Row = TypeVar("Row", SiteHour, PlaceHour, ProjectHour, JobHour)


def share_out(fleet: FleetArrays) -> None:
    """Write down who drew the peaks of which that is not known yet, a few at most.

    Some ten queries for each, and the reads of an hour.
    """
    new = SiteHour.objects.filter(peak_at__isnull=False, peak_mj=None).exclude(five_minutes_mj=[])
    by_span: dict[tuple[datetime, datetime, int], list[SiteHour]] = defaultdict(list)
    for row in new.order_by("-hour"):
        if row.peak is not None:
            by_span[row.hour, *row.peak[:2]].append(row)
    for (hour, at, length_s), rows in list(by_span.items())[:_AT_ONCE]:
        pue = rating.stated_pue(fleet, hour)
        window = Window(at.timestamp(), at.timestamp() + length_s)
        found = read_interval(fleet, read_hour(fleet, hour.timestamp(), pue), window, pue)
        _keep(fleet, rows, found)


def _keep(fleet: FleetArrays, rows: Sequence[SiteHour], found: Interval) -> None:
    """Write down what sites, racks, projects and jobs drew in a peak that these sites share."""
    sites = [row.site for row in rows]
    of_jobs = _by_job(fleet, found)
    of_projects: dict[tuple[str, ...], int] = defaultdict(int)
    for (site, project, _), mj in of_jobs.items():
        of_projects[site, project] += mj
    total = dict(zip(fleet.sites.names.tolist(), found.account.sites.total.tolist(), strict=True))
    racks = dict(zip(fleet.racks.paths.tolist(), found.account.racks.total.tolist(), strict=True))
    here = {"hour": rows[0].hour, "site__in": sites}
    places = PlaceHour.objects.filter(kind=PlaceHour.Kind.RACK, **here)
    with transaction.atomic():
        _set(SiteHour, [(row, total[row.site]) for row in rows])
        _set(PlaceHour, [(row, racks.get(row.place, 0)) for row in places])
        _set(
            ProjectHour,
            [
                (row, of_projects.get((row.site, row.project), 0))
                for row in ProjectHour.objects.filter(**here)
            ],
        )
        _set(
            JobHour,
            [
                (row, of_jobs.get((row.site, row.project, row.job), 0))
                for row in JobHour.objects.filter(**here)
            ],
        )


def _set(model: type[Row], drawn: Sequence[tuple[Row, int]]) -> None:
    """Write what rows drew in a peak, mJ. 0 of a site: no minutes are there, and hours tell."""
    for row, mj in drawn:
        row.peak_mj = max(mj, 0)
    rows = [row for row, _ in drawn]
    model._default_manager.bulk_update(rows, ["peak_mj"], batch_size=_ROWS_AT_ONCE)


def _by_job(fleet: FleetArrays, found: Interval) -> dict[tuple[str, ...], int]:
    """Return what jobs drew, mJ, by site, project and job."""
    pieces, whole = found.account.pieces, found.account.shares.whole
    mine = pieces.owner >= FIRST_JOB
    site = fleet.racks.site[fleet.nodes.rack[fleet.gpus.node[pieces.gpu[mine]]]]
    count = len(found.jobs)
    key = site * count + pieces.owner[mine] - FIRST_JOB
    sums = total_by(whole[mine], key, len(fleet.sites) * count)
    names = fleet.sites.names.tolist()
    return {
        (names[at // count], *found.jobs[at % count]): int(sums[at])
        for at in np.unique(key).tolist()
    }
