"""What was kept of a curtailment, by readings of the load."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_COVERAGE", "LEAST_HELD", "ROUNDING", "Kept", "kept"]

Floats = npt.NDArray[np.float64]

#: What rounding may take of a target, as a share.
ROUNDING = 1e-6
#: A curtailment is held where its target was kept for this share of its seconds …
LEAST_HELD = 0.99
#: … and it is proven where so much of its time was read.
LEAST_COVERAGE = 0.95


@dataclass(frozen=True)
class Kept:
    """The seconds of a curtailment: how many were read, and in how many the target was kept."""

    seconds: float
    read_s: float
    held_s: float
    #: from its start until the load was first within the target; None: it never was
    met_after_s: float | None
    mean_w: float | None
    #: by how much the load was above the target at most, W
    worst_over_w: float
    #: what was not drawn of the baseline in the time that was read, J; None: there is no baseline
    not_drawn_j: float | None

    @staticmethod
    def unread(seconds: float) -> Kept:
        """Return it where nothing was read."""
        return Kept(seconds, 0.0, 0.0, None, None, 0.0, None)

    @property
    def coverage(self) -> float:
        """The share of its time that was read."""
        return self.read_s / self.seconds if self.seconds else 0.0

    @property
    def held_share(self) -> float:
        """The share of the seconds read in which the target was kept."""
        return self.held_s / self.read_s if self.read_s else 0.0

    @property
    def is_in_time(self) -> bool:
        """Whether the target was met when it began."""
        return self.met_after_s == 0.0

    @property
    def verdict(self) -> str:
        """Return ``held``, ``late`` (held, but not from its start), ``missed`` or ``unproven``."""
        if self.coverage < LEAST_COVERAGE:
            return "unproven"
        if self.held_share < LEAST_HELD:
            return "missed"
        return "held" if self.is_in_time else "late"

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON keeps it."""
        return {
            **asdict(self), "coverage": self.coverage, "held_share": self.held_share,
            "verdict": self.verdict,
        }  # fmt: skip


def kept(
    times: Floats,
    watts: Floats,
    *,
    target_w: float,
    baseline_w: float | None,
    start: float,
    end: float,
    every_s: float,
) -> Kept:
    """Return what was kept of a target from ``start`` to before ``end``.

    Each sample (``times`` in s, rising; ``watts``, NaN where none was read) stands for the
    ``every_s`` seconds up to it. Seconds without a sample are not held: they are not read.
    """
    inside = (times > start) & (times <= end + 0.5 * every_s) & np.isfinite(watts)
    at, load_w = times[inside], watts[inside]
    seconds = max(end - start, 0.0)
    if not len(at) or not seconds:
        return Kept.unread(seconds)
    within = load_w <= target_w * (1.0 + ROUNDING)
    first = int(within.argmax())
    return Kept(
        seconds=seconds,
        read_s=min(len(at) * every_s, seconds),
        held_s=min(int(within.sum()) * every_s, seconds),
        met_after_s=max(float(at[first]) - every_s - start, 0.0) if within.any() else None,
        mean_w=float(load_w.mean()),
        worst_over_w=max(float(load_w.max()) - target_w, 0.0),
        not_drawn_j=None if baseline_w is None else float((baseline_w - load_w).sum()) * every_s,
    )
