"""What communication costs a step that also computes: always with the model that it assumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from physics._choice import chosen
from physics.comm.collectives import (
    hierarchical_all_reduce_s,
    ring_all_reduce_s,
    time_at_bus_bandwidth_s,
)
from physics.law import Count, NonNegative, Positive, Share, Values, law

Model: TypeAlias = Literal[
    "point-to-point",
    "ring",
    "tree",
    "double-tree",
    "halving-doubling",
    "hierarchical",
    "measured",
]
Words: TypeAlias = str | NDArray[np.str_]
Flags: TypeAlias = bool | np.bool | NDArray[np.bool]

_MODELS = dict.fromkeys(get_args(Model))


@dataclass(frozen=True)
class CommunicationRatio:
    """The ratio rho, the model behind its communication time, and what it says."""

    model: str
    ratio: Values
    verdict: Words


@dataclass(frozen=True)
class RatioByModel:
    """One configuration under each model; ``measured_*`` is None without a measurement."""

    flat_ring_s: Values
    flat_ring_ratio: Values
    flat_ring_verdict: Words
    hierarchical_s: Values
    hierarchical_ratio: Values
    hierarchical_verdict: Words
    measured_s: Values | None
    measured_ratio: Values | None
    measured_verdict: Words | None
    verdict_flips: Flags


@law
def communication_ratio(
    *, communication_s: NonNegative, compute_s: Positive, model: Model
) -> CommunicationRatio:
    """Return rho with the model behind it: ``rho = T_comm / T_compute``, both per step and GPU.

    ``model`` says where ``communication_s`` comes from; it does not change the number, but the
    number is worth nothing without it: see :func:`ratio_by_model`. Under 1 the communication can
    hide behind the computation ("overlappable"); from 1 on it cannot ("communication-bound"). Both
    times broadcast. Source: Fleet Foundations, equation 5.
    """
    chosen("model", model, _MODELS)
    ratio = np.divide(communication_s, compute_s)
    return CommunicationRatio(model, ratio, _verdict(ratio))


@law
def ratio_by_model(
    *,
    ranks: Count,
    ranks_per_node: Count,
    message_bytes: NonNegative,
    compute_s: Positive,
    node_link_bytes_per_s: Positive,
    node_latency_s: NonNegative,
    rails: Count,
    link_bytes_per_s: Positive,
    latency_s: NonNegative,
    bus_bandwidth_bytes_per_s: Positive | None = None,
) -> RatioByModel:
    """Return time, s, rho and verdict of one all-reduce per step under each model, side by side.

    The flat ring has one port of ``link_bytes_per_s`` per rank; the hierarchical model has
    ``rails`` such ports per node and a ring across nodes; the measured one takes its time from a
    bus bandwidth: :func:`ring_all_reduce_s`, :func:`hierarchical_all_reduce_s`,
    :func:`time_at_bus_bandwidth_s`. ``rho = T_comm / T_compute``. ``verdict_flips`` is true where
    they do not all agree: there, measure before you buy. All arguments broadcast.
    """
    flat_s = ring_all_reduce_s(
        ranks=ranks,
        message_bytes=message_bytes,
        link_bytes_per_s=link_bytes_per_s,
        latency_s=latency_s,
    )
    levels_s = hierarchical_all_reduce_s(
        ranks=ranks,
        ranks_per_node=ranks_per_node,
        message_bytes=message_bytes,
        node_link_bytes_per_s=node_link_bytes_per_s,
        node_latency_s=node_latency_s,
        rails=rails,
        link_bytes_per_s=link_bytes_per_s,
        latency_s=latency_s,
    )
    measured_s = None
    if bus_bandwidth_bytes_per_s is not None:
        measured_s = time_at_bus_bandwidth_s(
            ranks=ranks,
            message_bytes=message_bytes,
            bus_bandwidth_bytes_per_s=bus_bandwidth_bytes_per_s,
        )
    return _side_by_side(flat_s, levels_s, measured_s, compute_s)


@law
def exposed_communication_s(
    *, communication_s: NonNegative, compute_s: NonNegative, overlap: Share
) -> Values:
    """Return the communication that a step waits for, s: ``T_comm - min(o · T_comm, T_compute)``.

    ``overlap`` is o, the share of the communication that may run during computation: the gradients
    of the last layers can, those of the first cannot. What may overlap still hides only behind
    computation that is there. The step takes ``compute_s`` and this. All arguments broadcast.
    """
    return communication_s - np.minimum(np.multiply(overlap, communication_s), compute_s)


def _verdict(ratio: Values) -> NDArray[np.str_]:
    return np.where(np.less(ratio, 1.0), "overlappable", "communication-bound")


def _side_by_side(
    flat_s: Values, levels_s: Values, measured_s: Values | None, compute_s: Values
) -> RatioByModel:
    given = [each for each in (flat_s, levels_s, measured_s) if each is not None]
    *times, compute = np.stack(np.broadcast_arrays(*given, compute_s))
    ratios = [each / compute for each in times]
    words = [_verdict(each) for each in ratios]
    bound = np.stack(ratios) >= 1.0
    return RatioByModel(
        flat_ring_s=times[0],
        flat_ring_ratio=ratios[0],
        flat_ring_verdict=words[0],
        hierarchical_s=times[1],
        hierarchical_ratio=ratios[1],
        hierarchical_verdict=words[1],
        measured_s=times[2] if len(times) == 3 else None,
        measured_ratio=ratios[2] if len(times) == 3 else None,
        measured_verdict=words[2] if len(times) == 3 else None,
        verdict_flips=np.not_equal(bound.any(axis=0), bound.all(axis=0)),
    )
