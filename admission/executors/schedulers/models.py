"""Schedulers, their nodes and jobs as they last told of them, and the leases of jobs."""

from __future__ import annotations

import msgspec
from django.db import models
from django.db.models import F, Q

from headroom.schedulers import contract
from headroom.schedulers.contract import JobState, NodeState, SchedulerKind, WhenAway

__all__ = [
    "Lease",
    "Move",
    "MoveQuerySet",
    "Scheduler",
    "SchedulerJob",
    "SchedulerJobQuerySet",
    "SchedulerNode",
]


class Scheduler(models.Model):
    """A cluster's scheduler, for which one agent speaks. Attempts name it as their executor."""

    name = models.CharField(max_length=20, unique=True)
    agent_id = models.BigIntegerField(help_text="Whose token its bridge has")
    kind = models.CharField(max_length=10, choices=[(k, k.title()) for k in SchedulerKind])
    version = models.CharField(max_length=200, blank=True)
    when_away = models.CharField(
        max_length=10,
        choices=[(k, k.title()) for k in WhenAway],
        help_text="What becomes of new jobs while Headroom is away",
    )
    session = models.CharField(max_length=64, blank=True, help_text="Of its bridge's life")
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class SchedulerNode(models.Model):
    """A node of a scheduler. It is no foreign key: who leaves the inventory may come back."""

    scheduler = models.ForeignKey(Scheduler, on_delete=models.CASCADE, related_name="nodes")
    node_id = models.BigIntegerField()
    node = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=[(k, k.title()) for k in NodeState])
    reason = models.CharField(max_length=1000, blank=True)
    drained_by = models.CharField(max_length=200, blank=True, help_text="As the scheduler has it")
    down_since = models.DateTimeField(null=True, help_text="Since when it does not answer")
    is_ours = models.BooleanField(default=False, help_text="We have drained it, and undo it")
    drain_for = models.CharField(
        max_length=500, blank=True, help_text="Why it is to be drained; empty: it is not"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node_id"], name="scheduler_node_once"),
        ]

    def __str__(self) -> str:
        return self.node


class SchedulerJobQuerySet(models.QuerySet["SchedulerJob"]):
    """Queries of jobs."""

    def open(self) -> SchedulerJobQuerySet:
        """Those that their scheduler has, and that have not ended."""
        return self.filter(ended_at=None)


