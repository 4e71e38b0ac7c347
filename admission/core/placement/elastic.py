"""Elastic gangs: fewer GPUs, or all of them under a power cap that the request accepts.

Work is counted in GPUs at full speed. A GPU's speed under a cap is that of the power curve of its
model (``fleet.power_curves``), whose top is what the job expects to draw; the choice is the one
that does the most work per second. How low a cap may go has the margin of the curve besides: the
slowdown that a job agrees to is a promise, its expected speed is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from admission.core.placement.candidates import CandidatePool, Selection
from admission.core.request import Locality, Request
from fleet.power_curves import PowerCurves
from fleet.tables import FleetArrays
from physics.hardware.drivers import LEAST_POWER_SHARE

__all__ = ["Choice", "Draw", "draw_of", "in_steps", "lesser"]

#: Caps are set in steps, W.
CAP_STEP_W = 5.0
#: So many caps are tried, evenly between the lowest and none, where fewer GPUs would do as well.
_CAPS = 12
#: What rounding may take of a whole step.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Draw:
    """The draw of a gang on GPUs of one model, W each.

    ``peak_w`` is without a cap, ``lowest_w`` the least that it accepts and that a driver sets;
    the same where it accepts no cap.
    """

    #: place in ``topology.gpu_models``
    kind: int
    #: row of ``fleet.models``
    model: int
    peak_w: float
    lowest_w: float
    curves: PowerCurves

    @property
    def static_w(self) -> float:
        """What is drawn at any speed."""
        return min(float(self.curves.static_w[self.model]), self.peak_w)

    def speed(self, cap_w: float) -> float:
        """Return the speed under a cap as a share of that without."""
        if cap_w >= self.peak_w:
            return 1.0
        return float(self.curves.speed(self.model, cap_w, self.peak_w))


@dataclass(frozen=True)
class Choice:
    """The placement of an elastic gang, its cap (None: none), and its speed as a share."""

    pool: CandidatePool
    selection: Selection
    cap_w: float | None
    speed: float

    @property
    def work(self) -> float:
        """Its rate of work, in GPUs at full speed."""
        return self.selection.gpus * self.speed


def draw_of(fleet: FleetArrays, model: int, kind: int, request: Request) -> Draw:
    """Return the draw of ``request`` on GPUs of a hardware model, given by its row."""
    curves = fleet.models.power_curves
    rated_w, idle_w = float(curves.rated_w[model]), float(fleet.models.idle_w[model])
    peak_w = rated_w if request.gpu_peak_w is None else request.gpu_peak_w
    lowest_w = peak_w
    if request.lowest_cap_w is not None and request.max_slowdown > 0.0:
        promised_w = float(curves.cap_within_w(model, request.max_slowdown, peak_w))
        floors = (request.lowest_cap_w, promised_w, LEAST_POWER_SHARE * rated_w)
        floor_w = max(*floors, 0.0 if math.isnan(idle_w) else idle_w)
        lowest_w = min(in_steps(floor_w), peak_w)
    return Draw(kind, model, peak_w, lowest_w, curves)


def in_steps(cap_w: float) -> float:
    """Return the lowest cap of whole steps that is not below ``cap_w``, W."""
    return CAP_STEP_W * math.ceil(cap_w / CAP_STEP_W - _ROUNDING)


def lesser(
    pool_at: Callable[[float], CandidatePool],
    draw: Draw,
    request: Request,
    closest: Callable[[int], Locality],
) -> Choice | None:
    """Return the way to run with less that does the most work; None where there is none.

    ``pool_at`` gives the pool at a draw, ``closest`` the closest locality that so many GPUs can
    have. All of ``request.gpus`` without a cap are taken not to fit.
    """
    step = request.gpus_per_node or 1
    most, least = request.gpus // step * step, request.least_gpus
    best: Choice | None = None
    for cap_w in _caps(pool_at, draw, request, most, least, closest):
        pool = pool_at(cap_w)
        gpus = most if least == most else pool.most(most, request.required)
        speed = draw.speed(cap_w)
        if gpus < least or (best is not None and gpus * speed <= best.work):
            continue
        selection = pool.find(gpus, closest(gpus), request.required)
        if selection is not None:
            best = Choice(pool, selection, cap_w if cap_w < draw.peak_w else None, speed)
    return best


def _caps(
    pool_at: Callable[[float], CandidatePool],
    draw: Draw,
    request: Request,
    most: int,
    least: int,
    closest: Callable[[int], Locality],
) -> Iterator[float]:
    """Yield the caps that are worth trying, the highest first where sizes differ."""

    def fits(cap_w: float) -> bool:
        return pool_at(cap_w).find(most, closest(most), request.required) is not None

    if least < most:
        yield draw.peak_w
    if draw.lowest_w >= draw.peak_w:
        return
    if least < most and pool_at(draw.lowest_w).most(most, request.required) < least:
        return
    if fits(draw.lowest_w):
        yield _highest(fits, draw.lowest_w, draw.peak_w)
    if least < most:
        steps = (draw.peak_w - draw.lowest_w) / _CAPS
        for place in range(_CAPS - 1, -1, -1):
            yield in_steps(draw.lowest_w + place * steps)


def _highest(fits: Callable[[float], bool], low_w: float, high_w: float) -> float:
    """Return the highest cap, in whole steps above ``low_w``, that fits; ``high_w`` does not."""
    low, high = 0, math.ceil((high_w - low_w) / CAP_STEP_W)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(low_w + middle * CAP_STEP_W):
            low = middle
        else:
            high = middle
    return low_w + low * CAP_STEP_W
