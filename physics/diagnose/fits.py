"""Which of the three ways to build large systems fits a job?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from physics import reliability
from physics.diagnose.answer import (
    Diagnosis,
    OneCount,
    OneNonNegative,
    OnePositive,
    Steps,
    quantity,
    question,
)

__all__ = ["PARADIGMS", "Paradigm", "paradigm"]


@dataclass(frozen=True)
class Paradigm:
    """A way to build large systems, by the eight dimensions in which they differ."""

    philosophy: str
    coupling: str
    state: str
    network: str
    bottleneck: str
    fault_model: str
    scheduling: str
    node_model: str


#: Source: Fleet Foundations, Table 1.
PARADIGMS: Mapping[str, Paradigm] = MappingProxyType(
    {
        "HPC": Paradigm(
            philosophy="maximize FLOP/s",
            coupling="tight (MPI)",
            state="stateful (RAM)",
            network="latency-optimized",
            bottleneck="compute throughput (FLOP/s)",
            fault_model="checkpoint/restart",
            scheduling="batch (Slurm)",
            node_model="pets (tracked)",
        ),
        "warehouse": Paradigm(
            philosophy="maximize QPS",
            coupling="loose (RPC/HTTP)",
            state="stateless (DB-backed)",
            network="bandwidth-optimized",
            bottleneck="I/O (disk/net)",
            fault_model="redundancy/replicas",
            scheduling="orchestration (K8s)",
            node_model="cattle (expendable)",
        ),
        "ML fleet": Paradigm(
            philosophy="maximize model quality per dollar/watt",
            coupling="hybrid (NCCL + RPC)",
            state="semi-stateful (checkpoints + KV cache)",
            network="bisection-bandwidth critical",
            bottleneck="memory bandwidth (HBM)",
            fault_model="elastic shrink/expand",
            scheduling="gang + preemption",
            node_model="pets during job, cattle between jobs",
        ),
    }
)
#: From so many expected failures on, a failure is the usual course of a run.
_USUAL = 1.0


@question
def paradigm(
    *,
    gpus: OneCount,
    component_mtbf_s: OnePositive,
    work_s: OnePositive,
    synchronizations_per_s: OneNonNegative,
) -> Diagnosis:
    """Answer "which paradigm fits?" for N GPUs that run for ``work_s``: of :data:`PARADIGMS`.

    Where GPUs do not wait for each other (``synchronizations_per_s`` 0) a failure costs one
    replica: "warehouse". Where they do, it stops all: with ``T · N / M_component`` under 1 most
    runs meet none, and "HPC" is enough; from 1 on failures are the usual course, and only an "ML
    fleet" gets through well. Source: Fleet Foundations, the three system paradigms; that the line
    is at one failure is a choice.
    """
    found = reliability.failure_forecast(
        window_s=work_s, component_mtbf_s=component_mtbf_s, components=gpus
    )
    steps = Steps()
    expected, probability = float(found.expected_failures), float(found.probability)
    run, mtbf = quantity(work_s, "s"), quantity(component_mtbf_s, "s")
    steps.add(
        "failures in the run", "T · N / M_component", f"{run} · {quantity(gpus)} / {mtbf}", expected
    )
    steps.add("P", "1 - exp(-failures)", f"1 - exp(-{quantity(expected)})", probability, "%")
    waits = synchronizations_per_s * work_s
    numbers = f"{quantity(synchronizations_per_s)} · {run}"
    steps.add("times that they wait for each other", "rate · T", numbers, waits)
    name = _fitting(gpus, waits, expected)
    fitting = PARADIGMS[name]
    verdict = f"{name}: {_WHY[name]}; {quantity(expected)} failures expected in {run}"
    lever = (
        f"Build for {fitting.fault_model}, schedule by {fitting.scheduling}; "
        f"network: {fitting.network}; state: {fitting.state}."
    )
    figures = {
        "expected_failures": expected,
        "failure_probability": probability,
        "synchronizations": waits,
    }
    return Diagnosis(name, verdict, lever, figures, tuple(steps.lines))


def _fitting(gpus: float, waits: float, expected_failures: float) -> str:
    if gpus == 1.0 or waits == 0.0:
        return "warehouse"
    return "HPC" if expected_failures < _USUAL else "ML fleet"


_WHY = {
    "HPC": "its GPUs wait for each other, and most runs meet no failure",
    "warehouse": "nothing waits for another GPU, so a failure costs one replica",
    "ML fleet": "its GPUs wait for each other, and failures are the usual course of a run",
}
