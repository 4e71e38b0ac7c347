"""Where the time of all GPUs of a fleet went: each microsecond of each has exactly one cause. Pure.

GPUs that a gang holds go by :mod:`admission.core.account`, all others by their readings. What is
told of a gang holds for all of its GPUs, so those that are alike otherwise are counted once: the
account of a gang of a thousand GPUs costs what that of one does.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from admission.core.account import (
    LEVERS,
    PPM,
    Axis,
    Cause,
    GpuSpans,
    Ints,
    Shares,
    Whole,
    accounts,
)

__all__ = [
    "CAUSES", "FLEET_LEVERS", "HELD", "FleetAccount", "Gangs", "Onto", "Parts", "Unheld", "chosen",
    "fleet_account", "gang_accounts",
]  # fmt: skip

S = TypeVar("S", bound=GpuSpans)


class Unheld(enum.StrEnum):
    """What a GPU's time went to while no gang held it, in order of precedence: the later wins."""

    #: it could have been given to a gang
    FREE = "free"
    #: none of its readings came: it failed, or its agent did
    SILENT = "silent"
    #: a drain, or maintenance, kept all gangs off it
    DRAINED = "drained"
    #: its readings show work, and nobody told Headroom whose
    UNMANAGED = "unmanaged"


#: Causes that came later: hours that are kept go by the order, so new ones are put at its end.
_LATER = (Cause.LOW_DRAW,)
#: What brings the time of each cause back, for all that an account of a fleet may have.
FLEET_LEVERS: Mapping[str, str] = {
    **{cause: lever for cause, lever in LEVERS.items() if cause not in _LATER},
    Unheld.FREE: "see what the queue waits for, and lend what no project asks for",
    Unheld.SILENT: "repair the node, or start its agent again",
    Unheld.DRAINED: "finish the work on it, and end the drain",
    Unheld.UNMANAGED: "have Headroom adopt the jobs of the scheduler that holds it",
    **{cause: LEVERS[cause] for cause in _LATER},
}
#: The columns of :attr:`FleetAccount.us`.
CAUSES: tuple[str, ...] = tuple(FLEET_LEVERS)
#: Of these, the columns of causes of time that was held, in the order of :data:`LEVERS`.
HELD: tuple[int, ...] = tuple(CAUSES.index(cause) for cause in LEVERS)
_NO_SPANS = GpuSpans(**{name: np.empty(0, np.int64) for name in ("gpu", "start_us", "end_us")})
#: Pieces of time that are worked on at once, some 200 MB.
_AT_ONCE = 1_000_000


@dataclass(frozen=True, eq=False)
class Parts:
    """What can be held: a GPU, or a part of a partitioned one. Arrays by part.

    ``gpu`` numbers GPUs; the parts of one stand side by side, and their ``ppm``, millionths of the
    GPU, add up to all of it. ``scope`` is what accounts are kept apart by, such as its rack.
    """

    gpu: Ints
    ppm: Ints
    scope: Ints

    @classmethod
    def whole(cls, scope: Ints) -> Parts:
        """Return GPUs of which none is partitioned."""
        return cls(np.arange(scope.size), np.full(scope.size, PPM), scope)


@dataclass(frozen=True, eq=False, kw_only=True)
class Gangs:
    """What gangs hold, and what is told of gangs and parts.

    ``held`` are spans of parts, each held by the gang of the same place in ``gang``. Where several
    have held the same part at the same time, the one that began last counts: the end of the one
    before it was noted late. ``spans``, ``shares`` and ``caps`` are by gang, ``part_...`` by part.
    """

    held: GpuSpans
    gang: Ints
    spans: Sequence[Whole] = ()
    shares: Sequence[Shares] = ()
    caps: Sequence[GpuSpans] = ()
    part_spans: Sequence[Whole] = ()
    part_shares: Sequence[Shares] = ()
    part_caps: Sequence[GpuSpans] = ()


@dataclass(frozen=True, eq=False)
class FleetAccount:
    """Where time went, by scope and gang (-1: none). ``us``: rows by :data:`CAUSES`, µs of GPUs.

    ``free`` are the spans in which whole GPUs were free.
    """

    scope: Ints
    gang: Ints
    us: Ints
    free: GpuSpans = field(default_factory=lambda: _NO_SPANS)


def fleet_account(
    parts: Parts,
    gangs: Gangs,
    *,
    busy: GpuSpans,
    idle: GpuSpans,
    drained: GpuSpans,
    start_us: int,
    end_us: int,
) -> FleetAccount:
    """Return what the time of all parts went to from ``start_us`` up to ``end_us``.

    All values add up to the number of GPUs times the span, exactly. ``busy`` and ``idle`` are spans
    of parts in which readings show work, or none; where neither is known, nothing was read.
    ``drained`` are those in which no gang may begin. What is told of parts in ``gangs`` has the
    readings added to it.
    """
    span = {"start_us": start_us, "end_us": end_us}
    told = [Whole(cause=Cause.IDLE, **vars(idle)), Whole(cause=Cause.BUSY, **vars(busy))]
    gangs = replace(gangs, part_spans=[*told, *gangs.part_spans])
    pieces = _holdings(parts, gangs, **span)
    nobodys = chosen(pieces.held, pieces.gang < 0)
    unheld, free = _unheld(parts, nobodys, busy, idle, drained, **span)
    is_held = pieces.gang >= 0
    held = replace(gangs, held=chosen(pieces.held, is_held), gang=pieces.gang[is_held])
    return replace(_summed(parts, [unheld, *_gang_rows(parts, held, **span)]), free=free)


