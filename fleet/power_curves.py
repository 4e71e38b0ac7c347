"""Speed and power of GPUs under caps, by hardware model, for the whole fleet at once.

The laws are those of ``physics.power``, their figures those of the catalogue, found by the name of
the model. A model that nobody has measured under caps has the curve of those that were measured,
with a wider margin, and ``measured`` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from physics.hardware import CURRENT, PowerCurveReference
from physics.law import Values
from physics.power import gpu_power_w, throughput_under_cap

__all__ = ["UNRATED_GPU_W", "PowerCurves", "power_curves_of"]

Floats: TypeAlias = npt.NDArray[np.float64]
#: Rows of models.
Rows: TypeAlias = npt.NDArray[np.int64] | int
Bools: TypeAlias = npt.NDArray[np.bool_]

#: A GPU without a rating in the inventory is taken for this much.
UNRATED_GPU_W = 700.0


@dataclass(frozen=True, eq=False)
class PowerCurves:
    """The power curves of hardware models, with a row each.

    Methods take rows of models, and draws and caps of GPUs that go with them, W; all broadcast.
    ``static_w`` is drawn at any speed; ``lowest_w`` is the lowest cap that the curve holds for.
    """

    measured: Bools
    rated_w: Floats
    static_w: Floats
    exponent: Floats
    linear_share: Floats
    lowest_w: Floats
    references: tuple[PowerCurveReference, ...]

    def speed(self, model: Rows, cap_w: Values, peak_w: Values) -> Floats:
        """Return the speed under a cap of jobs that draw ``peak_w`` without one, 0 to 1.

        What is expected, without a margin.
        """
        standing_w = np.minimum(self.static_w[model], peak_w)
        found: Floats = throughput_under_cap(
            cap_w=cap_w,
            static_w=standing_w,
            dynamic_w=peak_w - standing_w,
            exponent=self.exponent[model],
            linear_share=self.linear_share[model],
        )
        return np.where(np.greater_equal(cap_w, peak_w), 1.0, found)

    def power_w(self, model: Rows, speed: Values, peak_w: Values) -> Floats:
        """Return the power at a speed of 0 to 1: the inverse of :meth:`speed`, W."""
        standing_w = np.minimum(self.static_w[model], peak_w)
        found: Floats = gpu_power_w(
            static_w=standing_w,
            dynamic_w=peak_w - standing_w,
            relative_throughput=speed,
            exponent=self.exponent[model],
            linear_share=self.linear_share[model],
        )
        return found

    def cap_within_w(self, model: Rows, max_slowdown: Values, peak_w: Values) -> Floats:
        """Return the lowest caps that keep 95 % of jobs within the slowdown they agree to, W.

        ``physics.power.cap_within_w`` with the margin of each model; the rating where no cap does.
        """
        rows, slowdowns, peaks_w = np.broadcast_arrays(model, max_slowdown, peak_w)
        caps_w = np.empty(rows.shape)
        for row in np.unique(rows).tolist():
            here = rows == row
            caps_w[here] = self.references[row].cap_within_w(
                max_slowdown=slowdowns[here], peak_w=peaks_w[here], rated_w=self.rated_w[row]
            )
        return caps_w


def power_curves_of(names: list[str], rated_w: Floats) -> PowerCurves:
    """Return the curves of models by their names; ``rated_w`` is NaN where it is not known."""
    references = tuple(CURRENT.power_curve(name) for name in names)
    rated_w = np.where(np.isnan(rated_w), UNRATED_GPU_W, rated_w)

    def shares(figure: str) -> Floats:
        return np.array([getattr(each, figure) for each in references], dtype=np.float64)

    return PowerCurves(
        measured=np.array([each.measured for each in references], dtype=bool),
        rated_w=rated_w,
        static_w=shares("static_share") * rated_w,
        exponent=shares("exponent"),
        linear_share=shares("linear_share"),
        lowest_w=shares("measured_from_share") * rated_w,
        references=references,
    )
