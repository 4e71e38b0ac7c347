"""Single GPUs and a server, idle and under load; and speed and clock under a power cap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.calibration import needs, rig
from lab.calibration.result import Comparison, Role, by_difference, by_share
from lab.calibration.sources import (
    H200Readings,
    capture,
    h200_phases,
    h200_rates,
    h200_series,
    h200_step_times,
    step_times,
    wall_power,
)
from lab.fleet import GPUS_PER_NODE
from lab.hardware import H100, H200, HGX_H100, HGX_H200, GpuModel, HostModel
from lab.training import make_spec
from lab.twin.network import Network
from lab.twin.storage import Storage

Array = NDArray[np.float64]

NAME, CAPPED, STEPS = "single-gpu", "h200-at-its-cap", "step-times"
SEED = 6
#: A GPU with a context open, and nothing to do; loads of the captures, at which ours draw as much.
CONTEXT_ACTIVITY = 0.02
BURN_ACTIVITY = {"h100-80gb-hbm3": 0.897, "h200": 0.849}
#: The second query of a capture comes about so long after the load began.
LOADED_S = 20.0
#: What matrix products draw at full clock on the H200, by the energy of short bursts.
PRODUCTS_W = 1066.0
#: Steps before the average power has come to the cap, and once it is there.
_FIRST_STEPS, _SETTLED = slice(1, 4), slice(20, 160)
#: A job of the twin runs so long, is looked at so often, and its first steps are left out.
_STEPS_S, _STEP_S, _LEFT_OUT = 1800.0, 0.25, 20
#: Steps are compared with the median of so many of their neighbors.
_NEIGHBORS = 21

#: As errors are said: power in percent, speeds, clocks and steps in points, rises in °C.
WERE = {
    "idle": 1.2,
    "load": 0.6,
    "server": 0.8,
    "context": 2.6,
    "held": 1.4,
    "products": 11.0,
    "training": 1.0,
    "clock": 11.5,
}
RISES_WERE = {"h100-80gb-hbm3": 12.5, "h200": 4.9}
STEPS_WERE = {"h200": 2.4, "nanogpt": 3.7}


def compare(data: Path) -> Iterator[Comparison]:
    for name, gpu, host in (("h100-80gb-hbm3", H100, HGX_H100), ("h200", H200, HGX_H200)):
        yield from _compare_capture(data, name, gpu, host)
    idle = _server(H200, HGX_H200)
    idle_w = [float(np.quantile(watts, 0.002)) for watts in wall_power(data).values()]
    yield by_share(
        NAME,
        "idle server of 8 H200s, at the wall",
        "W",
        real=float(np.median(idle_w)),
        twin=float(idle.twin.node_w[idle.nodes].mean()),
        was=WERE["server"],
        bar=needs.NODE_POWER,
    )


def _compare_capture(data: Path, name: str, gpu: GpuModel, host: HostModel) -> Iterator[Comparison]:
    idle, load = capture(data, name, "idle"), capture(data, name, "load")
    server = _server(gpu, host)
    idle_w, idle_c = float(server.power_w.mean()), float(server.temp_c.mean())
    rig.begin(server.twin, rig.steady_kind(BURN_ACTIVITY[name]), server.gpus)
    server.twin.advance(LOADED_S)
    yield by_share(
        NAME,
        f"{gpu.name}, idle",
        "W",
        real=idle["power.draw"],
        twin=idle_w,
        was=WERE["idle"],
        bar=needs.NODE_POWER,
    )
    yield by_share(
        NAME,
        f"{gpu.name}, gpu-burn",
        "W",
        real=load["power.draw"],
        twin=float(server.power_w.mean()),
        was=WERE["load"],
        bar=needs.NODE_POWER,
    )
    yield by_difference(
        NAME,
        f"{gpu.name}, rise from idle to gpu-burn",
        "°C",
        real=load["temperature.gpu"] - idle["temperature.gpu"],
        twin=float(server.temp_c.mean()) - idle_c,
        was=RISES_WERE[name],
        bar=needs.TEMPERATURE_C,
        role=Role.REPEAT,
    )


def compare_capped(_data: Path) -> Iterator[Comparison]:
    """Compare an H200 that its power cap holds back: by matrix products, and by training."""
    series, phases, rates = h200_series(), h200_phases(), h200_rates()
    context = _server(H200, HGX_H200, activity=CONTEXT_ACTIVITY)
    yield by_share(
        CAPPED,
        "a context open, nothing to do",
        "W",
        real=_mean_w(series, phases["idle"]),
        twin=float(context.power_w.mean()),
        was=WERE["context"],
        bar=needs.NODE_POWER,
    )
    activity = (PRODUCTS_W - H200.awake_w) / H200.dynamic_w
    products = _server(H200, HGX_H200, activity=activity)
    yield by_share(
        CAPPED,
        "matrix products, power",
        "W",
        real=_mean_w(series, phases["matmul"]),
        twin=float(products.power_w.mean()),
        was=WERE["held"],
        bar=needs.NODE_POWER,
    )
    yield by_difference(
        CAPPED,
        "matrix products, speed",
        "% of full speed",
        real=100.0 * rates["matmul"] / (rates["duty-0.1"] / 0.1),
        twin=100.0 * float(products.clock.mean()),
        was=WERE["products"],
        bar=needs.SPEED,
        role=Role.REPEAT,
    )
    yield from _compare_training(series, phases["train"])


def _compare_training(series: H200Readings, span_s: tuple[float, float]) -> Iterator[Comparison]:
    """Compare training, whose uncapped GPU draw is taken from the peaks of the power."""
    taken_s = h200_step_times()
    inside = (series.t_s >= span_s[0]) & (series.t_s < span_s[1])
    working = inside & (series.power_w > 600.0)
    wanted_w = float(np.quantile(series.power_w[working], 0.99))
    activity = (wanted_w - H200.awake_w) / H200.dynamic_w
    speed = 100.0 * float(_server(H200, HGX_H200, activity=activity).clock.mean())
    yield by_difference(
        CAPPED,
        "training, speed",
        "% of full speed",
        real=100.0 * float(np.median(taken_s[_FIRST_STEPS]) / np.median(taken_s[_SETTLED])),
        twin=speed,
        was=WERE["training"],
        bar=needs.SPEED,
        role=Role.REPEAT,
    )
    yield by_difference(
        CAPPED,
        "training, clock",
        "% of the highest",
        real=100.0 * float(series.clock[working].mean()),
        twin=speed,
        was=WERE["clock"],
        role=Role.REPEAT,
    )


def compare_steps(data: Path) -> Iterator[Comparison]:
    """Compare how far single steps stray from their neighbors: above, at 95 % of them.

    The naive prediction: steps take the same time. The GPU of the runs that are published is
    another one than that of the recording, to which the twin was fitted.
    """
    ours, held = _stray(_twin_steps()), _stray(h200_step_times())
    published = [_stray(taken_s) for taken_s in step_times(data).values() if len(taken_s) > 300]
    for name, quantity, real, role in (
        ("h200", "H200 at its cap: 95 % of steps take at most over the median", held, Role.FITTED),
        (
            "nanogpt",
            "nanogpt on 8 H100s: likewise, median of the runs",
            float(np.median(published)),
            Role.UNSEEN,
        ),
    ):
        yield by_difference(
            STEPS,
            quantity,
            "% of a step",
            real=real,
            twin=ours,
            was=STEPS_WERE[name],
            bar=needs.SPEED,
            naive=0.0,
            role=role,
        )


def _twin_steps() -> Array:
    """Return the times of the steps of a job of the twin, s: each that the table makes."""
    spec = make_spec(gpus=GPUS_PER_NODE, runs_s=_STEPS_S, key="steps", seed=SEED)
    made = rig.rig_of(rig.row_kind(H100, HGX_H100), 1, seed=SEED)
    twin = made.twin
    slot = twin.workload.begin_training("steps", spec, twin.now_s, nodes=1)
    if slot is None:
        raise ValueError("the twin has no slot left for a task")
    twin.hold(made.gpus, slot)
    network, storage = Network(twin, seed=SEED), Storage(twin.fleet, twin.conditions)
    taken_s: dict[int, float] = {}
    while slot not in twin.workload.jobs.finished():
        twin.advance(_STEP_S)
        twin.workload.train(_STEP_S, twin.pace_by_slot, network=network, storage=storage)
        progress = twin.workload.jobs.progress(slot)
        taken_s[int(progress.steps)] = progress.step_s
    return np.array(list(taken_s.values())[_LEFT_OUT:-1])


def _server(gpu: GpuModel, host: HostModel, *, activity: float | None = None) -> rig.Rig:
    """Return a server that has settled, with this activity on all of its GPUs; None: idle."""
    server = rig.rig_of(rig.row_kind(gpu, host), 1, seed=SEED)
    if activity is not None:
        rig.begin(server.twin, rig.steady_kind(activity), server.gpus)
    server.twin.advance(120.0)
    return server


def _mean_w(series: H200Readings, span_s: tuple[float, float]) -> float:
    """Return the mean power in a phase, without its first and last second."""
    inside = (series.t_s > span_s[0] + 1.0) & (series.t_s < span_s[1] - 1.0)
    return float(series.power_w[inside].mean())


def _stray(taken_s: Array) -> float:
    """Return how far the slowest steps but 5 % take longer than their neighbors' median, %."""
    neighbors = np.lib.stride_tricks.sliding_window_view(taken_s, _NEIGHBORS)
    middle = taken_s[_NEIGHBORS // 2 : -(_NEIGHBORS // 2)]
    return float(100.0 * (np.quantile(middle / np.median(neighbors, axis=1), 0.95) - 1.0))
