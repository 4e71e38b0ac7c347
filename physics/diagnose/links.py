"""A step that talks: does the communication hide behind the computation?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import numpy as np

from physics import comm
from physics.diagnose.answer import (
    Diagnosis,
    OneCount,
    OneNonNegative,
    OnePositive,
    Steps,
    quantity,
    question,
)
from physics.law import Array, Values

__all__ = ["communication"]


@dataclass(frozen=True)
class _Step:
    """One all-reduce per step, and what it runs over."""

    ranks: float
    ranks_per_node: float
    message_bytes: float
    node_link_bytes_per_s: float
    node_latency_s: float
    rails: float
    link_bytes_per_s: float
    latency_s: float

    def flat_s(self) -> float:
        return float(
            comm.ring_all_reduce_s(
                ranks=self.ranks,
                message_bytes=self.message_bytes,
                link_bytes_per_s=self.link_bytes_per_s,
                latency_s=self.latency_s,
            )
        )

    def hierarchical_s(self) -> float:
        return float(comm.hierarchical_all_reduce_s(**asdict(self)))

    def without_latency(self) -> _Step:
        return replace(self, latency_s=0.0, node_latency_s=0.0)


@question
def communication(
    *,
    ranks: OneCount,
    ranks_per_node: OneCount,
    message_bytes: OnePositive,
    compute_s: OnePositive,
    node_link_bytes_per_s: OnePositive,
    node_latency_s: OneNonNegative,
    rails: OneCount,
    link_bytes_per_s: OnePositive,
    latency_s: OneNonNegative,
    bus_bandwidth_bytes_per_s: OnePositive | None = None,
) -> Diagnosis:
    """Diagnose one all-reduce per step: ``rho = T_comm / T_compute`` under each model, and why.

    ``compute_s`` is the computation of one GPU in a step. The models are the flat ring, the
    hierarchical all-reduce over ``rails`` NICs a node, and a measured bus bandwidth where it is
    given; the last of them that there is decides, and a verdict that flips between them is told.
    From 1 on the communication cannot hide: the lever says how much more computation a step needs.
    See :func:`physics.comm.ratio_by_model`. Source: Fleet Foundations, equation 5 and table 11.
    """
    step = _Step(
        ranks=ranks,
        ranks_per_node=ranks_per_node,
        message_bytes=message_bytes,
        node_link_bytes_per_s=node_link_bytes_per_s,
        node_latency_s=node_latency_s,
        rails=rails,
        link_bytes_per_s=link_bytes_per_s,
        latency_s=latency_s,
    )
    found = comm.ratio_by_model(
        **asdict(step),
        compute_s=compute_s,
        bus_bandwidth_bytes_per_s=bus_bandwidth_bytes_per_s,
    )
    steps = Steps()
    _show(steps, step, found, compute_s, bus_bandwidth_bytes_per_s)
    model, rho = _deciding(found)
    bandwidth_share = _bandwidth_share(steps, step)
    constraint, lever = _judge(step, found, rho, compute_s, bandwidth_share, steps)
    figures = {
        "flat_ring_ratio": found.flat_ring_ratio,
        "hierarchical_ratio": found.hierarchical_ratio,
        "communication_ratio": rho,
        "bandwidth_share": bandwidth_share,
    }
    if found.measured_ratio is not None:
        figures["measured_ratio"] = found.measured_ratio
    verdict = _verdict(model, rho, found)
    return Diagnosis(constraint, verdict, lever, figures, tuple(steps.lines))


def _show(
    steps: Steps, step: _Step, found: comm.RatioByModel, compute_s: float, busbw: float | None
) -> None:
    n, m = quantity(step.ranks), quantity(step.message_bytes, "B")
    link, alpha = quantity(step.link_bytes_per_s, "B/s"), quantity(step.latency_s, "s")
    steps.add(
        "flat ring T_comm",
        "2 (N-1)/N · M/B + 2 (N-1) · alpha",
        f"2 · ({n} - 1) / {n} · {m} / {link} + 2 · ({n} - 1) · {alpha}",
        float(found.flat_ring_s),
        "s",
    )
    _show_ratio(steps, "flat ring", found.flat_ring_s, compute_s, found.flat_ring_ratio)
    _show_levels(steps, step, float(found.hierarchical_s))
    _show_ratio(steps, "hierarchical", found.hierarchical_s, compute_s, found.hierarchical_ratio)
    if found.measured_s is None or busbw is None:
        return
    steps.add(
        "measured T_comm",
        "2 (N-1)/N · M / busbw",
        f"2 · ({n} - 1) / {n} · {m} / {quantity(busbw, 'B/s')}",
        float(found.measured_s),
        "s",
    )
    _show_ratio(steps, "measured", found.measured_s, compute_s, found.measured_ratio)


def _show_levels(steps: Steps, step: _Step, hierarchical_s: float) -> None:
    inside = min(step.ranks, step.ranks_per_node)
    g, nodes, m = quantity(inside), step.ranks / inside, quantity(step.message_bytes, "B")
    fast, soon = quantity(step.node_link_bytes_per_s, "B/s"), quantity(step.node_latency_s, "s")
    link, alpha = quantity(step.link_bytes_per_s, "B/s"), quantity(step.latency_s, "s")
    k, n = quantity(step.rails), quantity(nodes)
    steps.add(
        "hierarchical T_comm",
        "2 ((g-1)/g · M/B_node + (g-1) · alpha_node) + 2 (n-1)/n · M/(k·B) + 2 (n-1) · alpha",
        f"2 · (({g} - 1) / {g} · {m} / {fast} + ({g} - 1) · {soon}) + "
        f"2 · ({n} - 1) / {n} · {m} / ({k} · {link}) + 2 · ({n} - 1) · {alpha}",
        hierarchical_s,
        "s",
    )


def _show_ratio(
    steps: Steps, model: str, communication_s: Values, compute_s: float, ratio: Values | None
) -> None:
    if ratio is not None:
        numbers = f"{quantity(float(communication_s), 's')} / {quantity(compute_s, 's')}"
        steps.add(f"{model} rho", "T_comm / T_compute", numbers, float(ratio))


def _deciding(found: comm.RatioByModel) -> tuple[str, float]:
    if found.measured_ratio is not None:
        return "measured", float(found.measured_ratio)
    return "hierarchical", float(found.hierarchical_ratio)


def _bandwidth_share(steps: Steps, step: _Step) -> float:
    """Return the part of the hierarchical time that bytes take; latency takes the rest."""
    whole_s = step.hierarchical_s()
    if whole_s == 0.0:
        return 0.0
    bytes_s = step.without_latency().hierarchical_s()
    numbers = f"{quantity(bytes_s, 's')} / {quantity(whole_s, 's')}"
    steps.add("bandwidth share", "T_comm without latency / T_comm", numbers, bytes_s / whole_s, "%")
    return bytes_s / whole_s


def _verdict(model: str, rho: float, found: comm.RatioByModel) -> str:
    word = "communication-bound" if rho >= 1.0 else "overlappable"
    verdict = f"{word}: rho {quantity(rho)} ({model})"
    if not found.verdict_flips:
        return f"{verdict}; every model says so"
    flat = f"flat ring {quantity(float(found.flat_ring_ratio))}"
    levels = f"hierarchical {quantity(float(found.hierarchical_ratio))}"
    return f"{verdict}; the verdict flips between models: {flat}, {levels}"


def _judge(
    step: _Step,
    found: comm.RatioByModel,
    rho: float,
    compute_s: float,
    bandwidth_share: float,
    steps: Steps,
) -> tuple[str, str]:
    """Return constraint and lever."""
    if rho < 1.0:
        return "computation", _room(step, found, rho)
    longer = math.floor(rho) + 1
    steps.add("accumulation", "floor(rho) + 1", f"floor({quantity(rho)}) + 1", float(longer))
    levers = [f"Accumulate gradients over {quantity(longer)} times the micro-batches a step."]
    if found.measured_ratio is not None and found.hierarchical_ratio < 1.0:
        expected = quantity(float(found.hierarchical_ratio))
        levers.append(f"Find out why the fabric is slow: hierarchical promises rho {expected}.")
    levers.append(_fewer(step, compute_s, rho))
    term = "bandwidth" if bandwidth_share >= 0.5 else "latency"
    levers.append(_BY_TERM[term])
    return f"communication {term}", " ".join(levers)


def _room(step: _Step, found: comm.RatioByModel, rho: float) -> str:
    """Say how much shorter steps may get, and what keeps it so."""
    if rho == 0.0:
        return "One rank has nobody to talk to: nothing to do."
    room = f"Overlap it. Steps may get {quantity(1.0 / rho)} times shorter before it shows."
    if found.flat_ring_ratio < 1.0 or found.hierarchical_ratio >= 1.0:
        return room
    return f"{room} Keep it off a flat ring: use all {quantity(step.rails)} rails of a node."


def _fewer(step: _Step, compute_s: float, rho: float) -> str:
    """Say how many GPUs would do with the same work in a step, as the deciding model scales."""
    inside = min(step.ranks, step.ranks_per_node)
    nodes: Array = np.arange(1.0, step.ranks / inside)
    if not nodes.size:
        return "Fewer GPUs change nothing: they are in one node already."
    times = asdict(replace(step, ranks=0.0)) | {"ranks": nodes * inside}
    # A measured fabric is slower than the model by one factor, whatever the number of nodes.
    slower = rho * compute_s / step.hierarchical_s()
    longer_s = compute_s * step.ranks / (nodes * inside)
    fits = slower * comm.hierarchical_all_reduce_s(**times) < longer_s
    if not fits.any():
        return "No smaller number of nodes brings rho under 1 for the same work in a step."
    most = quantity(float((nodes * inside)[fits].max()))
    return f"Or do the same step on {most} GPUs, each with more of it."


_BY_TERM = {
    "bandwidth": "Bytes take the time: fewer of them (compression, sharding) or more rails.",
    "latency": "Latency takes the time: fuse messages, or reduce by a tree across nodes.",
}
