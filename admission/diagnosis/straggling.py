"""Who holds the gang of an attempt back: ranks, by its loop's reports, and GPUs, by their peers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from admission.core.stragglers import Straggler, stragglers, usual_of
from admission.jobs.models import Attempt
from admission.learned.energy import gpus_of
from admission.timeline.reading import reporting
from fleet import snapshot
from fleet.tables import FleetArrays
from telemetry.lemons.models import LemonFinding
from telemetry.samples import JOB
from telemetry.spans import Span
from telemetry.store.columns import US, Window, is_null
from telemetry.store.reading import read

__all__ = ["Held", "SlowGpu", "of_attempt"]

Floats = NDArray[np.float64]

#: So long before the end of an attempt, or before now, is looked at, s.
_LOOKED_AT_S = 900.0
#: What is usual in its gang is fitted to reports of so long before that, s.
_USUAL_S = 3600.0


@dataclass(frozen=True, slots=True)
class SlowGpu:
    """A GPU of a gang that gives less clock than its peers under the same load, MHz."""

    name: str
    own_mhz: float
    peers_mhz: float
    among: str


@dataclass(frozen=True, slots=True)
class Held:
    """Ranks and GPUs that hold an attempt back. ``looked_s``: of so much time reports were read."""

    attempt: str
    ranks: tuple[Straggler, ...]
    gpus: tuple[SlowGpu, ...]
    looked_s: float


def of_attempt(attempt: Attempt, now: float) -> Held:
    """Return who holds an attempt back, or did in its last 15 minutes. Ten queries.

    Ranks are told where the attempt had the job to itself, or its loop reports as it.
    """
    end = now if attempt.ended_at is None else attempt.ended_at.timestamp()
    began = (attempt.started_at or attempt.dispatched_at).timestamp()
    span = Span(max(began, end - _LOOKED_AT_S), end)
    before = Span(max(began, span.start - _USUAL_S), span.start)
    machines = max(len(attempt.placement.get("nodes", ())), 1)
    _, slowest, spread = _reports(attempt, before)
    usual = usual_of(slowest, spread, machines)
    ranks = stragglers(*_reports(attempt, span), machines, usual)
    return Held(attempt.key, ranks, tuple(_gpus(attempt, span)), span.end - span.start)


def _reports(attempt: Attempt, span: Span) -> tuple[Floats, Floats, Floats]:
    """Return when a loop reported, Unix s, its slowest rank, NaN: none, and that rank's spread."""
    known = reporting(attempt, span) if span.start < span.end else []
    if not known:
        nothing = np.empty(0)
        return nothing, nothing, nothing
    fields = ("rank_spread", "slowest_rank")
    found = read(JOB, fields, Window(span.start, span.end), sorted(known))
    order = np.argsort(found["ts"], kind="stable")
    spread, slowest = (
        np.where(is_null(found[name]), np.nan, found[name].astype(np.float64))[order]
        for name in fields
    )
    told = ~np.isnan(spread)
    return found["ts"][order][told] / US, slowest[told], spread[told]


def _gpus(attempt: Attempt, span: Span) -> list[SlowGpu]:
    fleet = snapshot.current()
    found = LemonFinding.objects.filter(
        gpu__in=gpus_of(attempt, fleet), metric=LemonFinding.Metrics.SLOW_CLOCK,
        since__lt=span.end_at, seen_at__gt=span.start_at,
    ).order_by("-score", "pk")  # fmt: skip
    return [
        SlowGpu(_name(fleet, each.gpu_id), each.own, each.peers_median, each.among)
        for each in found
    ]


def _name(fleet: FleetArrays, gpu: int) -> str:
    row = fleet.gpus.index_by_id[gpu]
    return f"{fleet.nodes.names[fleet.gpus.node[row]]} GPU {fleet.gpus.index[row]}"
