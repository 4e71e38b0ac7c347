"""How a model is split over GPUs: what each of them holds, what it sends, and where a split fits.

Data parallelism gives each of d groups its own part of the batch, tensor parallelism each of t GPUs
a part of every layer, pipeline parallelism each of p stages some of the layers. A model takes
``d · t · p`` GPUs. Sizes are for each GPU, and one step has m microbatches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from physics._bounds import PartShare
from physics._choice import chosen
from physics.checkpoint import Optimizer, Precision, training_state
from physics.comm import exposed_communication_s, ring_traffic_factor
from physics.law import Bound, Count, NonNegative, Positive, Share, Values, law, require

__all__ = [
    "ModelState",
    "Placement",
    "StepTraffic",
    "activation_message_bytes",
    "activation_state_bytes",
    "model_state",
    "placement",
    "step_traffic",
]

Stage: TypeAlias = Annotated[Values, Bound("0, 1, 2 or 3", low=0.0, high=3.0, whole=True)]
Recompute: TypeAlias = Literal["none", "attention", "all"]

#: Of a layer, bytes for each activation element that all t GPUs hold, that they share, and for
#: each score of attention, which they share too.
_KEPT: Mapping[str, tuple[float, float, float]] = {
    "none": (10.0, 24.0, 5.0),
    "attention": (10.0, 24.0, 0.0),
    "all": (2.0, 0.0, 0.0),
}
#: A layer adds up activations after attention and after its MLP, forward and backward.
_TENSOR_MESSAGES = 4.0
#: An activation forward, its gradient backward.
_PIPELINE_MESSAGES = 2.0


@dataclass(frozen=True)
class ModelState:
    """What one GPU holds of a model in training, without activations, B."""

    weights_bytes: Values
    gradients_bytes: Values
    optimizer_bytes: Values
    total_bytes: Values


@dataclass(frozen=True)
class StepTraffic:
    """What one GPU sends in a step for each kind of parallelism, B."""

    tensor_bytes: Values
    pipeline_bytes: Values
    data_bytes: Values


@dataclass(frozen=True)
class Placement:
    """Where a split fits: "network", "node" or "neither", and what it costs at either place."""

    where: str | NDArray[np.str_]
    #: Share of the time of a step that waits for it.
    node_wait_share: Values
    network_wait_share: Values


@law
def model_state(
    *,
    parameters: Positive,
    zero_stage: Stage = 0.0,
    data_ranks: Count = 1.0,
    tensor_ranks: Count = 1.0,
    pipeline_stages: Count = 1.0,
    optimizer: Optimizer = "adamw",
    precision: Precision = "bf16-mixed",
) -> ModelState:
    """Return weights, gradients and optimizer state of one GPU, B: ``P/(t·p) · (w + g + o)``.

    w, g and o are bytes for each parameter (:func:`~physics.checkpoint.training_state`; o has the
    master weights too). ZeRO divides o by the d data-parallel ranks from stage 1 on, g from stage 2
    on, w from stage 3 on. Shapes broadcast. Valid for layers that split evenly; embeddings on the
    first or last stage, and what stage 3 gathers for the layers that it computes, come on top.
    Source: Rajbhandari and others 2020 (ZeRO).
    """
    kept = training_state(optimizer=optimizer, precision=precision, with_gradients=True)
    own = parameters / (tensor_ranks * pipeline_stages)

    def held(bytes_per_parameter: Values, from_stage: float) -> Values:
        return own * bytes_per_parameter / np.where(zero_stage >= from_stage, data_ranks, 1.0)

    weights = held(kept.weights_bytes_per_parameter, 3.0)
    gradients = held(kept.gradients_bytes_per_parameter, 2.0)
    moments = kept.master_bytes_per_parameter + kept.moments_bytes_per_parameter
    optimizer_state = held(moments, 1.0)
    return ModelState(weights, gradients, optimizer_state, weights + gradients + optimizer_state)


@law
def activation_state_bytes(
    *,
    batch: Count,
    tokens: Count,
    width: Count,
    heads: Count,
    layers: Count,
    tensor_ranks: Count = 1.0,
    pipeline_stages: Count = 1.0,
    recompute: Recompute = "attention",
) -> Values:
    """Return the activations that a GPU of the first stage keeps, B.

    ``s·b·h · (10 + 24/t + 5·a·s/(h·t))`` for each layer of a transformer in 16 bits: b sequences of
    s tokens in a microbatch, width h, a heads. Recomputing attention (as fused kernels do) drops
    the last term, recomputing all keeps ``2·s·b·h``, the layer's input. The first of p stages has
    L/p layers and, under 1F1B, p microbatches in flight: together L layers of one microbatch,
    whatever p is. All arguments broadcast. Source: Korthikanti and others 2022, equation 2.
    """
    require(layers >= pipeline_stages, "pipeline_stages", "at most one for each layer")
    whole, shared, scores = chosen("recompute", recompute, _KEPT)
    split = (shared + scores * heads * tokens / width) / tensor_ranks
    return batch * tokens * width * layers * (whole + split)


@law
def activation_message_bytes(
    *, batch: Count, tokens: Count, width: Count, element_bytes: Positive = 2.0
) -> Values:
    """Return the activations between two layers for one microbatch, B: ``b · s · h · e``.

    What tensor parallelism adds up over its GPUs four times a layer and microbatch, and what
    pipeline parallelism passes on, and gets back as gradient, once a stage and microbatch. b
    sequences of s tokens, width h, e bytes each. All arguments broadcast. Source: Narayanan and
    others 2021.
    """
    return batch * tokens * width * element_bytes


@law
def step_traffic(
    *,
    parameters: Positive,
    message_bytes: Positive,
    layers: Count,
    microbatches: Count,
    zero_stage: Stage = 0.0,
    data_ranks: Count = 1.0,
    tensor_ranks: Count = 1.0,
    pipeline_stages: Count = 1.0,
    gradient_bytes_per_parameter: Positive = 2.0,
) -> StepTraffic:
    """Return what one GPU sends in a step for each kind of parallelism, B.

    With M the ``message_bytes`` of :func:`activation_message_bytes` and f(n) = 2 (n-1)/n of a ring:
    tensor ``4 · L/p · m · f(t) · M``, pipeline ``2 · m · M`` (0 for one stage), data
    ``f(d) · g · P/(t·p)``, half as much again with ZeRO stage 3, which gathers the weights twice.
    All arguments broadcast. Valid for GPUs in the middle of a pipeline of one chunk a stage.
    Source: Narayanan and others 2021; Rajbhandari and others 2020.
    """
    gradients = gradient_bytes_per_parameter * parameters / (tensor_ranks * pipeline_stages)
    gathered = np.where(zero_stage >= 3.0, 1.5, 1.0)
    messages = _TENSOR_MESSAGES * layers / pipeline_stages * microbatches
    passed_on = np.where(pipeline_stages > 1.0, _PIPELINE_MESSAGES, 0.0)
    return StepTraffic(
        tensor_bytes=messages * ring_traffic_factor(ranks=tensor_ranks) * message_bytes,
        pipeline_bytes=passed_on * microbatches * message_bytes,
        data_bytes=ring_traffic_factor(ranks=data_ranks) * gathered * gradients,
    )


@law
def placement(
    *,
    sent_bytes: NonNegative,
    compute_s: Positive,
    node_bytes_per_s: Positive,
    network_bytes_per_s: Positive,
    overlap: Share = 0.0,
    tolerated_wait_share: PartShare = 0.1,
) -> Placement:
    """Return where traffic may go: over the network where waiting for it costs little enough.

    ``wait = x / (T_compute + x)``, x being what of ``sent_bytes / BW`` does not hide behind
    ``compute_s`` (:func:`~physics.comm.exposed_communication_s`). "network" where the wait there is
    at most ``tolerated_wait_share``, else "node" where it is so inside a node, else "neither":
    fewer ranks, or more work between messages. ``overlap`` is the share that may run during
    computation: 0 for tensor parallelism, whose next layer waits for it, near 1 for gradients and
    for stages that have another microbatch. Bandwidths are of one GPU and direction; latency is
    left out, so messages must be large. All arguments broadcast. Source: Fleet Foundations, network
    hierarchy ratio; what is tolerated is a choice.
    """

    def wait_share(bytes_per_s: Values) -> Values:
        exposed: Values = exposed_communication_s(
            communication_s=sent_bytes / bytes_per_s, compute_s=compute_s, overlap=overlap
        )
        return exposed / (compute_s + exposed)

    node, network = wait_share(node_bytes_per_s), wait_share(network_bytes_per_s)
    fits = [np.less_equal(each, tolerated_wait_share) for each in (network, node)]
    return Placement(np.select(fits, ["network", "node"], "neither"), node, network)
