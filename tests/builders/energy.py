"""Energy of made fleets: what was read of GPUs, hosts and meters in an hour, and who held them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from admission.core.energy.amounts import Bools, Read
from admission.core.energy.closing import Account, close
from admission.core.energy.holders import FIRST_JOB, Buckets, Held, Pieces, pieces_of
from fleet.tables import METER_KINDS, METER_TARGETS, FleetArrays, MeterTable

HOUR_S = 3600.0


def reading(joules: Sequence[float | None], *, share: float = 1.0) -> Read:
    """Return readings that are known, J, of the whole hour; None: nothing was read."""
    known = np.array([each is not None for each in joules], dtype=bool)
    mj = np.array([0 if each is None else round(each * 1000) for each in joules], dtype=np.int64)
    covered = np.where(known, round(share * HOUR_S * 1000), 0).astype(np.int64)
    return Read(mj, np.zeros_like(mj), covered, known)


def held(*spans: tuple[int, int, float, float] | tuple[int, int, float, float, float]) -> Held:
    """Return spans as (GPU, job from 0 on, from s, to s, share)."""
    rows = [(*span, 1.0)[:5] for span in spans]
    gpu, job, start, end, share = np.array(rows, dtype=float).reshape(-1, 5).T
    return Held(
        gpu=gpu.astype(np.int64), owner=job.astype(np.int64) + FIRST_JOB, start=start, end=end,
        share=share,
    )  # fmt: skip


def hours(gpus: int) -> Buckets:
    """Return one bucket for each GPU: the hour."""
    every = np.arange(gpus)
    return Buckets(gpu=every, start=np.zeros(gpus), end=np.full(gpus, HOUR_S), weight=np.ones(gpus))


def pieces(
    fleet: FleetArrays, joules: Sequence[float | None], spans: Held, works: Bools | None = None
) -> Pieces:
    """Return who had what of GPUs that used ``joules``; nobody's were idle, unless they work."""
    count = len(fleet.gpus)
    at_work = np.zeros(count, dtype=bool) if works is None else works
    return pieces_of(fleet, reading(joules), hours(count), spans, at_work)


def with_meters(fleet: FleetArrays, on: Mapping[tuple[str, int], float | None]) -> FleetArrays:
    """Return a fleet with power meters on these things: (kind of target, row)."""
    kinds = np.array([METER_TARGETS.index(kind) for kind, _ in on], dtype=np.int64)
    names = np.array([f"{kind}-{row}" for kind, row in on], dtype=np.object_)
    table = MeterTable(
        ids=np.arange(len(on)) + 1,
        names=names,
        kind=np.full(len(on), METER_KINDS.index("power")),
        target_kind=kinds,
        target=np.array([row for _, row in on], dtype=np.int64),
    )
    return replace(fleet, meters=table)


def closed(
    fleet: FleetArrays,
    made: Pieces,
    hosts: Sequence[float | None],
    meters: Mapping[tuple[str, int], float | None],
    *,
    pue: Sequence[float] | None = None,
) -> Account:
    """Return the account of an hour with these hosts, J, and these meters, J."""
    stated = np.array(pue) if pue is not None else np.full(len(fleet.sites), np.nan)
    metered = with_meters(fleet, meters)
    return close(metered, made, reading(hosts), reading(list(meters.values())), HOUR_S, stated)
