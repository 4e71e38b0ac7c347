"""The ledger of energy: hours are closed once their roll-ups are whole, and once more days later.

An hour is written in one transaction that removes what it had before, so closing it again changes
nothing but what was read since. Agents send what they kept for up to 72 h: then it is settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import numpy as np
from django.conf import settings
from django.db import connection, models, transaction
from django.db.models import Max

from admission.core.energy.amounts import total_by
from admission.core.energy.holders import FIRST_JOB
from admission.energy import demand, metrics, peaks, rating
from admission.energy.models import ClosedHour, JobHour, PlaceHour, ProjectHour, SiteHour
from admission.energy.reading import Hour, by_five_minutes, read_hour
from fleet import locks, snapshot
from fleet.snapshot import FleetArrays
from fleet.tables import Ints
from telemetry import samples
from telemetry.rollups import progress
from telemetry.rollups.spec import HOUR_S

__all__ = ["close_due", "close_hour", "prune"]

_LOCK = 0x454E4552
#: What agents keep on disk is there by then.
SETTLES_AFTER = timedelta(hours=72)
#: Hours that are missing further back are left: their attempts may be gone.
_LOOKS_BACK = timedelta(days=7)
#: So many hours are closed in one turn.
_AT_ONCE = 6
_ROWS_AT_ONCE = 5_000
_SOURCES = (samples.GPU.name, samples.HOST.name, samples.METER.name)

Row = TypeVar("Row", bound=models.Model)


def close_due(now: float) -> bool:
    """Close the hours that are due, a few at most; False where another process is at it."""
    with locks.only_one(_LOCK) as held:
        if held:
            for hour in _due(datetime.fromtimestamp(now, UTC))[:_AT_ONCE]:
                close_hour(snapshot.fresh(), hour, datetime.fromtimestamp(now, UTC))
            peaks.share_out(snapshot.fresh())
            newest = SiteHour.objects.aggregate(newest=Max("hour"))["newest"]
            metrics.show(SiteHour.objects.filter(hour=newest))
            metrics.show_demand(demand.months(datetime.fromtimestamp(now, UTC)))
        return held


def _due(now: datetime) -> list[datetime]:
    """Return the hours to close, the oldest first. Three queries."""
    ready = _rolled_up_until()
    newest = ClosedHour.objects.order_by("-hour").values_list("hour", flat=True).first()
    last = _hour_of(ready) - timedelta(hours=1)
    first = last if newest is None else max(newest + timedelta(hours=1), last - _LOOKS_BACK)
    count = max(int((last - first) / timedelta(hours=1)) + 1, 0)
    new = [first + timedelta(hours=n) for n in range(count)] if ready.timestamp() > 0 else []
    again = ClosedHour.objects.filter(again_at__lte=now).order_by("hour")
    return [*new, *again.values_list("hour", flat=True)[:_AT_ONCE]]


def _rolled_up_until() -> datetime:
    """Return up to when the roll-ups by hour are whole, of all that is closed by."""
    with connection.cursor() as cursor:
        done = [progress.done(cursor.cursor, source).get(HOUR_S, 0.0) for source in _SOURCES]
    return datetime.fromtimestamp(min(done), UTC)


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def close_hour(fleet: FleetArrays, hour: datetime, now: datetime) -> Hour:
    """Close one hour, in place of what it had before. Some forty queries."""
    pue = rating.stated_pue(fleet, hour)
    found = read_hour(fleet, hour.timestamp(), pue)
    five_minutes = by_five_minutes(fleet, found, pue)
    with transaction.atomic():
        for model in (SiteHour, PlaceHour, ProjectHour, JobHour):
            model._default_manager.filter(hour=hour).delete()
        _write(SiteHour, _sites(fleet, hour, found, five_minutes))
        _write(PlaceHour, _places(fleet, hour, found))
        _write(JobHour, _jobs(fleet, hour, found))
        _write(ProjectHour, _projects(fleet, hour, found))
        settles_at = hour + SETTLES_AFTER
        again_at = settles_at if now < settles_at else None
        ClosedHour.objects.update_or_create(
            hour=hour, defaults={"closed_at": now, "again_at": again_at}
        )
        rating.rate(hour, hour + timedelta(hours=1))
    return found


def prune(now: datetime) -> None:
    """Forget nodes, racks and jobs by hour past their retention; sites and projects stay."""
    oldest = now - timedelta(days=settings.ENERGY_KEPT_DAYS)
    PlaceHour.objects.filter(hour__lt=oldest).delete()
    JobHour.objects.filter(hour__lt=oldest).delete()


def _write(model: type[Row], rows: Iterable[Row]) -> None:
    model._default_manager.bulk_create(rows, batch_size=_ROWS_AT_ONCE)


# --- Rows ----------------------------------------------------------------------------------------


def _sites(
    fleet: FleetArrays, hour: datetime, found: Hour, five_minutes: Ints
) -> Iterator[SiteHour]:
    sites, account = found.account.sites, found.account
    site_of_node = fleet.racks.site[fleet.nodes.rack]
    count = len(fleet.sites)
    host = total_by(account.shares.host, fleet.gpus.node[account.pieces.gpu], len(fleet.nodes))
    columns = {
        "jobs_mj": sites.jobs, "idle_mj": sites.idle, "unmanaged_mj": sites.unmanaged,
        "residual_mj": sites.residual, "it_mj": sites.it, "overhead_mj": sites.overhead,
        "basis": sites.basis, "it_metered": sites.it_metered,
        "facility_metered": sites.facility_metered,
        "by_difference_mj": total_by(
            np.where(account.by_difference, host, 0), site_of_node, count
        ),
        **_read(fleet, found, site_of_node, count),
    }  # fmt: skip
    names, bins = fleet.sites.names.tolist(), five_minutes.tolist()
    for name, row, by_bin in zip(names, _rows(columns), bins, strict=True):
        yield SiteHour(hour=hour, site=name, five_minutes_mj=by_bin if any(by_bin) else [], **row)


def _places(fleet: FleetArrays, hour: datetime, found: Hour) -> Iterator[PlaceHour]:
    racks, nodes = fleet.racks, fleet.nodes
    kinds = (
        (PlaceHour.Kind.RACK, found.account.racks, racks.paths, racks.site, nodes.rack),
        (
            PlaceHour.Kind.NODE, found.account.nodes, nodes.names, racks.site[nodes.rack],
            np.arange(len(nodes)),
        ),
    )  # fmt: skip
    for kind, level, names, site, place_of_node in kinds:
        columns = {
            "jobs_mj": level.jobs, "idle_mj": level.idle, "unmanaged_mj": level.unmanaged,
            "residual_mj": level.residual, "shared_mj": level.shared, "metered": level.metered,
            **_read(fleet, found, place_of_node, len(names)),
        }  # fmt: skip
        at = fleet.sites.names[site].tolist()
        for name, where, row in zip(names.tolist(), at, _rows(columns), strict=True):
            yield PlaceHour(hour=hour, kind=kind, place=name, site=where, **row)


def _read(fleet: FleetArrays, found: Hour, place: Ints, count: int) -> dict[str, Ints]:
    """Return how much of the GPUs' time was read and what was bridged; ``place`` is by node."""
    gpu_place, gpus = place[fleet.gpus.node], found.gpus
    hour_ms = np.full(len(fleet.gpus), HOUR_S * 1000)
    bridged = total_by(gpus.bridged_mj, gpu_place, count)
    return {
        "gpu_ms": total_by(hour_ms, gpu_place, count),
        "covered_ms": total_by(gpus.covered_ms, gpu_place, count),
        "bridged_mj": bridged + total_by(found.account.host_bridged, place, count),
    }


