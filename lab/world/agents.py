"""The agents of a world's nodes: what they hear of limits, what they set, and when they let go.

As real ones do, they set the lowest of what restrictions and the controller say. One that hears
nothing of the server lets go when its last answer is too old; one that is dead leaves what it set.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lab.fleet import GPUS_PER_NODE
from lab.twin import Twin

__all__ = ["LIMITS_VALID_FOR_S", "Agents"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: An answer of the server counts for so long, s: the setting of the same name.
LIMITS_VALID_FOR_S = 120.0


class Agents:
    """The agents of all nodes. Rows are those of the twin."""

    def __init__(self, twin: Twin, site_of_node: Ints, acts: Bools) -> None:
        """``acts`` says of each node whether its agent sets limits: others only read."""
        self._twin, self._site_of_node, self.acts = twin, site_of_node, acts
        gpus = len(acts) * GPUS_PER_NODE
        #: what restrictions say, and the controller
        self.restricted_w: Array = np.full(gpus, np.inf)
        self._restricted_mhz: Array = np.full(gpus, np.inf)
        self._held_w: Array = np.full(gpus, np.inf)
        #: since when each node is cut off, s of the twin; inf: it is not
        self._cut_off_since_s: Array = np.full(len(acts), np.inf)
        self._has_let_go: Bools = np.zeros(len(acts), dtype=np.bool_)

    @property
    def deaf(self) -> Bools:
        """Say of each node whether nothing reaches it now."""
        return np.asarray(self._twin.silent | self._twin.down | self._cut_off)

    @property
    def _cut_off(self) -> Bools:
        return np.asarray(self._twin.conditions.site_isolated[self._site_of_node])

    def step(self) -> bool:
        """Have those let go whose last answer is too old; say whether any has."""
        cut_off, now_s = self._cut_off, self._twin.now_s
        since_s = np.where(cut_off, np.fmin(self._cut_off_since_s, now_s), np.inf)
        self._cut_off_since_s = since_s
        lets_go = now_s - since_s >= LIMITS_VALID_FOR_S
        new = _gpus_of(lets_go & ~self._has_let_go)
        self._has_let_go = lets_go
        if new.any():
            for limits in (self.restricted_w, self._restricted_mhz, self._held_w):
                limits[new] = np.inf
            self._set()
        return bool(new.any())

    def hear_of_restrictions(self, cap_w: Array, cap_mhz: Array) -> None:
        """Take the caps of restrictions in force, on each GPU; inf: none."""
        # One that hears nothing lets go when a lease has ended, and takes nothing new.
        deaf, acts = _gpus_of(self.deaf), _gpus_of(self.acts)
        cap_w = np.where(deaf, np.maximum(cap_w, self.restricted_w), cap_w)
        cap_mhz = np.where(deaf, np.maximum(cap_mhz, self._restricted_mhz), cap_mhz)
        self.restricted_w = np.where(acts, cap_w, np.inf)
        self._restricted_mhz = np.where(acts, cap_mhz, np.inf)
        self._set()

    def hear_of_orders(self, gpus: Ints, cap_w: Array) -> None:
        """Take the caps of the controller on some GPUs; inf: none."""
        hears = ~self.deaf[gpus // GPUS_PER_NODE]
        self._held_w[gpus[hears]] = cap_w[hears]
        self._set()

    def _set(self) -> None:
        """Have drivers set the lower of what restrictions say and what the controller says."""
        cap_w = np.minimum(self.restricted_w, self._held_w)
        self._twin.set_caps(np.arange(len(cap_w)), cap_w=cap_w, cap_mhz=self._restricted_mhz)


def _gpus_of(nodes: Bools) -> Bools:
    """Return for each GPU what holds of its node."""
    return np.repeat(nodes, GPUS_PER_NODE)
