"""Answers of the server about jobs, as its API gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

NOW = 1_790_000_000.0


def at(ago_s: float) -> str:
    return datetime.fromtimestamp(NOW - ago_s, UTC).isoformat()


def make_reason(token: str = "FeedPowerHeadroom", **given: Any) -> dict[str, Any]:
    fields = {
        "token": token, "need": 41_200.0, "have": 36_800.0, "short": 4_400.0, "unit": "W",
        "scope_kind": "power_domain", "scope_name": "oslo/feed-b2", "evidence": {},
        "sentence": "needs 41.2 kW on feed b2, which has 36.8 kW: short 4.4 kW",
    }  # fmt: skip
    return {**fields, **given}


def make_placement(**given: Any) -> dict[str, Any]:
    fields = {
        "gpus": 64, "nodes": 8, "sites": ["oslo"], "racks": ["oslo/A01", "oslo/A02"],
        "power_cap_w": 550.0, "total_w": 52_400.0, "slowdown": 0.04, "locality": "site",
        "comm_ratio": None, "comm_model": "", "warnings": [],
    }  # fmt: skip
    return {**fields, **given}


def make_fix(sentence: str = "starts now at 550 W per GPU (4 % slower)") -> dict[str, Any]:
    change = {"lowest_cap_w": 550.0}
    placement = make_placement()
    return {"change": change, "sentence": sentence, "slowdown": 0.04, "placement": placement}


def make_phase(name: str = "train", **given: Any) -> dict[str, Any]:
    fields = {
        "name": name, "needs": [], "state": "queued", "gpus": 64, "held_by": "",
        "hold_reason": "", "not_before": None, "queued_at": at(38 * 60), "started_at": None,
        "ended_at": None, "expected_end_at": None, "restarts": 0, "reason": "FeedPowerHeadroom",
        "reason_since": at(60), "attempts": [],
    }  # fmt: skip
    return {**fields, **given}


def make_job(name: str = "llama-ft-12", **given: Any) -> dict[str, Any]:
    fields = {
        "name": name, "project": "vision", "job_class": "high-density-training", "priority": 0,
        "state": "queued", "fallback_state": "primary-site", "revision": 1,
        "submitted_by": "ada", "submitted_at": at(38 * 60), "ended_at": None, "labels": {},
        "phases": [make_phase()],
    }  # fmt: skip
    return {**fields, **given}


def make_estimate(p10_s: float | None = 1080.0, p90_s: float | None = 2100.0) -> dict[str, Any]:
    return {"p10_s": p10_s, "p50_s": p10_s, "p90_s": p90_s, "basis": ""}


def make_explained(phase: str = "train", **given: Any) -> dict[str, Any]:
    fields = {
        "phase": phase, "reasons": [make_reason()], "position": 3, "trace": [],
        "counterfactuals": [make_fix()], "estimate": make_estimate(),
    }  # fmt: skip
    return {**fields, **given}


def make_explanation(*phases: dict[str, Any], **given: Any) -> dict[str, Any]:
    found = list(phases) or [make_explained()]
    return {"job": "llama-ft-12", "state": "queued", "at": at(0), "phases": found, **given}


def make_queued(position: int = 1, **given: Any) -> dict[str, Any]:
    fields = {
        "position": position, "job": "llama-ft-12", "phase": "train", "project": "vision",
        "what": "llama-ft-12/train", "job_class": "high-density-training", "gpus": 64,
        "queued_at": at(38 * 60), "reason": "FeedPowerHeadroom",
        "sentence": "needs 41.2 kW on feed b2, which has 36.8 kW: short 4.4 kW",
        "estimate": make_estimate(),
    }  # fmt: skip
    return {**fields, **given}


def make_queue(*rows: dict[str, Any], **given: Any) -> dict[str, Any]:
    counts = [
        {"job_class": "high-density-training", "reason": "FeedPowerHeadroom", "count": 2,
         "oldest_s": 2280.0},
        {"job_class": "checkpoint-heavy", "reason": "GpuShortage", "count": 1, "oldest_s": 60.0},
        {"job_class": "checkpoint-heavy", "reason": "FeedPowerHeadroom", "count": 1,
         "oldest_s": 90.0},
    ]  # fmt: skip
    fields = {"at": at(2), "waiting": 4, "running": 9, "counts": counts, "queue": list(rows)}
    return {**fields, **given}


def make_tried(phase: str = "train", **given: Any) -> dict[str, Any]:
    fields = {
        "phase": phase, "starts": True, "after": [], "placement": make_placement(),
        "reasons": [], "position": None, "trace": [], "counterfactuals": [],
    }  # fmt: skip
    return {**fields, **given}


def make_dry_run(*phases: dict[str, Any]) -> dict[str, Any]:
    return {
        "dry_run": True, "project": "vision", "job_class": "high-density-training", "at": at(0),
        "phases": list(phases) or [make_tried()],
    }  # fmt: skip


def make_event(number: int, text: str, *, phase: str = "", kind: str = "reason") -> dict[str, Any]:
    return {"id": number, "at": at(60 - number), "phase": phase, "kind": kind, "text": text,
            "data": {}}  # fmt: skip


def make_said(text: str = "", offset: int = 0, **given: Any) -> dict[str, Any]:
    fields = {
        "job": "llama-ft-12", "phase": "train", "attempt": 1, "node": "oslo-a01-n1", "rank": 0,
        "ranks": 1, "failed_ranks": [], "state": "running", "exit_code": None, "why": "",
        "offset": offset, "next_offset": offset + len(text.encode()), "size": None, "text": text,
        "tail": "", "pending": False, "over": False,
    }  # fmt: skip
    return {**fields, **given}


def make_losses(**given: Any) -> dict[str, Any]:
    """Return a report of two losses, of which one is beyond its usual."""
    gain = {
        "basis": "usual", "lever": "look at its cooling", "gpu_h_week": 840.0, "kwh_week": 588.0,
        "money_week": None, "steps": ["beyond its usual = 6 % - 1 % = 5 points"],
    }  # fmt: skip
    heat = {
        "loss": "throttled_hw_thermal", "reason": "", "gpu_h": 144.0, "share": 0.06, "kwh": 100.0,
        "money": None, "usual": {"days": 28, "p10": 0.01, "p50": 0.01, "p90": 0.01},
        "lever": "look at its cooling", "gain": gain,
    }  # fmt: skip
    waits = {
        "loss": "waiting", "reason": "QuotaExceeded", "gpu_h": 24.0, "share": 0.01, "kwh": None,
        "money": 12.5, "usual": None, "lever": "see the queue", "gain": None,
    }  # fmt: skip
    return {
        "hours": 24, "missing_hours": 0, "first_missing": None, "currency": "EUR", "first": heat,
        "losses": [heat, waits],
        "not_ranked": [{"cause": "busy", "gpu_h": 3.0, "lever": "connect the training loop"}],
        "cannot_tell": ["which gangs were at several sites"], **given,
    }  # fmt: skip


def make_fleet_goodput(**given: Any) -> dict[str, Any]:
    """Return the account of two GPUs for two hours, of which one was free."""
    causes = [
        {"cause": "productive", "gpu_s": 7200.0, "share": 0.5, "lever": ""},
        {"cause": "free", "gpu_s": 7200.0, "share": 0.5, "lever": "see the queue"},
    ]
    group = {"key": {"project": "vision"}, "gpu_s": 7200.0, "held_gpu_s": 7200.0, "goodput": 1.0}
    nobody = {"key": {"project": ""}, "gpu_s": 7200.0, "held_gpu_s": 0.0, "goodput": None}
    return {
        "by": "project", "gpu_s": 14_400.0, "scheduling_goodput": 0.5, "runtime_goodput": 1.0,
        "money": None, "price_known": 0.0, "currency": "EUR",
        "goodput": 1.0, "program_goodput": 0.25, "program_known": 0.5,
        "program_verdict": "below the 30 to 50 % of well-optimized training. Fuse kernels.",
        "fleet_goodput": 0.5, "missing_hours": 0, "first_missing": None, "causes": causes,
        "groups": [group, nobody],
        "waiting": [{"reason": "GpuShortage", "demand_gpu_s": 3600.0, "wanted_gpu_s": 1800.0}],
        "iterations": [
            {"project": "vision", "week": "2026-11-16", "moved": 900.0, "repeated": 80.0,
             "missed": 20.0, "index": 0.9}
        ], **given,
    }  # fmt: skip
