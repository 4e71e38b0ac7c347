"""How many jobs a cycle tries: fewer after one that ran out of time.

A cycle that is ended before it has admitted anything leaves the queue as it found it, and the next
would end over the same jobs, for good: on a machine that is busy with other things, a few thousand
that could all start are enough.
"""

from __future__ import annotations

import math
from dataclasses import replace

from admission.core.snapshot import Snapshot

__all__ = ["Reach"]

#: A cycle that took no longer than this, s, may be followed by one that tries twice as many.
_QUICK_S = 10.0
#: So many are tried always.
_LEAST = 100


class Reach:
    """The jobs that cycles of this process try at most."""

    def __init__(self) -> None:
        self._most = math.inf
        self._tried = 0

    def within(self, snapshot: Snapshot) -> Snapshot:
        """Return what a cycle is to decide on: the policy's depth, or less."""
        tuning = snapshot.tuning
        depth = int(min(tuning.depth, self._most))
        self._tried = min(depth, len(snapshot.pending))
        return (
            snapshot
            if depth == tuning.depth
            else replace(snapshot, tuning=replace(tuning, depth=depth))
        )

    def ran_out(self) -> None:
        """Have the next cycle try half as many as the one that ran out of time."""
        self._most = max(self._tried // 2, _LEAST)

    def done(self, took_s: float) -> None:
        """Take note of a cycle that came to its end."""
        if took_s <= _QUICK_S:
            self._most *= 2
