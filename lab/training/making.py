"""Training jobs made up from a trace's facts about a job: its GPUs and how long it ran."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lab.fleet import GPUS_PER_NODE
from lab.hardware import H100, GpuModel
from lab.training.kinds import JOB_KINDS, NEVER_S
from lab.training.noise import seed_of
from lab.training.paths import HEALTHY_RAIL_LATENCY_S, NIC_SHARE, Paths, Speeds, all_reduce_s
from lab.training.spec import SpecError, TrainingSpec

Array = NDArray[np.float64]

#: How far single steps stray: 95 % of an H200's steps took at most 2.2 % over their neighbors.
STEP_STRAY = 0.022 / 1.645
#: What a node writes to storage at most.
NODE_WRITE_BYTES_PER_S = 4e9
#: Steps take so long, by the logarithm evenly; but a job has so many of them at least.
_STEP_S = (0.5, 8.0)
_LEAST_STEPS = 20
#: A job starts up for as long as its kind does, but not for more of its time.
_MOST_WARMUP_SHARE = 0.05
_ANY_BYTES = 1e9
#: Of what its limit leaves a GPU, so that it is not held there: GPUs differ by 2 % in what they
#: draw at rest and at work, and stray by 1.6 %; this is three standard deviations below.
_OF_LIMIT = 0.9


def make_spec(
    kind: str = "train",
    *,
    gpus: int,
    runs_s: float,
    key: str,
    seed: int = 0,
    gpu: GpuModel = H100,
    checkpoints: bool = True,
) -> TrainingSpec:
    """Return a job of ``kind`` that takes ``runs_s`` on ``gpus`` GPUs of one rack if all is well.

    That is with full clocks, alone on a healthy network, and without the time in which it stands
    still to write checkpoints. What the kind leaves open is drawn: the same ``seed`` and ``key``
    give the same job.
    """
    if gpus < 1:
        raise SpecError(f"gpus: must be at least 1, not {gpus}")
    if not 0.0 < runs_s < np.inf:
        raise SpecError(f"runs_s: must be a number above 0, not {runs_s}")
    if kind not in JOB_KINDS:
        raise SpecError(f"kind: {kind!r} is none of {', '.join(JOB_KINDS)}")
    drawn, rng = JOB_KINDS[kind], np.random.default_rng(seed_of(seed, key))
    step_s = float(np.exp(rng.uniform(*np.log(_STEP_S))))
    warmup_s = min(rng.uniform(*drawn.warmup_s), _MOST_WARMUP_SHARE * runs_s)
    total_steps = max(round((runs_s - warmup_s) / step_s), _LEAST_STEPS)
    step_s = (runs_s - warmup_s) / total_steps
    exchange_s = rng.uniform(*drawn.comm_share) * step_s
    message_bytes = _bytes_in(exchange_s, gpus, gpu)
    every_s = rng.uniform(*drawn.checkpoint_every_s)
    saves = checkpoints and every_s < NEVER_S
    node_share = gpus / GPUS_PER_NODE
    return TrainingSpec(
        kind=kind,
        base_step_s=step_s - (exchange_s if message_bytes > 0.0 else 0.0),
        total_steps=total_steps,
        collective_bytes=message_bytes,
        activity=min(rng.uniform(*drawn.activity), _activity_at_full_clock(gpu)),
        step_stray=STEP_STRAY,
        warmup_s=warmup_s,
        warmup_activity=drawn.warmup_activity,
        checkpoint_bytes=rng.uniform(*drawn.checkpoint_s) * node_share * NODE_WRITE_BYTES_PER_S
        if saves
        else 0.0,
        checkpoint_interval_s=every_s if saves else NEVER_S,
    )


def _activity_at_full_clock(gpu: GpuModel) -> float:
    """Return what a GPU can do without being held at its own limit, though it strays."""
    return _OF_LIMIT * (gpu.rated_w - gpu.awake_w) / gpu.dynamic_w


def _bytes_in(exchange_s: float, gpus: int, gpu: GpuModel) -> float:
    """Return the message that such a gang all-reduces in so long, alone in one rack; 0: none."""
    if gpus == 1:
        return 0.0
    paths = _one_rack(gpus, gpu)
    empty_s, some_s = (
        float(all_reduce_s(paths, paths.alone, np.array([size]))[0]) for size in (0.0, _ANY_BYTES)
    )
    return max(exchange_s - empty_s, 0.0) * _ANY_BYTES / (some_s - empty_s)


def _one_rack(gpus: int, gpu: GpuModel) -> Paths:
    one, nothing = np.ones(1), np.zeros(1)
    alone = Speeds(
        rail_bytes_per_s=np.array([NIC_SHARE * gpu.nic_bytes_per_s]),
        rail_latency_s=np.array([HEALTHY_RAIL_LATENCY_S]),
        wan_bytes_per_s=np.array([np.inf]),
        wan_latency_s=nothing,
        wait_s=nothing,
    )
    return Paths(
        gpus=np.array([float(gpus)]),
        nodes=np.array([float(-(-gpus // GPUS_PER_NODE))]),
        racks=one,
        sites=one,
        site=np.zeros(1, dtype=np.intp),
        node_bytes_per_s=np.array([gpu.nvlink_bytes_per_s or gpu.pcie_bytes_per_s]),
        now=alone,
        alone=alone,
        fabric_loss=nothing,
        wan_loss=nothing,
        storage_bytes_per_s=nothing,
    )
