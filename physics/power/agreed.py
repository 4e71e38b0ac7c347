"""The cap that keeps nearly every job within the slowdown that it has agreed to."""

from __future__ import annotations

import numpy as np

from physics.law import NonNegative, Positive, Share, Values, law
from physics.power.gpu import POWER_EXPONENT, gpu_power_w

#: A job is taken to draw more at times than it says: this share of the way up to the rating.
UNTOLD_SHARE = 0.75


@law
def cap_within_w(
    *,
    max_slowdown: Share,
    peak_w: NonNegative,
    rated_w: Positive,
    static_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
    linear_share: Share = 0.0,
    cap_factor: Positive = 1.0,
    lowest_w: NonNegative = 0.0,
) -> Values:
    """Return the lowest cap that leaves a job at least ``1 - max_slowdown`` of its speed, W.

    ``cap_factor · P(1 - max_slowdown)``, P being gpu_power_w of a job that draws three quarters of
    the way from ``peak_w``, what it says that it draws, to ``rated_w``: a job feels a cap above its
    mean draw, too, when its draw swings. ``cap_factor`` is the margin of the curve: so many times
    the cap keeps nearly all jobs that were measured within it. Never under ``lowest_w``, the lowest
    cap that the curve holds for. ``rated_w``, which is no cap, where that is ``peak_w`` or more.
    All broadcast.
    """
    own_w = np.minimum(peak_w, rated_w)
    full_w = own_w + UNTOLD_SHARE * (rated_w - own_w)
    standing_w = np.minimum(static_w, full_w)
    drawn_w = gpu_power_w(
        static_w=standing_w,
        dynamic_w=full_w - standing_w,
        relative_throughput=np.subtract(1.0, max_slowdown),
        exponent=exponent,
        linear_share=linear_share,
    )
    cap_w = np.maximum(cap_factor * drawn_w, lowest_w)
    none = np.equal(max_slowdown, 0.0) | (cap_w >= own_w)
    return np.where(none, rated_w, cap_w)
