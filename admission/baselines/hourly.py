"""An hour of each gang, by rack, as the account of the hour has gathered it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from django.db.models import Q

from admission.baselines.models import GangHour
from admission.core.account import GpuSpans, Ints
from admission.core.baselines import (
    Bools,
    Condition,
    Floats,
    Metric,
    conditions,
    save_s,
    touched,
)
from admission.core.fleet_account import CAUSES, FleetAccount, Onto
from admission.goodput import records
from admission.goodput.fleet import Iterations
from admission.goodput.gathering import Gathered, Places
from fleet.tables import FleetArrays
from policies.incidents.models import Incident
from policies.restrictions.kinds import LIMITS
from policies.scopes import Scope, ScopeKind
from telemetry.models import CheckpointFact
from telemetry.rollups.spec import MINUTES
from telemetry.samples import LINK
from telemetry.spans import Span
from telemetry.store.columns import Window
from telemetry.store.reading import read

__all__ = ["rows"]

_Found = list[tuple[Scope, float, float]]


def rows(
    span: Span, gathered: Gathered, found: FleetAccount, iterations: Iterations
) -> list[GangHour]:
    """Return what is known of each gang in each rack in an hour. Four queries, and one of links."""
    places, gangs, racks = gathered.places, gathered.attempts, gathered.fleet.racks
    told = conditions(found, len(gangs), _others(span, gathered))
    of_place = places.working.means()
    of_place[Metric.LINK_LATENCY_S] = _link_latency_s(span, gathered.fleet)[places.rack]
    is_first = _is_most(places)
    for metric, values in _of_gangs(gathered, found, iterations).items():
        of_place[metric] = np.where(is_first, values[places.gang], np.nan)
    values = np.array([of_place[metric] for metric in Metric]).reshape(len(Metric), -1)
    # Of a gang that did no work in the rack the readings of its links alone say nothing.
    known = (places.working.readings > 0.0) | ~np.isnan(values[_OF_GANG]).all(axis=0)
    return [
        GangHour(
            hour=span.start_at,
            site=str(gathered.fleet.sites.names[racks.site[places.rack[at]]]),
            rack=str(racks.names[places.rack[at]]),
            project=gangs[gang].project, phase=gangs[gang].phase, attempt_id=gangs[gang].pk,
            causes=told[gang], **_named(values[:, at]),
        )
        for at, gang in enumerate(places.gang.tolist())
        if known[at]
    ]  # fmt: skip


_OF_GANG = [
    place
    for place, metric in enumerate(Metric)
    if metric in (Metric.SYNC_S, Metric.SAVE_S, Metric.SAVE_BYTES_PER_S)
]


def _named(values: Floats) -> dict[str, float | None]:
    """Return values by their fields; None: not known."""
    pairs = zip(Metric, values.tolist(), strict=True)
    return {metric.value: None if math.isnan(value) else value for metric, value in pairs}


def _is_most(places: Places) -> Bools:
    """Say of each place whether most of its gang is there; of equal ones the first."""
    order = np.lexsort((-places.gpus, places.gang))
    found = np.zeros(places.gang.size, dtype=np.bool_)
    found[order] = np.diff(places.gang[order], prepend=-1) != 0
    return found


# --- What gangs tell -----------------------------------------------------------------------------


def _of_gangs(
    gathered: Gathered, found: FleetAccount, iterations: Iterations
) -> Mapping[Metric, Floats]:
    """Return what is known of gangs as a whole, by number; NaN: not known. One query."""
    gangs = gathered.attempts
    us = np.zeros((len(gangs), len(CAUSES)), dtype=np.int64)
    held = found.gang >= 0
    np.add.at(us, found.gang[held], found.us[held])
    period_s = np.array([each.save_every_s or np.nan for each in gangs], dtype=np.float64)
    took_s = save_s(us, period_s)
    sizes = _checkpoint_bytes({gangs[at].job for at in np.flatnonzero(~np.isnan(took_s)).tolist()})
    size = np.array([sizes.get(each.job, np.nan) for each in gangs], dtype=np.float64)
    return {
        Metric.SYNC_S: iterations.sync_s,
        Metric.SAVE_S: took_s,
        Metric.SAVE_BYTES_PER_S: size / took_s,
    }


def _checkpoint_bytes(jobs: set[str]) -> dict[str, float]:
    """Return the bytes of the latest whole checkpoint of jobs, as keepers tell. One query."""
    facts = CheckpointFact.objects.filter(job__in=jobs, bytes__isnull=False).order_by("saved_at")
    return {job: float(size) for job, size in facts.values_list("job", "bytes") if size}


# --- What readings of links tell -----------------------------------------------------------------


def _link_latency_s(span: Span, fleet: FleetArrays) -> Floats:
    """Return the mean latency of the links that begin in each rack, by row; NaN: not known."""
    links, count = fleet.links, len(fleet.racks)
    begin = np.flatnonzero(links.rack >= 0)
    if not begin.size:
        return np.full(count, np.nan)
    window = Window(span.start, span.end)
    found = read(MINUTES[LINK.name], ("latency_s",), window, links.ids[begin].tolist())
    some = ~np.isnan(found["latency_s"])
    row = {key: at for at, key in zip(begin.tolist(), links.ids[begin].tolist(), strict=True)}
    rack = links.rack[[row[key] for key in found["link_id"][some].tolist()]]
    times = np.bincount(rack, minlength=count)
    total = np.bincount(rack, found["latency_s"][some].astype(np.float64), count)
    mean: Floats = np.full(count, np.nan)
    np.divide(total, times, out=mean, where=times > 0)
    return mean


# --- What held them back -------------------------------------------------------------------------


def _others(span: Span, gathered: Gathered) -> dict[str, Bools]:
    """Say of each gang whether a cap, a restriction or an incident was upon it. Two queries."""
    found = gathered.records
    restricted = [each.where for each in records.in_force(~Q(kind__in=LIMITS), span)]
    capped = _is_on(found.part_caps, gathered)
    capped[_in_time(found.caps, span)] = True
    return {
        Condition.CAPPED: capped,
        Condition.RESTRICTED: _covered(restricted, gathered),
        Condition.INCIDENT: _covered(_incidents(span), gathered),
    }


def _in_time(spans: GpuSpans, span: Span) -> Ints:
    """Return the numbers of gangs whose spans reach into the hour."""
    return spans.gpu[(spans.start_us < span.end * 1e6) & (spans.end_us > span.start * 1e6)]


def _is_on(spans: GpuSpans, gathered: Gathered) -> Bools:
    """Say of each gang whether spans of parts fell into time in which it held these."""
    found = gathered.records
    return touched(spans, found.held, found.gang, len(gathered.attempts))


def _covered(found: _Found, gathered: Gathered) -> Bools:
    """Say of each gang whether a scope covered it, or a part of it, while it ran."""
    on_gpus = records.on_scopes(found, gathered.fleet)
    covered = _is_on(Onto(gathered.records.parts.gpu).put(on_gpus), gathered)
    for scope, start, end in found:
        if scope.kind in (ScopeKind.CLASS, ScopeKind.JOB):
            for at, each in enumerate(gathered.attempts):
                name = each.job if scope.kind is ScopeKind.JOB else each.job_class
                if name == scope.name and each.dispatched < end and each.ended > start:
                    covered[at] = True
    return covered


def _incidents(span: Span) -> _Found:
    """Return the scopes of incidents that were open, and when. One query."""
    rows = Incident.objects.filter(
        Q(resolved_at=None) | Q(resolved_at__gt=span.start_at), opened_at__lt=span.end_at
    ).values_list("scope_kind", "scope_name", "opened_at", "resolved_at")
    return [
        (Scope(ScopeKind(kind), name), begun.timestamp(), over.timestamp() if over else span.end)
        for kind, name, begun, over in rows
    ]
