"""Eight quantities of a fleet over 10,000 configurations, and the time to import the laws.

The peer is the public package mlsysim 0.3.0, the simulator of the textbook's authors: the functions
that it exports for the same quantities, called once for each configuration, with their units made
beforehand. The ceiling is the bare NumPy formula, without checks. All answers are compared.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlsysim
import numpy as np
from mlsysim import ureg
from numpy.typing import NDArray

from bench import report
from physics import checkpoint, comm, reliability, roofline, scaling

CONFIGURATIONS = 10_000
REPEATS = 51
PEER_REPEATS = 3
IMPORTS = 11
#: Largest relative difference that rounding alone explains.
TOLERANCE = 1e-12

Array = NDArray[np.float64]

_GPUS_PER_NODE = 8
_HOUR_S = 3600.0
_NOTES = {
    "speedup_vs_mlsysim": "all eight quantities, medians; bar: 10,000",
    "share_of_bare_numpy": "bare formulas over laws: the rest is checks",
    "import_physics_s": "a new interpreter, its own start included; bar: 0.15",
    "import_all_modules_s": "every module of it, which are else loaded when first used",
}


@dataclass(frozen=True)
class Quantity:
    """One quantity three times: by a law, by its bare formula, and by the peer."""

    name: str
    law: Callable[[], Array]
    bare: Callable[[], Array]
    peer: Callable[..., Any]
    #: Columns of what the peer is called with.
    peer_arguments: Sequence[Sequence[Any]]
    #: What the peer answered, in the unit of the law.
    peer_numbers: Callable[[list[Any]], Array]


def run() -> None:
    quantities = _quantities(np.random.default_rng(7))
    seconds = {each.name: _measure(each) for each in quantities}
    law_s, bare_s, peer_s = (sum(column) for column in zip(*seconds.values(), strict=True))
    figures: dict[str, Any] = {
        "configurations": CONFIGURATIONS,
        "speedup_vs_mlsysim": peer_s / law_s,
        "sweep_s": law_s,
        "mlsysim_sweep_s": peer_s,
        "share_of_bare_numpy": bare_s / law_s,
    }
    for name, (one_law_s, _, one_peer_s) in seconds.items():
        figures[f"{name}_us"] = one_law_s / CONFIGURATIONS * 1e6
        figures[f"{name}_mlsysim_us"] = one_peer_s / CONFIGURATIONS * 1e6
    figures["import_physics_s"] = _script_s("import physics")
    figures["import_all_modules_s"] = _script_s("from physics import *")
    figures["import_numpy_s"] = _script_s("import numpy")
    report.show("physics", figures, _NOTES)


def _measure(quantity: Quantity) -> tuple[float, float, float]:
    """Return the seconds of a sweep by law, bare formula and peer, once they agree."""
    calls = list(zip(*quantity.peer_arguments, strict=True))
    answers = [quantity.peer(*call) for call in calls]
    found = quantity.law()
    for other in (quantity.bare(), quantity.peer_numbers(answers)):
        np.testing.assert_allclose(found, other, rtol=TOLERANCE, err_msg=quantity.name)
    return (
        _median_s(quantity.law, REPEATS),
        _median_s(quantity.bare, REPEATS),
        _median_s(lambda: [quantity.peer(*call) for call in calls], PEER_REPEATS),
    )


def _median_s(
    sweep: Callable[[], object], repeats: int, clock: Callable[[], float] = time.process_time
) -> float:
    """Return the median of the processor's time, of which other processes take nothing away."""
    taken = []
    for _ in range(repeats):
        started = clock()
        sweep()
        taken.append(clock() - started)
    return statistics.median(taken)


def _script_s(script: str) -> float:
    """Return the seconds of a new interpreter that finds everything compiled."""
    command = [sys.executable, "-c", script]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}

    def start() -> None:
        subprocess.run(command, check=True, env=environment)

    start()
    return _median_s(start, IMPORTS, time.perf_counter)


def _quantities(draw: np.random.Generator) -> list[Quantity]:
    return [*_communication(draw), *_computation(draw), *_failures(draw)]


def _communication(draw: np.random.Generator) -> list[Quantity]:
    nodes = _whole(draw, 2, 2048)
    ranks = nodes * _GPUS_PER_NODE
    size = 10.0 ** draw.uniform(6.0, 10.5, CONFIGURATIONS)
    link = draw.choice([12.5e9, 25e9, 50e9, 100e9, 200e9], CONFIGURATIONS)
    latency = draw.choice([5e-6, 7e-6, 10e-6], CONFIGURATIONS)
    node_link = draw.choice([300e9, 450e9, 900e9], CONFIGURATIONS)
    node_latency = draw.choice([0.5e-6, 1e-6], CONFIGURATIONS)
    flat: dict[str, Any] = {
        "ranks": ranks,
        "message_bytes": size,
        "link_bytes_per_s": link,
        "latency_s": latency,
    }
    inside: dict[str, Any] = {
        "ranks_per_node": _GPUS_PER_NODE,
        "rails": _GPUS_PER_NODE,
        "node_link_bytes_per_s": node_link,
        "node_latency_s": node_latency,
    }
    return [
        Quantity(
            "ring_all_reduce",
            lambda: comm.ring_all_reduce_s(**flat),
            lambda: _ring_s(ranks, size, link, latency),
            mlsysim.calc_ring_allreduce_time,
            [
                _with_unit(size, ureg.byte),
                _ints(ranks),
                _with_unit(link, ureg.byte / ureg.second),
                _with_unit(latency, ureg.second),
            ],
            _in(ureg.second),
        ),
        Quantity(
            "hierarchical_all_reduce",
            lambda: comm.hierarchical_all_reduce_s(**flat, **inside),
            lambda: (
                _ring_s(_GPUS_PER_NODE, size, node_link, node_latency)
                + _ring_s(nodes, size / _GPUS_PER_NODE, link, latency)
            ),
            mlsysim.calc_hierarchical_allreduce_time,
            [
                _with_unit(size, ureg.byte),
                _ints(nodes),
                [_GPUS_PER_NODE] * CONFIGURATIONS,
                _with_unit(node_link, ureg.byte / ureg.second),
                _with_unit(link, ureg.byte / ureg.second),
                _with_unit(node_latency, ureg.second),
                _with_unit(latency, ureg.second),
            ],
            _in(ureg.second),
        ),
    ]