def gang_accounts(parts: Parts, gangs: Gangs, *, start_us: int, end_us: int) -> FleetAccount:
    """Return what the time of parts went to while gangs held them; see :func:`fleet_account`."""
    span = {"start_us": start_us, "end_us": end_us}
    pieces = _holdings(parts, gangs, **span)
    is_held = pieces.gang >= 0
    held = replace(gangs, held=chosen(pieces.held, is_held), gang=pieces.gang[is_held])
    return _summed(parts, _gang_rows(parts, held, **span))


# --- Who holds what ------------------------------------------------------------------------------


def _holdings(parts: Parts, gangs: Gangs, *, start_us: int, end_us: int) -> Gangs:
    """Return who holds which part when, -1: nobody. Each moment of each part once."""
    every = np.arange(parts.gpu.size)
    always = GpuSpans(
        gpu=every, start_us=np.full(every.size, start_us), end_us=np.full(every.size, end_us)
    )
    axis = Axis.over([always, gangs.held], start_us, end_us)
    order = np.lexsort((gangs.gang, gangs.held.start_us))
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    who = axis.greatest([gangs.held], [rank])
    gang = np.append(gangs.gang[order], -1)[who]
    pieces = GpuSpans(gpu=axis.gpu, start_us=axis.from_us, end_us=axis.from_us + axis.length_us)
    return Gangs(held=pieces, gang=gang)


def _unheld(
    parts: Parts,
    held: GpuSpans,
    busy: GpuSpans,
    idle: GpuSpans,
    drained: GpuSpans,
    *,
    start_us: int,
    end_us: int,
) -> tuple[_Rows, GpuSpans]:
    """Return what the time that nobody held went to, by part, and when whole GPUs were free."""
    order = (Unheld.SILENT, Unheld.FREE, Unheld.DRAINED, Unheld.UNMANAGED)
    told = [held, idle, drained, busy]
    axis = Axis.over(told, start_us, end_us)
    base = axis.greatest(told, range(len(order)))
    base = np.where(axis.greatest([held], [0]) >= 0, base, -1)
    us = np.zeros((parts.gpu.size, len(CAUSES)), dtype=np.int64)
    for code, cause in enumerate(order):
        of = base == code
        np.add.at(us, (axis.gpu[of], CAUSES.index(cause)), axis.length_us[of])
    some = np.flatnonzero(us.any(axis=1))
    one = np.ones(some.size, dtype=np.int64)
    rows = _Rows(some, np.full(some.size, -1), one, us[some])
    at = np.flatnonzero(base == order.index(Unheld.FREE))
    at = at[parts.ppm[axis.gpu[at]] == PPM]
    over_us = axis.from_us[at] + axis.length_us[at]
    return rows, GpuSpans(gpu=axis.gpu[at], start_us=axis.from_us[at], end_us=over_us)


# --- What gangs did ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rows:
    """Accounts of ``part`` held by ``gang``, each of which stands for ``count`` that are alike."""

    part: Ints
    gang: Ints
    count: Ints
    us: Ints


def _gang_rows(parts: Parts, gangs: Gangs, *, start_us: int, end_us: int) -> Iterator[_Rows]:
    """Yield the accounts of what gangs held; ``gangs.held`` has each moment of a part once."""
    rows, count, of_piece = _alike(parts, gangs, start_us, end_us)
    pieces = replace(gangs.held, gpu=of_piece)
    by_gang = [*gangs.spans, *gangs.shares, *gangs.caps]
    by_part = [*gangs.part_spans, *gangs.part_shares, *gangs.part_caps]
    told = sum((_counts(each, rows.gang) for each in by_gang), np.ones(count.size, dtype=np.int64))
    told = sum((_counts(each, rows.part) for each in by_part), told)
    for first, end in _chunks(told):
        here = slice(first, end)
        of_gang, of_part = Onto(rows.gang[here]), Onto(rows.part[here])
        us = np.zeros((end - first, len(CAUSES)), dtype=np.int64)
        us[:, HELD] = accounts(
            Onto(np.arange(first, end)).put(pieces),
            [*map(of_gang.put, gangs.spans), *map(of_part.put, gangs.part_spans)],
            [*map(of_gang.put, gangs.shares), *map(of_part.put, gangs.part_shares)],
            [*map(of_gang.put, gangs.caps), *map(of_part.put, gangs.part_caps)],
            gpus=end - first,
            start_us=start_us,
            end_us=end_us,
        )
        yield _Rows(rows.part[here], rows.gang[here], count[here], us)


@dataclass(frozen=True, eq=False)
class _Pairs:
    part: Ints
    gang: Ints


