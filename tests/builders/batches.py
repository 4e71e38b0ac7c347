"""Telemetry batches for tests."""

from __future__ import annotations

import itertools
import time
from typing import Any

from headroom.contracts import GpuColumns, NodeReport, TelemetryBatch


def make_gpu_columns(ts: list[float], gpus: int = 8, **columns: Any) -> GpuColumns:
    """Readings of ``gpus`` GPUs at each of ``ts``; a scalar column is repeated for every row."""
    rows = len(ts) * gpus
    given = {"power_w": 500.0, "temp_c": 55.0, "sm_mhz": 1900.0, "throttle": 0, **columns}
    return GpuColumns(
        ts=[t for t in ts for _ in range(gpus)],
        gpu=list(range(gpus)) * len(ts),
        **{
            name: value if isinstance(value, list) or value is None else [value] * rows
            for name, value in given.items()
        },
    )


def make_batch(agent: str, node: str, seq: int = 1, **given: Any) -> TelemetryBatch:
    """A batch of one node's GPUs, read now unless ``ts`` says otherwise."""
    now = time.time()
    envelope: dict[str, Any] = {
        name: given.pop(name)
        for name in ("boot_id", "oldest_seq", "sent_at", "links", "meters", "jobs", "status")
        if name in given
    }
    gpus = make_gpu_columns(given.pop("ts", [now]), given.pop("gpus", 8), **given)
    return TelemetryBatch(
        agent=agent,
        seq=seq,
        nodes=[NodeReport(node=node, gpus=gpus)],
        **{"boot_id": "boot-1", "oldest_seq": 1, "sent_at": now, **envelope},
    )


def batches(agent: str, node: str, **given: Any) -> Any:
    """Endless batches of one agent with rising seq."""
    return (make_batch(agent, node, seq, **given) for seq in itertools.count(1))
