"""Who had which GPU over a span, and which part of its energy is theirs. Pure.

A GPU's energy is theirs who held it, by the time for which they did; between two holders the
minutes of the change are divided, not the whole span. Slices of a GPU have the parts that
:func:`admission.core.slices.whole_w` says. What nobody held is idle, or unmanaged where readings
show work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from admission.core.energy.amounts import MS_PER_S, Bools, Read, apportion
from admission.core.slices import whole_w
from fleet.tables import FleetArrays, Floats, Ints

__all__ = ["FIRST_JOB", "IDLE", "UNMANAGED", "Buckets", "Held", "Pieces", "changing", "pieces_of"]

#: Who a piece is of: nobody, unknown work, or a job, from FIRST_JOB on in the caller's order.
IDLE, UNMANAGED, FIRST_JOB = 0, 1, 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Held:
    """Spans in which jobs held GPUs: rows of GPUs, owners from FIRST_JOB on, Unix s, in any order.

    ``share`` is how much of the GPU was held, below 1 for a slice.
    """

    gpu: Ints
    owner: Ints
    start: Floats
    end: Floats
    share: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Buckets:
    """Parts of the span of each GPU, in order of GPU: when, Unix s, and their weight in energy.

    Each GPU has at least one; the buckets of one GPU add up to the span.
    """

    gpu: Ints
    start: Floats
    end: Floats
    weight: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Pieces:
    """Who had which GPU for how long, ms, and what that came to, mJ; in order of GPU and owner.

    The pieces of a GPU add up to what was read of it, and their times to the span.
    """

    gpu: Ints
    owner: Ints
    ms: Ints
    mj: Ints


def changing(held: Held, start: float, end: float, gpus: int) -> Bools:
    """Say of each of ``gpus`` rows whether who held it changed within a span: minutes then tell."""
    cuts = ((held.start > start) & (held.start < end)) | ((held.end > start) & (held.end < end))
    found = np.zeros(gpus, dtype=bool)
    found[held.gpu[cuts & (held.end > start) & (held.start < end)]] = True
    return found


def pieces_of(fleet: FleetArrays, gpus: Read, buckets: Buckets, held: Held, works: Bools) -> Pieces:
    """Return who had which part of the time and of the energy of each GPU.

    ``gpus`` is by row of GPU; ``works`` says of which of them readings show work, of whomever.
    """
    bucket_ms = np.rint((buckets.end - buckets.start) * MS_PER_S).astype(np.int64)
    bucket_mj = apportion(gpus.mj, buckets.weight, buckets.gpu)
    bucket, span = _crossed(buckets, held)
    overlap_s = np.minimum(buckets.end[bucket], held.end[span])
    overlap_s = overlap_s - np.maximum(buckets.start[bucket], held.start[span])
    taken = np.maximum(overlap_s, 0.0) * held.share[span]
    length_s = buckets.end - buckets.start
    of_held = np.bincount(bucket, weights=taken, minlength=len(length_s)) / length_s
    # Two that claim one GPU share it: no second counts twice.
    taken = taken / np.maximum(of_held, 1.0)[bucket]
    of_held = np.minimum(of_held, 1.0)
    held_w, others_w = _as_if_whole(fleet, buckets, bucket_mj, of_held)
    every = np.arange(len(length_s))
    member = np.concatenate([bucket, every])
    order = np.argsort(member, kind="stable")
    member = member[order]
    left_s = (1.0 - of_held) * length_s
    time_s = np.concatenate([taken, left_s])[order]
    energy = np.concatenate([taken * held_w[bucket], left_s * others_w])[order]
    # Where nothing was drawn, or read, time alone tells.
    drawn = np.bincount(member, weights=energy, minlength=len(length_s)) > 0
    energy = np.where(drawn[member], energy, time_s)
    nobody = np.where(works[buckets.gpu], UNMANAGED, IDLE)
    owner = np.concatenate([held.owner[span], nobody])[order]
    return _joined(
        buckets.gpu[member],
        owner,
        apportion(bucket_ms, time_s, member),
        apportion(bucket_mj, energy, member),
    )


def _crossed(buckets: Buckets, held: Held) -> tuple[Ints, Ints]:
    """Return the pairs of a bucket and a span of its GPU that overlap, in order of bucket."""
    order = np.argsort(held.gpu, kind="stable")
    by_gpu = held.gpu[order]
    first = np.searchsorted(by_gpu, buckets.gpu, side="left")
    count = np.searchsorted(by_gpu, buckets.gpu, side="right") - first
    bucket = np.repeat(np.arange(len(buckets.gpu)), count)
    within = np.arange(len(bucket)) - np.repeat(np.cumsum(count) - count, count)
    span = order[np.repeat(first, count) + within]
    meets = (held.start[span] < buckets.end[bucket]) & (held.end[span] > buckets.start[bucket])
    return bucket[meets], span[meets]


def _as_if_whole(
    fleet: FleetArrays, buckets: Buckets, bucket_mj: Ints, of_held: Floats
) -> tuple[Floats, Floats]:
    """Return what held and other parts of each bucket's GPU would draw as a whole GPU, W.

    Of a GPU that is not split all parts draw alike: its parts are those of time.
    """
    gpus = fleet.gpus
    load_w = bucket_mj / np.maximum((buckets.end - buckets.start) * MS_PER_S, 1e-9)
    split = np.zeros(len(gpus), dtype=bool)
    split[list(fleet.slices)] = True
    here = split[buckets.gpu]
    held_w, others_w = load_w.copy(), load_w.copy()
    row = buckets.gpu[here]
    idle_w = np.nan_to_num(gpus.idle_w[row])
    held_w[here], others_w[here] = whole_w(load_w[here], idle_w, gpus.rated_w[row], of_held[here])
    return held_w, others_w


def _joined(gpu: Ints, owner: Ints, ms: Ints, mj: Ints) -> Pieces:
    """Return one piece for each GPU and owner that has any of it."""
    some = (ms != 0) | (mj != 0)
    gpu, owner, ms, mj = gpu[some], owner[some], ms[some], mj[some]
    order = np.lexsort((owner, gpu))
    gpu, owner, ms, mj = gpu[order], owner[order], ms[order], mj[order]
    is_first = np.append(True, (gpu[1:] != gpu[:-1]) | (owner[1:] != owner[:-1]))[: len(gpu)]
    starts = np.flatnonzero(is_first)
    if not len(starts):
        return Pieces(gpu=gpu, owner=owner, ms=ms, mj=mj)
    return Pieces(
        gpu=gpu[starts],
        owner=owner[starts],
        ms=np.add.reduceat(ms, starts),
        mj=np.add.reduceat(mj, starts),
    )
