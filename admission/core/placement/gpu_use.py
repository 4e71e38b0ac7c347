"""By what GPUs are taken when a cycle begins."""

from __future__ import annotations

import enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["GpuUse", "GpuUses", "uses_of"]

#: Of each GPU a :class:`GpuUse`.
GpuUses: TypeAlias = NDArray[np.uint8]
_Bools: TypeAlias = NDArray[np.bool_]


class GpuUse(enum.IntEnum):
    """What a GPU is taken by."""

    NOTHING = 0
    #: a gang that Headroom placed
    GANG = 1
    #: it is at work, and no gang holds it
    OTHER_LOAD = 2
    #: its node runs no jobs for Headroom
    NO_RUNNER = 3


def uses_of(held: _Bools, busy: _Bools, without_runner: _Bools) -> GpuUses:
    """Return by what each GPU is taken: the first of the masks, over all GPUs, that holds."""
    uses = (GpuUse.GANG, GpuUse.OTHER_LOAD, GpuUse.NO_RUNNER)
    found = np.select((held, busy, without_runner), uses, GpuUse.NOTHING)
    return np.asarray(found, dtype=np.uint8)
