"""What a test forces on the example: :mod:`tests.integration.agent.forced` runs it with PyTorch.

Apart from it, since whoever only writes a plan need not import PyTorch.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

__all__ = ["Plan", "Wait"]


class Wait(msgspec.Struct, frozen=True):
    """Something that takes ``s`` of each step from the step ``first`` up to ``end``."""

    first: int
    end: int
    s: float

    def at(self, step: int) -> float:
        return self.s if self.first <= step < self.end else 0.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is forced on a run. ``compute_s``: what a step takes on a rank at full speed."""

    folder: str
    compute_s: float
    straggler: Wait
    data: Wait

    def speed(self) -> float:
        """Return the speed of the GPUs now, 0 to 1: what a cap leaves of their clock."""
        with contextlib.suppress(OSError, ValueError):
            return float((Path(self.folder) / "speed").read_text())
        return 1.0
