"""The slices of a partitioned GPU: who holds each, and what of the GPU's draw is its."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from django.urls import reverse

from accounts.visibility import Visibility
from admission.allocation import open_attempts
from admission.core.allocation.allocations import Allocations
from admission.core.slices import apportioned_w
from dashboard import units
from dashboard.readings import Reading
from fleet import snapshot
from fleet.models import Gpu

__all__ = ["SliceRow", "disagreement", "of_gpu"]


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One slice. ``job`` is as the reader knows it, empty: nobody's; ``href`` its page, if any."""

    profile: str
    share: float
    #: by the rule of docs/explanation/placement.md, W; None where the GPU is not read
    power_w: float | None
    job: str = ""
    href: str = ""


def of_gpu(gpu: Gpu, power_w: float | None, visibility: Visibility) -> list[SliceRow]:
    """Return the slices of a GPU in the order of NVML; none of one that is whole.

    ``power_w`` is what it draws. One query at most where it is whole.
    """
    if not gpu.slices:
        return []
    fleet = snapshot.current()
    held = open_attempts.current(fleet)
    parts, row = held.fleet.parts, fleet.gpus.index_by_id.get(gpu.pk)
    if parts is None or row is None:
        return []
    load_w = np.zeros(len(fleet.gpus))
    load_w[row] = power_w or 0.0
    shown_w = apportioned_w(parts, load_w, np.nan_to_num(fleet.gpus.rated_w), held.gpus)
    keys = _holders({*np.flatnonzero(parts.gpu == row).tolist()}, held)
    found = []
    for part in np.flatnonzero((parts.gpu == row) & (parts.place >= 0)).tolist():
        job = keys.get(part, "")
        sees = bool(job) and visibility.sees(job)
        found.append(
            SliceRow(
                profile=fleet.slices[row][int(parts.place[part])],
                share=float(parts.share[part]),
                power_w=None if power_w is None else float(shown_w[part]),
                job=visibility.text(job) if job else "",
                href=reverse("job-page", args=[job.partition("/")[0]]) if sees else "",
            )
        )
    return found


def disagreement(gpu: Gpu, reading: Reading) -> str:
    """Return what NVML shows of MIG where the inventory states otherwise; empty: they agree."""
    if reading.stale:
        return ""
    shown, stated = max(int(reading["mig_instances"] or 0), 0), len(gpu.slices)
    if shown == stated:
        return ""
    if not stated:
        return f"NVML shows {units.count(shown, 'slice')}, and the inventory has it as whole"
    return (
        f"NVML shows {shown or 'no'} slice{'' if shown == 1 else 's'}, and the inventory states"
        f" {stated}: no job begins on any of them"
    )


def _holders(rows: set[int], held: Allocations) -> Mapping[int, str]:
    """Return the key of the phase that holds each of ``rows``."""
    return {
        row: each.request.key
        for each in held.attempts
        for row in each.placement.gpus
        if row in rows
    }
