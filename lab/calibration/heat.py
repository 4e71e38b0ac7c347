"""Temperatures under steps of load: the twin's resistances and times on recordings of single GPUs.

The twin's heat is driven by the recorded power here, so that errors are of its heat alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.calibration import needs, rig
from lab.calibration.result import Comparison, Role, by_difference
from lab.calibration.sources import H200Readings, fast_readings, h200_phases, h200_series
from lab.hardware import A100, H200, HGX_H200, GpuModel

Array = NDArray[np.float64]

NAME = "heat"
#: The constants of the H200 were fitted to what was recorded before this; the rest is held out.
FITTED_S = 330.0
#: Sensors say whole degrees, and what they read between two steps of a load depends on the instant:
#: temperatures are compared as means over this long.
MEAN_S = 1.0
#: After the begin and the end of the long load: when temperatures are compared.
AFTER_S = (1.0, 5.0, 30.0)
#: The twin moves the temperature of memory on only every few seconds.
MEMORY_FROM_S = 5.0
#: Activities of a GPU with a context open, and of one that multiplies matrices.
WAITING, PRODUCTS = 0.02, 1.84

#: °C: over a recording rms, and at one moment.
WERE = {
    "h200": 1.25,
    "h200 held out": 2.2,
    "core": 2.0,
    "memory": 3.2,
    "a100": 0.7,
    "a100 held out": 2.1,
}


def die_c(power_w: Array, t_s: Array, model: GpuModel, first_c: float) -> Array:
    """Return the temperature of a GPU that draws ``power_w``, by the twin's two resistances.

    It has settled at the first power, and shows ``first_c`` then. A power holds from the reading
    before it to its own.
    """
    fast_c_per_w = model.fast_resistance_c_per_w
    slow_c_per_w = model.resistance_c_per_w - fast_c_per_w
    found = np.full(len(t_s), first_c - power_w[0] * model.resistance_c_per_w)
    for c_per_w, time_s in (
        (fast_c_per_w, model.fast_time_s),
        (slow_c_per_w, slow_c_per_w * model.capacitance_j_per_c),
    ):
        found += _lagged(c_per_w * power_w, t_s, time_s)
    return found


def compare(data: Path) -> Iterator[Comparison]:
    yield from _compare_h200()
    yield from _compare_a100(data)


def _compare_h200() -> Iterator[Comparison]:
    series = h200_series()
    modelled_c = die_c(series.power_w, series.t_s, H200, float(series.temp_c[:20].mean()))
    for quantity, chosen, held in (
        ("H200, long load, idle and duty cycles", series.t_s < FITTED_S, False),
        ("H200, square wave, copies and training", series.t_s >= FITTED_S, True),
    ):
        off_c = _means(series.t_s[chosen], (modelled_c - series.temp_c)[chosen])
        yield _rms(quantity, off_c, WERE["h200 held out" if held else "h200"], held=held)
    yield from _compare_step()


def _compare_step() -> Iterator[Comparison]:
    """Compare the twin itself, on which a load at the power cap begins and ends."""
    series = h200_series()
    begin_s, end_s = h200_phases()["matmul"]
    server = rig.rig_of(rig.row_kind(H200, HGX_H200), 1, seed=4)
    twin = server.twin
    slot = rig.begin(twin, rig.steady_kind(WAITING), server.gpus)
    twin.advance(60.0)
    before = {"core": server.temp_c, "memory": server.temp_mem_c}
    real = {"core": series.temp_c, "memory": series.temp_mem_c}
    idle_c = {part: _near(series, each, begin_s - 5.0, 4.0) for part, each in real.items()}
    for word, moment_s, activity in (("begin", begin_s, PRODUCTS), ("end", end_s, WAITING)):
        twin.let_go(slot)
        twin.workload.end_task(slot)
        slot = rig.begin(twin, rig.steady_kind(activity), server.gpus)
        passed_s = 0.0
        for after_s in AFTER_S:
            twin.advance(after_s - passed_s)
            passed_s = after_s
            now = {"core": server.temp_c, "memory": server.temp_mem_c}
            for part, each in real.items():
                if part == "memory" and after_s < MEMORY_FROM_S:
                    continue
                near_c = _near(series, each, moment_s + after_s, MEAN_S / 2.0)
                yield by_difference(
                    NAME,
                    f"H200, {part}, over idle {after_s:g} s after the {word} of a full load",
                    "°C",
                    real=near_c - idle_c[part],
                    twin=float((now[part] - before[part]).mean()),
                    was=WERE[part],
                    bar=needs.TEMPERATURE_C,
                )
        twin.advance(90.0)


def _near(series: H200Readings, temp_c: Array, at_s: float, within_s: float) -> float:
    """Return the mean of the temperatures that were read around a moment."""
    return float(temp_c[np.abs(series.t_s - at_s) < within_s].mean())


def _compare_a100(data: Path) -> Iterator[Comparison]:
    for name, held in (("Transient_Response_A100_TR", False), ("5050_A100", True)):
        fast = fast_readings(data, name)
        modelled_c = die_c(fast.power_w, fast.t_s, A100, float(fast.temp_c[:20].mean()))
        off_c = _means(fast.t_s, modelled_c - fast.temp_c)
        yield _rms(f"A100, {name}", off_c, WERE["a100 held out" if held else "a100"], held=held)


def _rms(quantity: str, off_c: Array, was: float, *, held: bool) -> Comparison:
    return Comparison(
        calibration=NAME,
        quantity=f"{quantity}: temperature",
        unit="°C",
        error=float(np.sqrt(np.mean(off_c**2))),
        error_unit="°C rms",
        was=was,
        bar=needs.TEMPERATURE_C,
        role=Role.REPEAT if held else Role.FITTED,
    )


def _lagged(target: Array, t_s: Array, time_s: float) -> Array:
    """Return ``target`` through a first-order lag, settled at its first value."""
    keep = np.exp(-np.diff(t_s) / time_s)
    found = np.empty(len(target))
    at = found[0] = target[0]
    for i, share in enumerate(keep.tolist(), start=1):
        at = target[i] + (at - target[i]) * share
        found[i] = at
    return found


def _means(t_s: Array, values: Array) -> Array:
    span = ((t_s - t_s[0]) / MEAN_S).astype(np.intp)
    count = np.bincount(span)
    return np.asarray((np.bincount(span, values) / np.maximum(count, 1))[count > 0])