def _alike(parts: Parts, gangs: Gangs, start_us: int, end_us: int) -> tuple[_Pairs, Ints, Ints]:
    """Return one part and its gang for all that are alike, how many are, and the row of each piece.

    Alike are parts of one scope that a gang held at the same times, and of which the same is told.
    Pieces of those that another one stands for have the row -1.
    """
    held = gangs.held
    both, pair_of = np.unique(np.stack([held.gpu, gangs.gang]), axis=1, return_inverse=True)
    part, gang = both
    mark = np.zeros(parts.gpu.size, dtype=np.uint64)
    told = [*gangs.part_spans, *gangs.part_shares, *gangs.part_caps]
    for kind, each in enumerate(told):
        begin, over = (np.clip(at, start_us, end_us) for at in (each.start_us, each.end_us))
        ppm = each.ppm if isinstance(each, Shares) else np.zeros_like(begin)
        some = over > begin
        np.add.at(mark, each.gpu[some], _mixed(kind, begin, over, ppm)[some])
    # What belongs to a partitioned GPU is like nothing else.
    mark += np.where(parts.ppm == PPM, 0, np.arange(1, parts.gpu.size + 1)).astype(np.uint64)
    mark = mark[part]
    np.add.at(mark, pair_of, _mixed(-1, held.start_us, held.end_us, np.zeros_like(held.gpu)))
    key = np.stack([gang.astype(np.uint64), parts.scope[part].astype(np.uint64), mark])
    _, stands, row_of, count = np.unique(
        key, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    row = np.full(part.size, -1)
    row[stands] = row_of[stands]
    return _Pairs(part[stands], gang[stands]), count.astype(np.int64), row[pair_of]


def _mixed(kind: int, *columns: Ints) -> NDArray[np.uint64]:
    """Return a number of 64 bits for each row. Two that differ have the same once in 10^19."""
    mixed = np.full(columns[0].shape, kind + 2, dtype=np.uint64)
    for each in columns:
        mixed = (mixed ^ each.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _counts(one: GpuSpans, keys: Ints) -> Ints:
    """Return how many of the spans there are of each key."""
    of = np.bincount(one.gpu, minlength=int(keys.max(initial=-1)) + 1)
    counts: Ints = of[keys]
    return counts


def _chunks(told: Ints) -> Iterator[tuple[int, int]]:
    """Yield runs of rows of which about as much is told as is worked on at once."""
    chunk = np.cumsum(told) // _AT_ONCE
    yield from pairwise([*np.flatnonzero(np.diff(chunk, prepend=-1)).tolist(), told.size])


class Onto:
    """Puts what is told of a key, such as a gang, onto each row that has it."""

    def __init__(self, keys: Ints) -> None:
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def put(self, one: S) -> S:
        """Return spans by key as spans by row."""
        first = np.searchsorted(self._keys, one.gpu, side="left")
        count = np.searchsorted(self._keys, one.gpu, side="right") - first
        which = np.repeat(np.arange(one.gpu.size), count)
        nth = np.arange(which.size) - np.repeat(np.cumsum(count) - count, count)
        return replace(chosen(one, which), gpu=self._order[first[which] + nth])


def chosen(one: S, which: NDArray[np.intp] | NDArray[np.bool_]) -> S:
    """Return those of spans that are chosen, with all that is told of each."""
    columns = {each.name: getattr(one, each.name) for each in fields(one)}
    changed = {n: value[which] for n, value in columns.items() if isinstance(value, np.ndarray)}
    return replace(one, **changed)


# --- Sums ----------------------------------------------------------------------------------------


def _summed(parts: Parts, found: Iterable[_Rows]) -> FleetAccount:
    """Return rows added up by scope and gang, those of partitioned GPUs by their share."""
    rows = list(found)
    part = np.concatenate([np.empty(0, np.int64), *(each.part for each in rows)])
    gang = np.concatenate([np.empty(0, np.int64), *(each.gang for each in rows)])
    us = np.concatenate(
        [np.empty((0, len(CAUSES)), np.int64), *(each.us * each.count[:, None] for each in rows)]
    )
    split = np.flatnonzero(parts.ppm[part] != PPM)
    split = split[np.lexsort((gang[split], part[split], parts.gpu[part[split]]))]
    us[split] = _of_shares(us[split], parts.ppm[part[split]])
    key, row = np.unique(np.stack([parts.scope[part], gang]), axis=1, return_inverse=True)
    total = np.zeros((key.shape[1], len(CAUSES)), dtype=np.int64)
    np.add.at(total, row, us)
    return FleetAccount(key[0], key[1], total)


def _of_shares(us: Ints, ppm: Ints) -> Ints:
    """Return the times of parts as times of their GPUs.

    What is rounded down of one is given to the next, so that parts that make up whole GPUs add up
    to their time exactly.
    """
    whole, rest = np.divmod(us, PPM)
    ran = np.cumsum(whole * ppm[:, None]) + np.cumsum(rest * ppm[:, None]) // PPM
    return np.diff(ran, prepend=0).reshape(us.shape)
