"""Projects, jobs, phases and attempts, and what a cycle said of them, as pages are to see them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from admission.core.cycle.change import Change, Counterfactual, Price
from admission.core.cycle.whatif import Explanation
from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Locality, Placement, Request
from admission.directives.models import Directive, DirectiveEvent
from admission.jobs import resolution
from admission.jobs.models import Attempt, Job, JobEvent, Phase, Project
from admission.queue import queue_status
from admission.queue.queue_status import Count, PendingStatus, QueueStatus, TraceLine
from policies.scopes import Scope, ScopeKind

ARTIFACTS = {
    "image": "registry.example/llm@sha256:" + "ab" * 32,
    "code_revision": "cd" * 20,
    "data": {"corpus": "sha256:" + "ef" * 32},
}


def make_project(name: str = "vision", **given: Any) -> Project:
    project, _ = Project.objects.get_or_create(name=name, defaults=given)
    return project


def make_request(job: str = "llama-ft-12", phase: str = "train", **given: Any) -> Request:
    fields: dict[str, Any] = {
        "key": f"{job}/{phase}", "job": job, "phase": phase, "project": "vision",
        "job_class": "high-density-training", "priority": 100,
        "submitted_at": timezone.now().timestamp(), "gpus": 8, "min_gpus": 8,
        "models": ("H100",), "gpu_peak_w": 650.0, "walltime_s": 7200.0,
    }  # fmt: skip
    return Request(**{**fields, **given})


def make_job(
    name: str = "llama-ft-12",
    *,
    project: str = "vision",
    job_class: str = "high-density-training",
    phases: Mapping[str, Sequence[str]] | None = None,
    gpus: int = 8,
    waited: timedelta = timedelta(minutes=38),
    state: str = "queued",
    reason: str = "FeedPowerHeadroom",
    asks: Mapping[str, Any] | None = None,
    **given: Any,
) -> Job:
    """Make a job whose ``phases`` need each other. The first without needs are in ``state``."""
    at = timezone.now() - waited
    graph = phases or {"train": ()}
    job = Job.objects.create(
        name=name, project=make_project(project), job_class=job_class, submitted_at=at,
        state=Job.State.RUNNING if state in Phase.ACTIVE else Job.State.QUEUED,
        **{"priority": 0, "spec": make_spec(name, graph, gpus), "spec_version": 1,
           "submitted_by": "ada", **given},
    )  # fmt: skip
    for index, (phase, needs) in enumerate(graph.items()):
        fields = {"gpus": gpus, "min_gpus": gpus, "submitted_at": at.timestamp()}
        request = make_request(
            name, phase, project=project, job_class=job_class, **{**fields, **(asks or {})}
        )
        is_first = not needs
        Phase.objects.create(
            job=job, name=phase, index=index, needs=list(needs), gpus=gpus,
            request=resolution.stored(request), state=state if is_first else Phase.State.WAITING,
            queued_at=at if is_first else None, started_at=at if state in Phase.ACTIVE else None,
            reason=reason if is_first and state == "queued" else "",
            reason_since=at if is_first and state == "queued" else None,
        )  # fmt: skip
    note(job, "submitted", "Submitted by ada", at=at)
    return job


def make_spec(name: str, graph: Mapping[str, Sequence[str]], gpus: int) -> dict[str, Any]:
    phases = [
        {
            "name": phase, "needs": list(needs), "gang": {"gpus": gpus}, "walltime_s": 7200,
            "command": ["python", "train.py"], "env": {"SECRET_PATH": "/models"},
            "artifacts": ARTIFACTS,
        }
        for phase, needs in graph.items()
    ]  # fmt: skip
    return {
        "version": 1, "name": name, "project": "vision", "class": "high-density-training",
        "phases": phases,
    }  # fmt: skip


def make_attempt(
    phase: Phase, gpus: Mapping[str, Sequence[int]], *, racks: Sequence[str] = (), **given: Any
) -> Attempt:
    """Let a phase go onto ``gpus``, by node, ten minutes ago."""
    number = phase.attempts.count() + 1
    at = timezone.now() - timedelta(minutes=10)
    placement = {
        "nodes": sorted(gpus), "gpus": {node: list(held) for node, held in gpus.items()},
        "power_cap_w": 550.0, "peak_w": dict.fromkeys(gpus, 3000.0),
        "sites": sorted({rack.partition("/")[0] for rack in racks}), "racks": sorted(racks),
        "switch_domains": [], "storage": "", **given.pop("placement", {}),
    }  # fmt: skip
    fields: dict[str, Any] = {
        "executor": "local", "state": Attempt.State.RUNNING, "dispatched_at": at,
        "started_at": at + timedelta(seconds=4),
    }  # fmt: skip
    return Attempt.objects.create(
        phase=phase, number=number, key=f"{phase.key}/{number}", placement=placement,
        **{**fields, **given},
    )  # fmt: skip


def note(
    job: Job, kind: str, text: str, *, phase: str = "", at: datetime | None = None, **data: Any
) -> JobEvent:
    """Add to the history of a job."""
    return JobEvent.objects.create(
        job=job, kind=kind, text=text, phase=phase, at=at or timezone.now(), data=data
    )


# --- What a cycle said ---------------------------------------------------------------------------


def make_reason(token: ReasonToken = ReasonToken.FEED_POWER, **given: Any) -> Reason:
    fields: dict[str, Any] = {
        "need": 41_200.0, "have": 36_800.0, "unit": "W",
        "scope": Scope(ScopeKind.POWER_DOMAIN, "oslo/feed-b1"),
        "sentence": "needs 41.2 kW on feed oslo/feed-b1, which has 36.8 kW: short 4.4 kW",
        "evidence": {"at": timezone.now().timestamp()},
    }  # fmt: skip
    return Reason(token, **{**fields, **given})


def make_pending_status(position: int, *reasons: Reason, **given: Any) -> PendingStatus:
    fields: dict[str, Any] = {
        "p10_s": 1080.0, "p50_s": 1500.0, "p90_s": 2100.0,
        "trace": (
            TraceLine("quota", True, "vision holds 8 of 64 GPUs"),
            TraceLine("placement", False, "no placement within the budgets"),
        ),
    }  # fmt: skip
    lines = queue_status.reason_lines(reasons or [make_reason()])
    return PendingStatus(position=position, reasons=lines, **{**fields, **given})


def put_up(
    pending_statuses: Mapping[str, PendingStatus], *, ago_s: float = 1.0, **given: Any
) -> None:
    """Have a cycle of ``ago_s`` seconds ago put up a status; ``pending_statuses`` are in order."""
    counts = [
        Count("high-density-training", each.reasons[0].token, 1, 60.0 * each.position)
        for each in pending_statuses.values()
    ]
    fields: dict[str, Any] = {
        "cycle": 7, "at": time.time() - ago_s, "waiting": len(pending_statuses),
        "running": 0, "admitted": 0, "counts": tuple(counts),
    }  # fmt: skip
    queue_status.publish(QueueStatus(**{**fields, **given}), pending_statuses)


def make_explanation(key: str, *changes: tuple[Change, str]) -> Explanation:
    """Return why ``key`` waits, and that each of ``changes``, with its sentence, would start it."""
    placement = Placement(
        gpus=tuple(range(8)), nodes=(0, 1), peak_w=(3000.0, 3000.0), power_cap_w=550.0,
        slowdown=0.04, locality=Locality.RACK, sites=("oslo",), racks=("oslo/A01",),
        switch_domains=(), storage="",
    )  # fmt: skip
    reason = make_reason()
    found = tuple(
        Counterfactual(change, words, placement, Price(slower=0.04)) for change, words in changes
    )
    return Explanation(key, time.time(), reason, (reason,), 1, found)


CAPPED = Change(lowest_cap_w=550.0, max_slowdown=0.05), "starts now at 550 W per GPU (4 % slower)"
MOVED = Change(sites=("bergen",)), "starts now at site bergen"


# --- Something of everything ---------------------------------------------------------------------

PIPELINE = {
    "ingest": (), "features": ("ingest",), "train": ("features",), "evaluate": ("train",),
    "package": ("train",), "promote": ("evaluate", "package", "features"),
}  # fmt: skip


def make_directive(attempt: Attempt) -> Directive:
    """Ask an attempt for a smaller batch three minutes ago; it held."""
    at = timezone.now() - timedelta(minutes=3)
    row = Directive.objects.create(
        attempt=attempt, kind="set_batch_scale", value=0.75, owner="response", cause="A",
        reason="rack oslo/A01 has 8 % of its power left", state="verdict", outcome="holds",
        issued_at=at, expires_at=at + timedelta(minutes=30), note="5.8 kW less within 40 s",
    )  # fmt: skip
    for after_s, kind in ((0, "issued"), (2, "acknowledged"), (40, "measured")):
        DirectiveEvent.objects.create(directive=row, at=at + timedelta(seconds=after_s), kind=kind)
    return row


def make_lively_queue(*, ago_s: float = 1.0) -> None:
    """A queue on the small fleet: waiting, held, running, ended; long names; published.

    The cycle that put it up was ``ago_s`` seconds ago.
    """
    make_project("vision", gpu_quota=8, power_quota_w=60_000.0)
    make_project("speech", weight=3.0, description="Speech models")
    make_project("p" * 60)
    _make_running()
    pending_statuses = _make_waiting()
    put_up(pending_statuses, ago_s=ago_s)


def _make_waiting() -> dict[str, PendingStatus]:
    minutes = timedelta(minutes=1)
    make_job(waited=38 * minutes)
    make_job("x" * 200, project="p" * 60, waited=12 * minutes, reason="GpuShortage", gpus=64)
    make_job("whisper-eval-7", project="speech", waited=4 * minutes, reason="FeedPowerHeadroom")
    make_job("llama-ft-13", waited=3 * minutes, reason="QuotaExceeded")
    make_job("held-back", project="speech", waited=90 * minutes, reason="OnHold")
    make_job("just-came", waited=timedelta(seconds=2), reason="")
    Phase.objects.filter(job__name="held-back").update(held_by="eva", hold_reason="r" * 300)
    job, now = Job.objects.get(name="llama-ft-12"), timezone.now()
    for ago, token in ((35, "GpuShortage"), (20, "FeedPowerHeadroom")):
        note(job, "reason", f"because of {token}", phase="train", token=token,
             at=now - ago * minutes)  # fmt: skip
    shortage = make_reason(
        ReasonToken.GPU_SHORTAGE, unit="GPUs", need=64, have=20, scope=None,
        sentence="needs 64 GPUs; 20 are free where it may go: short 44",
    )  # fmt: skip
    heat = make_reason(
        ReasonToken.THERMAL, unit="°C", need=3.0, have=1.2, scope=Scope(ScopeKind.RACK, "oslo/A01"),
        sentence="GPUs of rack oslo/A01 would come within 1.2 °C of slowdown: short 1.8 °C",
    )  # fmt: skip
    quota = make_reason(
        ReasonToken.QUOTA_EXCEEDED, unit="GPUs", need=16, have=8, scope=None,
        sentence="vision would hold 16 GPUs of its quota of 8", evidence={},
    )  # fmt: skip
    hold = make_reason(ReasonToken.ON_HOLD, unit="", scope=None, sentence="eva holds it")
    return {
        "whisper-eval-7/train": make_pending_status(1, p10_s=0.0, p90_s=240.0),
        "llama-ft-12/train": make_pending_status(2, make_reason(), heat),
        f"{'x' * 200}/train": make_pending_status(3, shortage),
        "llama-ft-13/train": make_pending_status(4, quota, p10_s=9000.0, p90_s=30_000.0),
        "held-back/train": make_pending_status(5, hold, p10_s=None, p50_s=None, p90_s=None),
    }


def _make_running() -> None:
    now = timezone.now()
    busy = make_job("vit-sweep-3", state="running", phases=PIPELINE, waited=timedelta(hours=3))
    for name in ("ingest", "features"):
        busy.phases.filter(name=name).update(
            state="succeeded", started_at=now - timedelta(hours=3),
            ended_at=now - timedelta(hours=1),
        )  # fmt: skip
    train = busy.phases.get(name="train")
    train.state, train.started_at = Phase.State.RUNNING, now - timedelta(minutes=10)
    train.expected_end_at = now + timedelta(hours=2)
    train.save()
    gone = {"oslo-b01-n1": range(4)}
    make_attempt(train, gone, racks=["oslo/B01"], state=Attempt.State.ENDED, outcome="lost",
                 why="node oslo-b01-n1 is silent", ended_at=now - timedelta(minutes=12),
                 dispatched_at=now - timedelta(minutes=40), lost_gpu_s=9000.0)  # fmt: skip
    held = {"oslo-a01-n1": range(4), "oslo-a02-n1": [0, 2]}
    placement = {
        "slowdown": 0.04, "locality": "ZONE", "switch_domains": ["oslo-a"],
        "storage": "oslo/nvme", "comm_ratio": 1.2, "comm_model": "ring over rail",
        "warnings": ["communication takes longer than computing: 1.20 of a step"],
    }  # fmt: skip
    make_directive(make_attempt(train, held, racks=["oslo/A01", "oslo/A02"], placement=placement))
    note(busy, "dispatched", "Attempt 2 of train on 6 GPUs", phase="train")
