"""How much work anybody could leave under a target: a bound by the laws of power alone.

At a moment each running job may be held at a speed that it agreed to, or stand still if it agreed
to that, for any share of the time; what rests, hosts and switches draw what they draw. The bound is
the most work of all such mixtures within the target. No delay, margin or gang counts: a policy does
less. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from physics.power import gpu_power_w

__all__ = ["Moment", "least_w", "most_work"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Speeds that a job may be held at, beside a stop.
_SPEEDS = np.linspace(0.3, 1.0, 71)
#: The price of a watt is found to one part in two to this power.
_HALVINGS = 60


@dataclass(frozen=True, eq=False, kw_only=True)
class Moment:
    """The jobs that run at a moment, and what else is drawn there, W.

    By job: its GPUs, what each of them draws at full speed, at any speed, and while it stands
    still, W, with its part of the host; how power falls with speed, by the law of
    :func:`physics.power.gpu_power_w`; how slow the job may be made, and whether it may stand still.
    """

    other_w: float
    gpus: Floats
    full_w: Floats
    static_w: Floats
    still_w: Floats
    exponent: Floats
    linear_share: Floats
    lowest_speed: Floats
    may_pause: Bools

    def at_will(self) -> Moment:
        """Return the same, if every job might be slowed and stopped at will."""
        return replace(
            self,
            lowest_speed=np.zeros(len(self.gpus)),
            may_pause=np.ones(len(self.gpus), dtype=bool),
        )


def least_w(moment: Moment) -> float:
    """Return what is drawn with all jobs as low as they agreed to, W."""
    if not len(moment.gpus):
        return moment.other_w
    return moment.other_w + float(_choices(moment)[1].min(axis=1).sum())


def most_work(moment: Moment, target_w: float) -> float:
    """Return the most work that fits under a target, in GPUs at full speed.

    Where nothing fits that jobs agreed to, it is what is left with all of them as low as they did.
    """
    work, watts = _choices(moment)
    room_w = target_w - moment.other_w

    def taken(price: float) -> tuple[float, float]:
        """Return work and power if each job does what is best at a price of a watt."""
        best = np.argmax(work - price * watts, axis=1)
        rows = np.arange(len(best))
        return float(work[rows, best].sum()), float(watts[rows, best].sum())

    if not len(work) or taken(0.0)[1] <= room_w:
        return float(moment.gpus.sum())
    low, high = 0.0, float(moment.gpus.sum())  # GPUs for a watt: nobody pays that
    least_work, least_w = taken(high)
    if least_w > room_w:
        return least_work
    for _ in range(_HALVINGS):
        price = 0.5 * (low + high)
        low, high = (price, high) if taken(price)[1] > room_w else (low, price)
    # The last that does not fit goes on for a part of the time.
    (more, more_w), (fits, fits_w) = taken(low), taken(high)
    part = (room_w - fits_w) / (more_w - fits_w) if more_w > fits_w else 0.0
    return fits + part * (more - fits)


def _choices(moment: Moment) -> tuple[Floats, Floats]:
    """Return work and power of each job for each thing that it may do; inf W where it may not."""
    power_w = gpu_power_w(
        static_w=np.minimum(moment.static_w, moment.full_w)[:, None],
        dynamic_w=np.maximum(moment.full_w - moment.static_w, 0.0)[:, None],
        relative_throughput=_SPEEDS,
        exponent=moment.exponent[:, None],
        linear_share=moment.linear_share[:, None],
    )
    # Grids of speeds are no agreement: what is a hair below is allowed.
    slow = moment.lowest_speed[:, None] > _SPEEDS + 1e-9
    power_w = np.where(slow, np.inf, power_w)
    still_w = np.where(moment.may_pause, moment.still_w, np.inf)[:, None]
    gpus = moment.gpus[:, None]
    work = gpus * np.append(_SPEEDS, 0.0)
    watts = gpus * np.concatenate([power_w, still_w], axis=1)
    return np.broadcast_to(work, watts.shape), np.where(np.isinf(watts), _NEVER_W, watts)


#: So much that nobody takes it, W: infinite times a price of nothing is no number.
_NEVER_W = 1e30
