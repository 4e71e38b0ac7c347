"""Rollouts as documents, how far each is, and what has happened to it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from policies.documents.models import Version
from policies.rollouts.machine import RolloutState

__all__ = ["RolloutEvent", "RolloutRun", "RolloutVersion"]

_OVER = [state.value for state in RolloutState if state.is_over]


class RolloutVersion(Version):
    """A version of a rollout. One that is in force may be started."""


class RolloutRunQuerySet(models.QuerySet["RolloutRun"]):
    """Queries of rollouts."""

    def live(self) -> RolloutRunQuerySet:
        """Those that are not over."""
        return self.exclude(state__in=_OVER)


class RolloutRun(models.Model):
    """One rollout under way, or over: the state of the machine, and what it knows of its arms."""

    STATES = [(state.value, state.value) for state in RolloutState]

    version = models.ForeignKey(RolloutVersion, on_delete=models.PROTECT, related_name="runs")
    name = models.CharField(max_length=100)
    state = models.CharField(max_length=20, choices=STATES, default=RolloutState.PENDING)
    step = models.PositiveSmallIntegerField(default=0, help_text="From 0")
    since = models.DateTimeField(help_text="Since when it is in its state")
    soaking_since = models.DateTimeField(
        null=True, help_text="Since when all racks of its step have the change"
    )
    why = models.CharField(max_length=500, blank=True)
    by = models.CharField(max_length=200, blank=True, help_text="The person; empty: by itself")
    started_at = models.DateTimeField()
    changing_since = models.DateTimeField(
        null=True, help_text="When the first rack began to be changed"
    )
    ended_at = models.DateTimeField(null=True)
    racks = models.JSONField(default=list, help_text="Paths of the racks that each step has added")
    control = models.JSONField(default=list, help_text="Paths of those that it is compared with")
    imbalance = models.JSONField(
        default=dict, help_text="Differences of the arms in standard deviations"
    )
    playbook_runs = models.JSONField(default=dict, help_text="By the path of a rack")
    checkpoint_bytes = models.JSONField(
        default=dict, help_text="Of the last checkpoint of each job before the change"
    )
    judged = models.JSONField(default=dict, help_text="The last judgement; empty: none yet")
    judged_at = models.DateTimeField(null=True)

    objects = RolloutRunQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-started_at", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["name"], condition=~Q(state__in=_OVER), name="rollout_one_live"
            ),
        ]

    def __str__(self) -> str:
        return f"rollout {self.name}: {self.state}"

    @property
    def state_words(self) -> str:
        """Its state in words."""
        return self.state.replace("_", " ")


class RolloutEvent(models.Model):
    """A line of the history of a rollout. Rows are added and never changed."""

    run = models.ForeignKey(RolloutRun, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    state = models.CharField(max_length=20, help_text="That it came to")
    step = models.PositiveSmallIntegerField()
    by = models.CharField(max_length=200, blank=True, help_text="The person; empty: by itself")
    text = models.CharField(max_length=500)

    class Meta:
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return f"{self.state} at {self.at:%Y-%m-%d %H:%M}"

    @property
    def state_words(self) -> str:
        """The state that it came to, in words."""
        return self.state.replace("_", " ")
