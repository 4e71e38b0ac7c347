"""The energy that the GPUs of an attempt used, once it has ended and readings are in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from admission.jobs.models import Attempt
from fleet import snapshot
from fleet.snapshot import FleetArrays
from telemetry.series import Kind
from telemetry.store.columns import Window
from telemetry.timeline import extents
from telemetry.timeline.fields import COVERED, TABLES, USED
from telemetry.timeline.reading import Found, fetch
from telemetry.timeline.tiers import Tier, affordable

__all__ = ["SETTLES", "GpuEnergy", "measure", "of_attempt"]

#: Readings are in so long after they were made, where all is well.
SETTLES = timedelta(seconds=30)
#: What was not read whole by then is written down as it is.
_WAITS_FOR = timedelta(minutes=10)
#: Attempts that ended before are left: nobody measured them.
_LOOKS_BACK = timedelta(days=1)
#: Less of the time is not whole.
_WHOLE = 0.98
_MOST = 50


@dataclass(frozen=True, slots=True)
class GpuEnergy:
    """Energy of GPUs, J; ``share`` of their time was read, the rest is bridged.

    None: nothing was read.
    """

    used_j: float | None
    share: float


def measure(now: float) -> int:
    """Write down the energy of attempts that have ended; return of how many.

    Two queries, and some for each attempt that is due.
    """
    at = datetime.fromtimestamp(now, UTC)
    due = Attempt.objects.filter(
        state=Attempt.State.ENDED, started_at__isnull=False, energy_share=None,
        ended_at__lt=at - SETTLES, ended_at__gt=at - _LOOKS_BACK,
    ).order_by("ended_at")  # fmt: skip
    done = []
    for row in due[:_MOST]:
        found = of_attempt(row, snapshot.current(), now)
        if found.share < _WHOLE and row.ended_at is not None and at - row.ended_at < _WAITS_FOR:
            # Agents keep what they could not send, and send it yet.
            continue
        row.energy_j, row.energy_share = found.used_j, found.share
        done.append(row)
    Attempt.objects.bulk_update(done, ["energy_j", "energy_share"])
    return len(done)


def of_attempt(attempt: Attempt, fleet: FleetArrays, now: float) -> GpuEnergy:
    """Return what the GPUs of an attempt used from its start to its end, or up to ``now``."""
    if attempt.started_at is None:
        return GpuEnergy(None, 0.0)
    start = attempt.started_at.timestamp()
    end = attempt.ended_at.timestamp() if attempt.ended_at is not None else now
    ids = _gpus(attempt, fleet)
    tier = affordable(Tier.RAW, len(ids), end - start) if ids and end > start else None
    if tier is None:
        return GpuEnergy(None, 0.0)
    found = fetch(TABLES[Kind.GPU], ids, (USED, COVERED), Window(start, end), tier, now)
    return _summed(found, len(ids) * (end - start))


def _gpus(attempt: Attempt, fleet: FleetArrays) -> list[int]:
    rows = fleet.gpu_index_by_node
    named = attempt.placement.get("gpus", {}).items()
    found = [rows[node, index] for node, gpus in named for index in gpus if (node, index) in rows]
    return [int(gpu) for gpu in fleet.gpus.ids[found]]


def _summed(found: Found, held_s: float) -> GpuEnergy:
    """Sum up GPUs, of which each bridges its own gaps. ``held_s``: GPU seconds that were held."""
    each = [extents.energy(found.points.at(found.ids == gpu)) for gpu in np.unique(found.ids)]
    known = [energy for energy in each if energy is not None]
    if not known:
        return GpuEnergy(None, 0.0)
    covered_s = sum(energy.covered_s for energy in known)
    return GpuEnergy(sum(energy.bridged_j for energy in known), min(covered_s / held_s, 1.0))
