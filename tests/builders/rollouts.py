"""Rollouts that are under way."""

from __future__ import annotations

from django.utils import timezone

from policies.rollouts.models import RolloutEvent, RolloutRun, RolloutVersion

__all__ = ["DRIVER", "make_held"]

#: A version of a rollout.
DRIVER = """\
name: driver
change: {kind: driver, version: "580.2"}
playbook: change-by-hand
steps: [{share: 0.33}, {share: 1.0}]
guards: [{metric: power, matters: 0.02}, {metric: xids}]
"""
_FINDING = {
    "state": "worse", "blocks": 12, "difference": 0.031, "lower": 0.012, "upper": 0.05,
    "evidence": None, "needed": None,
}  # fmt: skip


def make_held(version: RolloutVersion) -> RolloutRun:
    """Have a rollout wait for a person: its canary draws more than what it is compared with."""
    now = timezone.now()
    run = RolloutRun.objects.create(
        version=version, name=version.name, state="held", since=now, soaking_since=now,
        started_at=now, why="to be rolled back: power", racks=[["oslo/A01"]],
        control=["oslo/A02", "oslo/A03"], imbalance={"draw over budget": 0.12}, judged_at=now,
        judged={
            "verdict": "roll_back", "why": "worse", "covered": 0.8, "blocks": 12,
            "other_work": {"changed": 1, "control": 0},
            "findings": [{"guard": {"metric": "power", "matters": 0.02}, **_FINDING}],
        },
    )  # fmt: skip
    RolloutEvent.objects.create(run=run, at=now, state="held", step=0, text="power")
    return run