class SchedulerJob(models.Model):
    """A job as its scheduler last told of it. Refs are used again: only one of a ref is open.

    A job of ours that went on in another scheduler has a row in each; all but the last are settled.
    """

    scheduler = models.ForeignKey(Scheduler, on_delete=models.CASCADE, related_name="jobs")
    ref = models.CharField(max_length=100)
    name = models.CharField(max_length=200, help_text="Of our job for it")
    state = models.CharField(max_length=10, choices=[(k, k.title()) for k in JobState])
    restarts = models.PositiveIntegerField()
    told = models.JSONField(help_text="The last report of it")
    told_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    is_adopted = models.BooleanField(default=False, help_text="There is a job of ours for it")
    is_settled = models.BooleanField(default=False, help_text="It is over, for our job too")
    cancel_for = models.CharField(
        max_length=500, blank=True, help_text="Why it is to be cancelled; empty: it is not"
    )
    comment = models.CharField(max_length=500, blank=True, help_text="What its owner is to read")
    commented_at = models.DateTimeField(null=True)
    is_comment_new = models.BooleanField(default=False, help_text="It is not written there yet")
    start_in_s = models.FloatField(null=True, help_text="Likely wait when the comment was made")
    is_never = models.BooleanField(default=False, help_text="It can never start as it is")
    is_changed = models.BooleanField(
        default=False, help_text="It asks for something else than when it was adopted"
    )
    parcel = models.JSONField(null=True, help_text="What it is submitted with in another scheduler")
    is_parcel_wanted = models.BooleanField(default=False, help_text="Its bridge is asked for it")

    objects = SchedulerJobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["scheduler", "ref"],
                condition=Q(ended_at=None),
                name="scheduler_job_open_once",
            ),
            models.UniqueConstraint(
                fields=["name"], condition=Q(is_settled=False), name="scheduler_job_name_once"
            ),
        ]
        indexes = [
            models.Index(
                fields=["scheduler"],
                condition=Q(is_settled=False),
                name="scheduler_job_unsettled",
            ),
            models.Index(fields=["name"], name="scheduler_job_name"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def report(self) -> contract.SchedulerJob:
        """The last report of it."""
        return msgspec.convert(self.told, contract.SchedulerJob)


class LeaseQuerySet(models.QuerySet["Lease"]):
    """Queries of leases."""

    def open(self) -> LeaseQuerySet:
        """Those that are not over."""
        return self.filter(ended_at=None)


class Lease(models.Model):
    """The right of a job to start once, and what became of it. Changed under its row's lock."""

    job = models.ForeignKey(SchedulerJob, on_delete=models.CASCADE, related_name="leases")
    key = models.CharField(max_length=300, unique=True, help_text="job/phase/number")
    restarts = models.PositiveIntegerField(help_text="Starts that the job had had before")
    nodes = models.JSONField(default=list, help_text="Names, in the order of ranks")
    released_at = models.DateTimeField(null=True, help_text="Since when it is to start")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True)
    exit_code = models.IntegerField(null=True)
    why = models.CharField(max_length=500, blank=True)
    stop_for = models.CharField(
        max_length=500, blank=True, help_text="Why it is to end; empty: it is not"
    )
    is_late = models.BooleanField(default=False, help_text="It did not begin, and is taken back")
    is_paused = models.BooleanField(
        null=True, help_text="It is to stand still; null: nobody ever said"
    )
    directives = models.JSONField(default=dict, help_text="What holds for it now")
    signal_seq = models.IntegerField(default=0, help_text="Of the last signal")
    version = models.IntegerField(default=1, help_text="Grows with every change")
    noted = models.IntegerField(default=0, help_text="The version that reconciliation has seen")

    objects = LeaseQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job"], condition=Q(ended_at=None), name="scheduler_lease_open_once"
            ),
        ]
        indexes = [
            models.Index(
                fields=["job"], condition=~Q(version=F("noted")), name="scheduler_lease_moved"
            ),
        ]

    def __str__(self) -> str:
        return self.key


class MoveQuerySet(models.QuerySet["Move"]):
    """Queries of moves."""

    def open(self) -> MoveQuerySet:
        """Those that are not over."""
        return self.filter(state__in=Move.OPEN)


class Move(models.Model):
    """A job that goes on in another scheduler: cancelled in one, and only then submitted in one."""

    class State(models.TextChoices):
        #: told to end where it is, and not confirmed to be over there
        LEAVING = "leaving", "Leaving"
        #: over there, and to be submitted
        AWAY = "away", "Away"
        ARRIVED = "arrived", "Arrived"
        #: not submitted, and never to be by this move
        OFF = "off", "Called off"

    OPEN = (State.LEAVING, State.AWAY)

    key = models.CharField(max_length=300, unique=True, help_text="job/move/number")
    name = models.CharField(max_length=200, help_text="Of our job")
    source = models.ForeignKey(
        SchedulerJob, on_delete=models.SET_NULL, null=True, related_name="moves"
    )
    to = models.ForeignKey(Scheduler, on_delete=models.CASCADE, related_name="moves")
    parcel = models.JSONField(help_text="What it is submitted with")
    state = models.CharField(max_length=10, choices=State.choices, default=State.LEAVING)
    begun_at = models.DateTimeField()
    refused_at = models.DateTimeField(null=True, help_text="Since when it was not asked for again")
    why = models.CharField(max_length=500, blank=True, help_text="Why it was not taken")

    objects = MoveQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["name"],
                condition=Q(state__in=("leaving", "away")),
                name="scheduler_move_open_once",
            ),
        ]

    def __str__(self) -> str:
        return self.key
