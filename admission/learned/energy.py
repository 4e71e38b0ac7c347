"""The energy that the GPUs of an attempt used, once it has ended and readings are in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import Q

from admission.core.slices import whole_w
from admission.jobs.models import Attempt
from fleet import snapshot
from fleet.partitions import profiles_of, share_of
from fleet.snapshot import FleetArrays
from physics.partitions import shares
from telemetry.samples import Array
from telemetry.series import Kind
from telemetry.store.columns import Window
from telemetry.timeline import extents
from telemetry.timeline.fields import COVERED, TABLES, USED
from telemetry.timeline.reading import Found, fetch
from telemetry.timeline.tiers import Tier, affordable

__all__ = ["SETTLES", "GpuEnergy", "gpus_of", "measure", "of_attempt", "slice_share"]

Floats = npt.NDArray[np.float64]

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
    ids = gpus_of(attempt, fleet)
    tier = affordable(Tier.RAW, len(ids), end - start) if ids and end > start else None
    if tier is None:
        return GpuEnergy(None, 0.0)
    found = fetch(TABLES[Kind.GPU], ids, (USED, COVERED), Window(start, end), tier, now)
    if attempt.placement.get("slices"):
        found = _of_slice(found, attempt, fleet)
    return _summed(found, len(ids) * (end - start))


# --- Of a slice ----------------------------------------------------------------------------------


def _of_slice(found: Found, attempt: Attempt, fleet: FleetArrays) -> Found:
    """Return rows of a GPU with what of its energy a slice has used. One query.

    By the rule of :mod:`admission.core.slices`, with the slices that were held at each row.
    """
    node, slices = next(iter(attempt.placement["slices"].items()))
    row = fleet.gpu_index_by_node[node, attempt.placement["gpus"][node][0]]
    points, used = found.points, found.points.fields[USED]
    covered_s = points.fields[COVERED].value
    load_w = np.divide(used.value, covered_s, out=np.zeros(len(points)), where=covered_s > 0)
    held_w, _ = whole_w(
        np.nan_to_num(load_w),
        np.full(len(points), np.nan_to_num(fleet.gpus.idle_w[row])),
        np.full(len(points), fleet.gpus.rated_w[row]),
        _held_at(points.t, attempt, fleet, row),
    )
    mine = sum(slice_share(fleet, row, each) for each in slices)
    own = replace(used, value=np.where(covered_s > 0, mine * held_w * covered_s, used.value))
    return replace(found, points=replace(points, fields={**points.fields, USED: own}))


def _held_at(at: Array, attempt: Attempt, fleet: FleetArrays, row: int) -> Floats:
    """Return which share of a GPU, given by its row, attempts held at each moment, Unix s."""
    node, index = str(fleet.nodes.names[fleet.gpus.node[row]]), int(fleet.gpus.index[row])
    began = attempt.started_at
    beside = Attempt.objects.filter(
        Q(ended_at=None) | Q(ended_at__gt=began), placement__slices__has_key=node
    )
    if attempt.ended_at is not None:
        beside = beside.filter(started_at__lt=attempt.ended_at)
    share = np.zeros(len(at))
    rows = beside.values_list("placement", "started_at", "ended_at")
    for placement, start, end in rows:
        if start is None:
            continue
        here = zip(placement["gpus"][node], placement["slices"][node], strict=True)
        mine = sum(slice_share(fleet, row, each) for gpu, each in here if gpu == index)
        until = np.inf if end is None else end.timestamp()
        share += np.where((at >= start.timestamp()) & (at < until), mine, 0.0)
    return np.clip(share, 0.0, 1.0)


def slice_share(fleet: FleetArrays, row: int, each: dict[str, Any]) -> float:
    """Return the share of a slice; as its profile says where its GPU is split otherwise by now."""
    profiles = fleet.slices.get(row, ())
    model = str(fleet.models.names[fleet.gpus.model[row]])
    if each["place"] < len(profiles) and profiles[each["place"]] == each["profile"]:
        known = profiles_of(model)
        return shares([known[name] for name in profiles])[int(each["place"])]
    return share_of(each["profile"], (model,))


# --- Sums ----------------------------------------------------------------------------------------


def gpus_of(attempt: Attempt, fleet: FleetArrays) -> list[int]:
    """Return the ids of the GPUs of an attempt, without those that the inventory no longer has."""
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
