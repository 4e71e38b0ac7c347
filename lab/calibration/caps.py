"""Speed and power of training under power limits, on GPUs of two generations.

What a GPU has of its own is fitted to every other workload; a workload has of its own only what it
draws without a limit. So the speeds of the other workloads under all limits are held out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from lab.calibration import needs, rig
from lab.calibration.result import Comparison, Role
from lab.calibration.sources import CappedRuns, capped_runs
from lab.fleet import GPUS_PER_NODE, NODES_PER_RACK
from lab.hardware import HGX_H100, GpuModel
from lab.twin.state import HELD_SHARE
from physics.hardware import CURRENT
from physics.hardware.entries import UNMEASURED
from physics.power import POWER_EXPONENT

Array = NDArray[np.float64]

NAME = "power-limits"
GPUS = ("v100", "a40")
#: Limits from this share of the highest on are those that fleets are run at.
USUAL_SHARE = 0.5
#: The highest activity that the twin knows: the workload that draws most has it.
MOST_ACTIVITY = 1.2
SEED = 3
_SPEEDS = np.linspace(0.0, 1.0, 2001)

#: Errors of speeds, percentage points rms: of the twin, under the usual limits and under all; of
#: its power, percent of the highest; and of each law, under all limits.
WERE = {
    "v100": {"usual": 3.5, "all": 4.2, "power": 3.9},
    "a40": {"usual": 5.2, "all": 6.8, "power": 5.3},
}
LAWS_WERE = {
    "v100": {"cube": 5.7, "fifth power": 4.9, "two slopes": 4.4},
    "a40": {"cube": 13.0, "fifth power": 15.0, "two slopes": 5.4},
}


@dataclass(frozen=True)
class Law:
    """``P = S + (P_full - S) · (λ · r + (1 - λ) · r^n)``: λ is 0 but for the law of two slopes."""

    static_w: float
    exponent: float
    linear: float = 0.0

    def speed(self, power_w: Array, full_w: Array) -> Array:
        """Return the speed r at which a workload draws ``power_w``."""
        share = np.clip((power_w - self.static_w) / (full_w - self.static_w), 0.0, 1.0)
        rising = self.linear * _SPEEDS + (1.0 - self.linear) * _SPEEDS**self.exponent
        return np.asarray(np.interp(share, rising, _SPEEDS))


def compare(data: Path) -> Iterator[Comparison]:
    """Compare the twin, and three laws, with the workloads that were held out of the fit."""
    for gpu in GPUS:
        runs = capped_runs(data, gpu)
        fitted, held = _taken(runs, slice(0, None, 2)), _taken(runs, slice(1, None, 2))
        laws = fit_laws(fitted)
        yield from compare_twin(gpu, held, laws["two slopes"], were=WERE[gpu])
        for name, law in laws.items():
            off = law.speed(held.power_w, held.power_w[:, -1:]) - held.speed
            yield Comparison(
                calibration=f"{NAME}/{gpu}",
                quantity=f"speed at a power, by the law: {name}",
                unit="% of full speed",
                error=100.0 * _rms(off),
                error_unit="points rms",
                was=LAWS_WERE[gpu][name],
                role=Role.REPEAT,
            )


def fit_laws(runs: CappedRuns) -> dict[str, Law]:
    """Fit the laws by least squares of the speeds at the measured powers."""
    full_w = runs.power_w[:, -1:]
    highest = float(full_w.min()) - 5.0

    def off(law: Law) -> Array:
        return np.asarray((law.speed(runs.power_w, full_w) - runs.speed).ravel())

    def fit(first: list[float], least: list[float], most: list[float]) -> Array:
        found = least_squares(
            lambda x: off(_law(x)), first, bounds=(least, most), diff_step=1e-3, x_scale=most
        )
        return np.asarray(found.x)

    def _law(values: Array) -> Law:
        return Law(*(float(value) for value in values))

    narrow = 1e-6
    cube = fit([60.0, 3.0], [0.0, 3.0 - narrow], [highest, 3.0 + narrow])
    fifth = fit(
        [80.0, POWER_EXPONENT], [0.0, POWER_EXPONENT - narrow], [highest, POWER_EXPONENT + narrow]
    )
    two = fit([60.0, 10.0, 0.5], [0.0, 1.0, 0.0], [highest, 20.0, 1.0])
    return {"cube": _law(cube), "fifth power": _law(fifth), "two slopes": _law(two)}


def compare_twin(
    gpu: str,
    runs: CappedRuns,
    law: Law,
    *,
    were: Mapping[str, float],
    name: str = "",
    role: Role = Role.REPEAT,
) -> Iterator[Comparison]:
    """Compare the twin of a GPU by a law. ``were``: the errors that were, or none."""
    name = name or f"{NAME}/{gpu}"
    speed, power_w = twin_runs(gpu, runs, law)
    usual = runs.limits_w >= USUAL_SHARE * runs.limits_w[-1]
    naive = np.minimum(runs.limits_w / runs.power_w[:, -1:], 1.0) - runs.speed
    for quantity, chosen, was in (
        ("speed under limits of half of the highest and more", usual, "usual"),
        ("speed under all limits", np.ones_like(usual), "all"),
    ):
        yield Comparison(
            calibration=name,
            quantity=quantity,
            unit="% of full speed",
            real=100.0 * float(runs.speed[:, chosen].mean()),
            twin=100.0 * float(speed[:, chosen].mean()),
            error=100.0 * _rms((speed - runs.speed)[:, chosen]),
            error_unit="points rms",
            was=were.get(was),
            bar=needs.SPEED,
            naive=100.0 * _rms(naive[:, chosen]),
            role=role,
        )
    yield Comparison(
        calibration=name,
        quantity="power under limits of half of the highest and more",
        unit="W",
        real=float(runs.power_w[:, usual].mean()),
        twin=float(power_w[:, usual].mean()),
        error=100.0 * _rms((power_w - runs.power_w)[:, usual]) / float(runs.power_w.max()),
        error_unit="% of the highest, rms",
        was=were.get("power"),
        bar=needs.NODE_POWER,
        naive=100.0 * _rms((_held(runs) - runs.power_w)[:, usual]) / float(runs.power_w.max()),
        role=role,
    )


def _held(runs: CappedRuns) -> Array:
    """Return the power that comes of the limits alone: each holds to just under it."""
    return np.asarray(np.minimum(HELD_SHARE * runs.limits_w, runs.power_w[:, -1:]))


def twin_runs(gpu: str, runs: CappedRuns, law: Law) -> tuple[Array, Array]:
    """Return speed and power of each workload under each limit in the twin.

    A rack for each limit; a workload has two GPUs in each, of which the mean counts.
    """
    full_w = runs.power_w[:, -1]
    dynamic_w = (float(full_w.max()) - law.static_w) / MOST_ACTIVITY
    model = _model(gpu, law, dynamic_w, float(runs.limits_w[-1]))
    limits = len(runs.limits_w)
    kind = rig.row_kind(model, HGX_H100, power_limits_w=tuple(runs.limits_w))
    fleet = rig.fleet_of(kind, limits * NODES_PER_RACK, racks_per_row=limits)
    twin = rig.idle_twin(fleet, seed=SEED)
    in_rack = NODES_PER_RACK * GPUS_PER_NODE
    for workload, workload_w in enumerate(full_w):
        steady = rig.steady_kind((float(workload_w) - law.static_w) / dynamic_w)
        for limit in range(limits):
            rig.begin(twin, steady, limit * in_rack + 2 * workload + np.arange(2))
    speeds, powers = [], []
    for _ in range(20):
        twin.advance(1.0)
        speeds.append(twin.clock.copy())
        powers.append(twin.power_w.copy())

    def by_workload(values: list[Array]) -> Array:
        settled = np.mean(values[5:], axis=0).reshape(limits, in_rack)[:, : 2 * len(full_w)]
        return np.asarray(settled.reshape(limits, -1, 2).mean(axis=2).T)

    return by_workload(speeds), by_workload(powers)


def _model(gpu: str, law: Law, dynamic_w: float, rated_w: float) -> GpuModel:
    return GpuModel(
        name=gpu,
        rated_w=rated_w,
        idle_w=30.0,
        awake_w=law.static_w,
        dynamic_w=dynamic_w,
        slowdown_c=90.0,
        slowdown_mem_c=None,
        shutdown_c=95.0,
        sm_max_mhz=1530.0,
        sm_idle_mhz=135.0,
        mem_mhz=877.0,
        mem_bytes=1 << 35,
        resistance_c_per_w=0.1,
        capacitance_j_per_c=200.0,
        nvlink_bytes_per_s=None,
        pcie_bytes_per_s=16e9,
        nic_bytes_per_s=12.5e9,
        own_curve=replace(
            CURRENT.power_curves[UNMEASURED],
            name=gpu,
            static_share=law.static_w / rated_w,
            linear_share=law.linear,
            exponent=law.exponent,
        ),
    )


def _taken(runs: CappedRuns, which: slice) -> CappedRuns:
    return CappedRuns(runs.limits_w, runs.speed[which], runs.power_w[which])


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
