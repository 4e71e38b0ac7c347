"""Demand that waits, beside GPUs that are free: how much of free time somebody asked for. Pure.

It stands beside the account and is no part of it: a GPU that is free while a job waits is free. At
each moment demand counts against free GPUs up to as many as there are, each wait by its share of
all demand. So what is wanted of free time is never more than that, and never more than demand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from admission.core.account import GpuSpans, Ints

__all__ = ["Waits", "wanted_us"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Waits:
    """Spans in which ``gpus`` were waited for, µs. Arrays of one length, in any order."""

    gpus: Ints
    start_us: Ints
    end_us: Ints

    @property
    def demand_us(self) -> Ints:
        """GPUs that were waited for, times how long, µs."""
        return self.gpus * (self.end_us - self.start_us)


def wanted_us(waits: Waits, free: GpuSpans) -> Ints:
    """Return of each wait for how long it stood against free GPUs, µs of GPUs, rounded down."""
    edges = np.unique(np.concatenate([waits.start_us, waits.end_us, free.start_us, free.end_us]))
    if not edges.size:
        return np.empty(0, dtype=np.int64)
    demand = _over(edges, waits.start_us, waits.end_us, waits.gpus)
    room = _over(edges, free.start_us, free.end_us, np.ones_like(free.gpu))
    share = np.minimum(room, demand) / np.maximum(demand, 1)
    ran = np.concatenate([[0.0], np.cumsum(share[:-1] * np.diff(edges))])
    begin, over = (ran[np.searchsorted(edges, at)] for at in (waits.start_us, waits.end_us))
    # A little less, so that what floats round up of many does not go over what was free.
    found = np.floor(waits.gpus * (over - begin) * (1.0 - 1e-12)).astype(np.int64)
    wanted: Ints = np.minimum(found, waits.demand_us)
    return wanted


def _over(edges: Ints, start_us: Ints, end_us: Ints, weight: Ints) -> Ints:
    """Return from each edge on how much there is."""
    change = np.zeros(edges.size, dtype=np.int64)
    np.add.at(change, np.searchsorted(edges, start_us), weight)
    np.add.at(change, np.searchsorted(edges, end_us), -weight)
    return np.cumsum(change)
