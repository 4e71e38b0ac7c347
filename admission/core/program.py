"""Program goodput: the FLOPs that models take, beside what their GPUs can compute. Pure.

It is the model FLOP utilization (MFU) of productive time alone: what loops wait, save, repeat or
lose to throttling is told by runtime goodput already, and counts here for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from physics.diagnose.rates import BANDS, LEVERS
from physics.hardware import CURRENT, Profile
from physics.roofline import mfu_band

__all__ = ["NOTHING", "Floats", "Stated", "Work", "peak_flops"]

Floats = NDArray[np.float64]


def peak_flops(names: Iterable[str], precision: str, profile: Profile = CURRENT) -> Floats:
    """Return the peak of a GPU of each hardware model at a precision, FLOP/s; NaN: not known."""
    entries = map(profile.accelerator_like, names)
    peaks = [entry and getattr(entry, f"peak_{precision}_flops") for entry in entries]
    return np.array([np.nan if peak is None else peak for peak in peaks], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs that models took in productive steps, and that their GPUs could have computed then.

    ``stated_gpu_s`` is that productive time, GPU-seconds, of jobs of which both are known.
    """

    model_flop: float = 0.0
    peak_flop: float = 0.0
    stated_gpu_s: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.model_flop + other.model_flop,
            self.peak_flop + other.peak_flop,
            self.stated_gpu_s + other.stated_gpu_s,
        )

    @property
    def goodput(self) -> float | None:
        """The MFU of productive time; None: not known. Above 1 what was stated cannot be."""
        return self.model_flop / self.peak_flop if self.peak_flop else None

    @property
    def verdict(self) -> str:
        """What the MFU says beside that of well-optimized training, and what helps; "": nothing."""
        mfu = self.goodput
        if not mfu:
            return ""
        if mfu > 1.0:
            return (
                "more than its GPUs can compute: flops_per_step or precision is not that of its"
                " steps"
            )
        band = str(mfu_band(mfu=mfu).band)
        return f"{BANDS[band]}. {LEVERS['kernels']}" if band == "below" else BANDS[band]


NOTHING = Work()


@dataclass(frozen=True, eq=False)
class Stated:
    """FLOPs of a step, and FLOP/s of one GPU at its peak, by attempt.

    NaN where either is not known; of GPUs that differ ``peak_flops`` is the mean.
    """

    step_flop: Floats
    peak_flops: Floats

    def or_told(self, step_flop: Floats) -> Stated:
        """Return the same, with the FLOPs that loops told of attempts that state none."""
        return Stated(
            np.where(np.isnan(self.step_flop), step_flop, self.step_flop), self.peak_flops
        )

    def works(self, steps: Floats, productive_s: Floats) -> list[Work]:
        """Return the work of attempts, by the steps that moved their models on.

        ``productive_s`` is the time that these took, GPU-seconds.
        """
        flop, peak = steps * self.step_flop, productive_s * self.peak_flops
        known = ~np.isnan(flop + peak)
        columns = [np.where(known, each, 0.0).tolist() for each in (flop, peak, productive_s)]
        return [Work(*each) for each in zip(*columns, strict=True)]