def _jobs(fleet: FleetArrays, hour: datetime, found: Hour) -> Iterator[JobHour]:
    number = np.arange(len(found.jobs))
    for site, key, row in _sums(fleet, found, number, len(found.jobs)):
        project, job = found.jobs[key]
        yield JobHour(hour=hour, site=site, project=project, job=job, **row)


def _projects(fleet: FleetArrays, hour: datetime, found: Hour) -> Iterator[ProjectHour]:
    names = sorted({project for project, _ in found.jobs})
    number = np.array([names.index(project) for project, _ in found.jobs], dtype=np.int64)
    for site, key, row in _sums(fleet, found, number, len(names)):
        yield ProjectHour(hour=hour, site=site, project=names[key], **row)


def _sums(
    fleet: FleetArrays, found: Hour, number: Ints, count: int
) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Yield the sums of pieces of jobs by site and ``number``, which is by job."""
    pieces, shares = found.account.pieces, found.account.shares
    mine = pieces.owner >= FIRST_JOB
    gpu = pieces.gpu[mine]
    site = fleet.racks.site[fleet.nodes.rack[fleet.gpus.node[gpu]]]
    key = site * count + number[pieces.owner[mine] - FIRST_JOB]
    size = len(fleet.sites) * count
    columns = {
        "gpu_mj": shares.gpu, "host_mj": shares.host, "shared_mj": shares.shared,
        "overhead_mj": shares.overhead, "gpu_ms": pieces.ms, "unread_ms": _unread_ms(fleet, found),
    }  # fmt: skip
    sums = {name: total_by(values[mine], key, size) for name, values in columns.items()}
    some = np.unique(key)
    rows = _rows({name: values[some] for name, values in sums.items()})
    for at, row in zip(some.tolist(), rows, strict=True):
        yield str(fleet.sites.names[at // count]), at % count, row


def _unread_ms(fleet: FleetArrays, found: Hour) -> Ints:
    """Return the time of each piece of which nothing tells what its GPU drew, ms.

    Where the meter of a node tells what its host drew by difference, that has its GPUs in it.
    """
    pieces = found.account.pieces
    missing = found.gpus.missing(HOUR_S)
    missing[found.account.by_difference[fleet.gpus.node]] = 0.0
    return np.rint(pieces.ms * missing[pieces.gpu]).astype(np.int64)


def _rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of columns of one length, as plain values."""
    lists: Sequence[list[Any]] = [values.tolist() for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
