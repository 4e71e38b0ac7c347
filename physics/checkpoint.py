"""Checkpoints: state for each parameter, size, and the time to write and to move them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from physics._bounds import PositiveShare
from physics._choice import chosen
from physics.law import Count, NonNegative, Positive, Values, law

__all__ = [
    "ADAM_MIXED_BYTES_PER_PARAMETER",
    "OPTIMIZERS",
    "PRECISIONS",
    "AsyncCheckpoint",
    "OptimizerState",
    "PrecisionState",
    "ShardedWrite",
    "TrainingState",
    "WanTransfer",
    "async_checkpoint",
    "sharded_write",
    "size_bytes",
    "state_bytes_per_parameter",
    "training_state",
    "wan_transfer",
    "write_s",
]

Flags: TypeAlias = bool | NDArray[np.bool_]
Optimizer: TypeAlias = Literal[
    "adafactor", "adam", "adam-8bit", "adamw", "adamw-8bit", "lion", "sgd", "sgd-momentum"
]
Precision: TypeAlias = Literal["bf16", "bf16-mixed", "fp16-mixed", "fp32", "fp8-mixed"]

#: BF16 weights, FP32 master weights and two FP32 moments: 2 + 4 + 4 + 4.
ADAM_MIXED_BYTES_PER_PARAMETER = 14.0


@dataclasses.dataclass(frozen=True)
class PrecisionState:
    """Bytes for each parameter of what a precision stores, whatever the optimizer."""

    weights_bytes_per_parameter: float
    master_bytes_per_parameter: float
    moment_bytes_per_parameter: float
    gradients_bytes_per_parameter: float


@dataclasses.dataclass(frozen=True)
class OptimizerState:
    """How many moments an optimizer keeps for each parameter, and their size where it sets one."""

    moments: int
    moment_bytes_per_parameter: float | None = None


#: Mixed: the weights that layers compute with, and an FP32 master copy that the optimizer updates.
PRECISIONS: Mapping[str, PrecisionState] = MappingProxyType(
    {
        # Everything in BF16, also what the optimizer adds to: small updates are lost to rounding.
        "bf16": PrecisionState(2.0, 0.0, 2.0, 2.0),
        "bf16-mixed": PrecisionState(2.0, 4.0, 4.0, 2.0),
        "fp16-mixed": PrecisionState(2.0, 4.0, 4.0, 2.0),
        "fp32": PrecisionState(4.0, 0.0, 4.0, 4.0),
        # Weights held in FP8 only. Recipes that hold BF16 weights and cast are "bf16-mixed" here.
        "fp8-mixed": PrecisionState(1.0, 4.0, 4.0, 2.0),
    }
)
OPTIMIZERS: Mapping[str, OptimizerState] = MappingProxyType(
    {
        # Row and column sums stand for the second moment: 0.002 B at 4,096 x 4,096, counted as 0.
        "adafactor": OptimizerState(0),
        "adam": OptimizerState(2),
        # With a scale for each block of 256: 0.03 B more, left out.
        "adam-8bit": OptimizerState(2, moment_bytes_per_parameter=1.0),
        "adamw": OptimizerState(2),
        "adamw-8bit": OptimizerState(2, moment_bytes_per_parameter=1.0),
        "lion": OptimizerState(1),
        "sgd": OptimizerState(0),
        "sgd-momentum": OptimizerState(1),
    }
)


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """Bytes for each parameter, by what they hold. Gradients are 0 unless they were asked for."""

    weights_bytes_per_parameter: Values
    master_bytes_per_parameter: Values
    moments_bytes_per_parameter: Values
    gradients_bytes_per_parameter: Values
    total_bytes_per_parameter: Values


@law
def training_state(
    *,
    optimizer: Optimizer = "adamw",
    precision: Precision = "bf16-mixed",
    with_gradients: bool = False,
) -> TrainingState:
    """Return the state of a training run for each parameter, B: ``weights + master + moments``.

    By :data:`OPTIMIZERS` and :data:`PRECISIONS`. Adam and AdamW in mixed precision are
    ``2 + 4 + 4 + 4 = 14``. Gradients belong to the memory of a run but not to its checkpoint: the
    first step after a restart computes them anew. Frameworks add metadata, random states and the
    position in the data, which do not grow with the parameters. Source: Rajbhandari and others
    2020 (ZeRO); Shazeer and Stern 2018 (Adafactor); Dettmers and others 2022 (8 bit); Chen and
    others 2023 (Lion).
    """
    kept = chosen("optimizer", optimizer, OPTIMIZERS)
    stored = chosen("precision", precision, PRECISIONS)
    moment = kept.moment_bytes_per_parameter or stored.moment_bytes_per_parameter
    moments = kept.moments * moment
    gradients = stored.gradients_bytes_per_parameter if with_gradients else 0.0
    weights, master = stored.weights_bytes_per_parameter, stored.master_bytes_per_parameter
    return TrainingState(
        weights_bytes_per_parameter=weights,
        master_bytes_per_parameter=master,
        moments_bytes_per_parameter=moments,
        gradients_bytes_per_parameter=gradients,
        total_bytes_per_parameter=weights + master + moments + gradients,
    )


@law
def state_bytes_per_parameter(
    *,
    weights_bytes_per_parameter: Positive,
    master_bytes_per_parameter: NonNegative = 0.0,
    first_moment_bytes_per_parameter: NonNegative = 0.0,
    second_moment_bytes_per_parameter: NonNegative = 0.0,
    optimizer_bytes_per_parameter: NonNegative = 0.0,
    gradients_bytes_per_parameter: NonNegative = 0.0,
) -> Values:
    """Return the state for each parameter from its parts, B: the sum of what is given.

    For what :func:`training_state` has no entry for. ``optimizer_bytes_per_parameter`` takes in one
    figure what the parts before it do not say.
    """
    return (
        weights_bytes_per_parameter
        + master_bytes_per_parameter
        + first_moment_bytes_per_parameter
        + second_moment_bytes_per_parameter
        + optimizer_bytes_per_parameter
        + gradients_bytes_per_parameter
    )


@law
def size_bytes(
    *,
    parameters: Positive,
    bytes_per_parameter: Positive = ADAM_MIXED_BYTES_PER_PARAMETER,
    stored_share: PositiveShare = 1.0,
) -> Values:
    """Return the size of a checkpoint, B: ``P · b · stored share``.

    ``parameters`` counts all of them, also those that a mixture of experts does not use for a
    token. ``stored_share`` is what compression or writing only what changed leaves: measure it,
    floating-point state compresses badly.
    """
    return parameters * bytes_per_parameter * stored_share


@law
def write_s(*, checkpoint_bytes: NonNegative, bandwidth_bytes_per_s: Positive) -> Values:
    """Return the time to write, or to read, a checkpoint, s: ``M / BW``.

    ``bandwidth_bytes_per_s`` is what reaches storage that survives a failure, of all writers
    together, sustained over M bytes. Without opening files and metadata: add them where there are
    many small shards.
    """
    return checkpoint_bytes / bandwidth_bytes_per_s


@dataclasses.dataclass(frozen=True)
class ShardedWrite:
    """A write by many nodes at once, and whether the storage or the nodes limit it."""

    bandwidth_bytes_per_s: Values
    write_s: Values
    storage_binds: Flags


@law
def sharded_write(
    *,
    checkpoint_bytes: NonNegative,
    nodes: Count,
    node_bytes_per_s: Positive,
    storage_bytes_per_s: Positive,
) -> ShardedWrite:
    """Return a write by n nodes of equal shards, s: ``M / min(n · BW_node, BW_storage)``.

    ``node_bytes_per_s`` is what one node sends towards storage, ``storage_bytes_per_s`` what the
    storage takes from all. Where the storage binds, more nodes do not shorten the write. A read
    is the same with the bandwidths of reading and, where each of r replicas reads all, r · M.
    """
    nodes_bytes_per_s = nodes * node_bytes_per_s
    bandwidth_bytes_per_s = np.minimum(nodes_bytes_per_s, storage_bytes_per_s)
    return ShardedWrite(
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        write_s=checkpoint_bytes / bandwidth_bytes_per_s,
        storage_binds=storage_bytes_per_s < nodes_bytes_per_s,
    )


@dataclasses.dataclass(frozen=True)
class WanTransfer:
    """A transfer over a long link, at which rate, and what has to be in flight for the link."""

    transfer_s: Values
    rate_bytes_per_s: Values
    in_flight_bytes: Values
    window_binds: Flags


@law
def wan_transfer(
    *,
    checkpoint_bytes: NonNegative,
    link_bytes_per_s: Positive,
    rtt_s: NonNegative,
    link_share: PositiveShare = 1.0,
    window_bytes: Positive | None = None,
    streams: Count = 1.0,
) -> WanTransfer:
    """Return the transfer of a checkpoint to another site, s: ``RTT + M / rate``.

    ``rate = min(share · B, k · window / RTT)``: B is the link per direction, ``link_share`` what
    of it this transfer may take, and a window of unacknowledged bytes for each of k ``streams``
    passes once in a round trip. Without ``window_bytes`` it is taken as large enough.
    ``in_flight_bytes`` = share · B · RTT is how large all windows together must be. The one RTT is
    that of the request and the last acknowledgment; slow start and loss are left out.
    """
    granted = link_share * link_bytes_per_s
    in_flight_bytes = granted * rtt_s
    if window_bytes is None:
        windows_bytes = in_flight_bytes
    else:
        windows_bytes = np.minimum(streams * window_bytes, in_flight_bytes)
    # As a share of what the link would need in flight: no division by a round trip of 0.
    full = np.greater_equal(windows_bytes, in_flight_bytes)
    filled = np.where(full, 1.0, windows_bytes / np.where(full, 1.0, in_flight_bytes))
    rate_bytes_per_s = granted * filled
    return WanTransfer(
        transfer_s=rtt_s + checkpoint_bytes / rate_bytes_per_s,
        rate_bytes_per_s=rate_bytes_per_s,
        in_flight_bytes=in_flight_bytes,
        window_binds=np.logical_not(full),
    )


@dataclasses.dataclass(frozen=True)
class AsyncCheckpoint:
    """A checkpoint that training waits for only while it is copied to the memory of the hosts."""

    stall_s: Values
    write_s: Values
    shortest_interval_s: Values


@law
def async_checkpoint(
    *,
    checkpoint_bytes: NonNegative,
    gpus: Count,
    copy_bytes_per_s: Positive,
    bandwidth_bytes_per_s: Positive,
) -> AsyncCheckpoint:
    """Return the stall of an asynchronous checkpoint, s: ``M / (N · BW_copy)``.

    Each of N GPUs copies its shard to the host at ``copy_bytes_per_s`` (one direction of its PCIe
    link, as far as the hosts' memory takes it); then the hosts write with ``bandwidth_bytes_per_s``
    in all while training goes on: ``write_s = M / BW``. With one buffer in the hosts the next copy
    has to wait for the write, so that checkpoints cannot start more often than every
    ``shortest_interval_s = stall + write``. A failure loses the work since the start of the last
    copy that was fully written. For the best interval take ``stall_s`` as the cost of a checkpoint
    (:mod:`physics.reliability`), and not less than ``shortest_interval_s``.
    """
    stall_s = checkpoint_bytes / (gpus * copy_bytes_per_s)
    write_s = checkpoint_bytes / bandwidth_bytes_per_s
    return AsyncCheckpoint(stall_s=stall_s, write_s=write_s, shortest_interval_s=stall_s + write_s)
