"""What is told and known of checkpoints, for tests."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.utils import timezone

from fleet.models import Site
from headroom.contracts import CheckpointReport, StoreLag, StoreState, WholeCheckpoint
from telemetry.checkpoints.models import CheckpointFact

RUN, DIGEST = "nanogpt", "ab" * 32


def make_report(
    job: str = "llama",
    node: str = "n1",
    *,
    site: str = "",
    step: int = 100,
    epoch: int = 0,
    lag: StoreLag | None = None,
    told_s_ago: float = 0.0,
    **given: Any,
) -> CheckpointReport:
    """Return a report of a checkpoint that was saved a minute ago, and verified half of that."""
    now = time.time()
    whole = WholeCheckpoint(
        epoch=epoch, step=step, saved_at=now - 60, verified_at=now - 30, bytes=10**9, digest=DIGEST
    )
    state: dict[str, Any] = {"run": RUN, "lease_epoch": epoch, "checkpoint": whole, **given}
    return CheckpointReport(
        job=job, node=node, at=now - told_s_ago, store=StoreState(site=site, lag=lag, **state)
    )


def make_fact(job: str, site: Site, *, saved_s_ago: float = 60.0, **given: Any) -> CheckpointFact:
    """Return what is known of the checkpoints of a job at a site, as told now."""
    now = timezone.now()
    saved_at = now - timedelta(seconds=saved_s_ago)
    fields: dict[str, Any] = {
        "run": RUN, "lease_epoch": 0, "epoch": 0, "step": 100, "saved_at": saved_at,
        "verified_at": saved_at, "bytes": 10**9, "digest": DIGEST, "told_at": now,
        "received_at": now,
    }  # fmt: skip
    return CheckpointFact.objects.create(job=job, site=site, **{**fields, **given})