def _ring_s(ranks: Array | int, size: Array, link: Array, latency: Array) -> Array:
    return np.asarray(2 * (ranks - 1) / ranks * size / link + 2 * (ranks - 1) * latency)


def _computation(draw: np.random.Generator) -> list[Quantity]:
    gpus = _whole(draw, 8, 16_384)
    peak = draw.choice([312e12, 989.4e12, 2250e12], CONFIGURATIONS)
    memory = draw.choice([2.0e12, 3.35e12, 4.8e12, 8e12], CONFIGURATIONS)
    work = 10.0 ** draw.uniform(10.0, 14.0, CONFIGURATIONS)
    moved = 10.0 ** draw.uniform(8.0, 11.0, CONFIGURATIONS)
    mfu, efficiency, goodput = draw.uniform(0.3, 0.9, (3, CONFIGURATIONS))
    parameters = 10.0 ** draw.uniform(8.5, 12.3, CONFIGURATIONS)
    stored = draw.choice([6.0, 10.0, 14.0, 16.0], CONFIGURATIONS)
    return [
        Quantity(
            "attainable_rate",
            lambda: roofline.attainable_flops(
                peak_flops=peak, memory_bytes_per_s=memory, intensity_flop_per_byte=work / moved
            ),
            lambda: np.minimum(peak, work / moved * memory),
            mlsysim.calc_bottleneck,
            [
                _with_unit(work, ureg.flop),
                _with_unit(moved, ureg.byte),
                _with_unit(peak, ureg.flop / ureg.second),
                _with_unit(memory, ureg.byte / ureg.second),
            ],
            lambda answers: np.array(
                [
                    1e3 * done / max(answer["compute_ms"], answer["memory_ms"])
                    for done, answer in zip(work, answers, strict=True)
                ]
            ),
        ),
        Quantity(
            "effective_rate",
            lambda: scaling.effective_rate_flops(
                gpus=gpus, peak_flops=peak, mfu=mfu, efficiency=efficiency, goodput=goodput
            ),
            lambda: gpus * peak * (mfu * efficiency * goodput),
            mlsysim.calc_effective_flops,
            # It takes the peak of all GPUs together.
            [_with_unit(gpus * peak, ureg.flop / ureg.second), mfu, efficiency, goodput],
            _in(ureg.flop / ureg.second),
        ),
        Quantity(
            "checkpoint_size",
            lambda: checkpoint.size_bytes(parameters=parameters, bytes_per_parameter=stored),
            lambda: parameters * stored,
            mlsysim.calc_checkpoint_size,
            [parameters.tolist(), _with_unit(stored, ureg.byte)],
            _in(ureg.byte),
        ),
    ]


def _failures(draw: np.random.Generator) -> list[Quantity]:
    gpus = _whole(draw, 8, 16_384)
    component_h = draw.uniform(20_000.0, 100_000.0, CONFIGURATIONS)
    component_s = component_h * _HOUR_S
    system_s = component_s / gpus
    window_s = draw.uniform(1.0, 48.0, CONFIGURATIONS) * _HOUR_S
    write_s = draw.uniform(5.0, 120.0, CONFIGURATIONS)
    return [
        Quantity(
            "system_mtbf",
            lambda: reliability.system_mtbf_s(component_mtbf_s=component_s, components=gpus),
            lambda: component_s / gpus,
            mlsysim.calc_mtbf_cluster,
            [_with_unit(component_h, ureg.hour), _ints(gpus)],
            _in(ureg.second),
        ),
        Quantity(
            "failure_probability",
            lambda: reliability.failure_probability(window_s=window_s, system_mtbf_s=system_s),
            lambda: np.asarray(-np.expm1(-window_s / system_s)),
            mlsysim.calc_failure_probability,
            [_with_unit(system_s, ureg.second), _with_unit(window_s, ureg.second)],
            np.array,
        ),
        Quantity(
            "young_interval",
            lambda: reliability.young_interval_s(checkpoint_s=write_s, system_mtbf_s=system_s),
            lambda: np.sqrt(2.0 * write_s * system_s),
            mlsysim.calc_young_daly_interval,
            [_with_unit(write_s, ureg.second), _with_unit(system_s, ureg.second)],
            _in(ureg.second),
        ),
    ]


def _whole(draw: np.random.Generator, least: int, most: int) -> Array:
    return draw.integers(least, most, CONFIGURATIONS, endpoint=True).astype(np.float64)


def _ints(values: Array) -> list[int]:
    return [int(value) for value in values]


def _with_unit(values: Array, unit: Any) -> list[Any]:
    return [value * unit for value in values.tolist()]


def _in(unit: Any) -> Callable[[list[Any]], Array]:
    return lambda answers: np.array([answer.m_as(unit) for answer in answers])
