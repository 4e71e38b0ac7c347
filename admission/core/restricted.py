"""What restrictions took of the time of GPUs: capped and drained time, by whose it is. Pure.

The account tells how long a cap held back what a gang held in a rack, and how long GPUs of a rack
were drained. Each of these is shared out by the time of GPUs under each restriction: at any moment
of a GPU the strictest counts, alone. What others asked for has its share, and is no restriction's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from admission.core.account import PPM, Axis, Cause, GpuSpans, Ints
from admission.core.energy.amounts import apportion
from admission.core.fleet_account import CAUSES, FleetAccount, Onto, Parts, Unheld, chosen

__all__ = ["Claims", "Lost", "Restricted", "lost"]

Bools = NDArray[np.bool_]

_CAPPED, _DRAINED = CAUSES.index(Cause.CAPPED), CAUSES.index(Unheld.DRAINED)


@dataclass(frozen=True, eq=False, kw_only=True)
class Claims(GpuSpans):
    """When restrictions held, by part. ``number`` says which: of several the greatest counts."""

    number: Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class Restricted:
    """The restrictions whose time the account tells of, ``ids`` by their number.

    ``beside_caps`` and ``beside_drains`` are when others asked for the same of a part.
    """

    ids: Sequence[int]
    caps: Claims
    beside_caps: GpuSpans
    drains: Claims
    beside_drains: GpuSpans


@dataclass(frozen=True, eq=False, kw_only=True)
class Lost:
    """What restrictions took, µs of GPUs, by number, scope and gang (-1: none). Arrays by row.

    ``is_shared``: others asked for the same meanwhile.
    """

    number: Ints
    scope: Ints
    gang: Ints
    us: Ints
    is_shared: Bools


def lost(
    found: FleetAccount,
    parts: Parts,
    held: GpuSpans,
    gang: Ints,
    caps_of_gangs: GpuSpans,
    restricted: Restricted,
    *,
    start_us: int,
    end_us: int,
) -> Lost:
    """Return what restrictions took of the capped and drained time in ``found``.

    ``held`` are spans of parts, each held by the gang of the same place in ``gang``. No restriction
    has more than the account tells of its scopes and gangs, nor have all of them together.
    """
    span = {"start_us": start_us, "end_us": end_us}
    # Of these gangs all that they held: what a restriction took is a share of it.
    mine = np.isin(gang, gang[np.isin(held.gpu, restricted.caps.gpu)])
    rows, gang = chosen(held, mine), gang[mine]
    onto_part, onto_gang = Onto(rows.gpu), Onto(gang)
    capped = _Under.of(
        onto_part.put(restricted.caps),
        [onto_part.put(restricted.beside_caps), onto_gang.put(caps_of_gangs)],
        replace(rows, gpu=np.arange(rows.gpu.size)),
        is_held=True,
        **span,
    )
    drained = _Under.of(restricted.drains, [restricted.beside_drains], held, is_held=False, **span)
    nobody = np.full(parts.gpu.size, -1)
    return _joined(
        _shared_out(found, _CAPPED, capped, parts.scope[rows.gpu], gang, parts.ppm[rows.gpu]),
        _shared_out(found, _DRAINED, drained, parts.scope, nobody, parts.ppm),
    )


@dataclass(frozen=True, eq=False)
class _Under:
    """Pieces of time of rows under restrictions or others. ``number`` is -1 of others alone."""

    row: Ints
    number: Ints
    is_shared: Bools
    length_us: Ints

    @classmethod
    def of(
        cls, claims: Claims, beside: Sequence[GpuSpans], held: GpuSpans, *, is_held: bool,
        start_us: int, end_us: int,
    ) -> _Under:  # fmt: skip
        """Return the time of rows within ``held``, or outside of it."""
        axis = Axis.over([held, claims, *beside], start_us, end_us)
        number = axis.greatest([claims], [claims.number])
        is_beside = axis.greatest(beside, [0] * len(beside)) >= 0
        counts = (number >= 0) | is_beside
        counts &= (axis.greatest([held], [0]) >= 0) == is_held
        return cls(
            axis.gpu[counts], number[counts], is_beside[counts] & (number[counts] >= 0),
            axis.length_us[counts],
        )  # fmt: skip


def _shared_out(
    found: FleetAccount, cause: int, under: _Under, scope: Ints, gang: Ints, ppm: Ints
) -> Lost:
    """Share out the time of a cause in each scope and gang; these and ``ppm`` are by row."""
    row = under.row
    keys, key = np.unique(
        np.stack([scope[row], gang[row], under.number, under.is_shared.astype(np.int64)]),
        axis=1, return_inverse=True,
    )  # fmt: skip
    length = np.bincount(key, under.length_us * (ppm[row] / PPM), keys.shape[1])
    pairs, group = np.unique(keys[:2], axis=1, return_inverse=True)
    told = dict(zip(zip(found.scope, found.gang, strict=True), found.us[:, cause], strict=True))
    totals = np.array([told.get(pair, 0) for pair in zip(*pairs, strict=True)], dtype=np.int64)
    us = apportion(totals, length.astype(np.float64), group)
    some = (keys[2] >= 0) & (us > 0)
    scope, gang, number, is_shared = keys[:, some]
    return Lost(
        number=number, scope=scope, gang=gang, us=us[some], is_shared=is_shared.astype(np.bool_)
    )


def _joined(*all_: Lost) -> Lost:
    return Lost(
        **{
            each.name: np.concatenate([getattr(one, each.name) for one in all_])
            for each in fields(Lost)
        }
    )
