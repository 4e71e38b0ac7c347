"""The node queue: gangs, the assignments of their nodes, and the machines that ask."""

from __future__ import annotations

import enum
import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

__all__ = ["Gang", "Hearing", "LogPart", "NodeAssignment", "Runner", "Shell"]


class GangQuerySet(models.QuerySet["Gang"]):
    def open(self) -> GangQuerySet:
        """Those that are not over."""
        return self.filter(ended_at=None)

    def held(self) -> GangQuerySet:
        """Those of which no node has heard yet."""
        return self.open().filter(offered_at=None)

    def gathering(self) -> GangQuerySet:
        """Those that were offered to their nodes, and have not come together."""
        return self.open().filter(offered_at__isnull=False, go_at=None)


class Gang(models.Model):
    """The work of one attempt on all of its nodes. All changes are made under its row's lock."""

    class State(enum.StrEnum):
        """How far a gang is. It is not stored: it follows from its times and its outcome."""

        HELD = "held"
        #: its nodes are asked to claim it; none may start
        OFFERED = "offered"
        #: all have claimed it: each is to start
        GO = "go"
        STOPPING = "stopping"
        ENDED = "ended"

    key = models.CharField(max_length=300, unique=True, help_text="job/phase/number")
    executor = models.CharField(max_length=20)
    work = models.JSONField(help_text="Command, environment, walltime")
    power_cap_w = models.FloatField(null=True)
    offered_at = models.DateTimeField(null=True)
    go_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    #: how it is to end, or has ended
    outcome = models.CharField(max_length=10, blank=True)
    why = models.CharField(max_length=500, blank=True)
    signals = models.JSONField(default=list, help_text="Those not seen by all: seq, kind, value")
    signal_seq = models.IntegerField(default=0, help_text="Of the last signal")
    version = models.IntegerField(
        default=1, help_text="Grows with every change, of its assignments too"
    )
    noted = models.IntegerField(default=0, help_text="The version that reconciliation has seen")

    objects = GangQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(
                fields=["executor"], condition=Q(ended_at=None), name="executors_gang_open"
            ),
            models.Index(
                fields=["executor"], condition=~Q(version=F("noted")), name="executors_gang_moved"
            ),
            models.Index(fields=["ended_at"], name="executors_gang_ended"),
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def state(self) -> Gang.State:
        """How far it is, by what has happened to it."""
        if self.ended_at is not None:
            return Gang.State.ENDED
        if self.go_at is not None:
            return Gang.State.STOPPING if self.outcome else Gang.State.GO
        return Gang.State.HELD if self.offered_at is None else Gang.State.OFFERED


class NodeAssignment(models.Model):
    """One node's part of a gang, and the node's last report on it.

    The node is no foreign key: one that leaves the inventory must not leave the gang.
    """

    class State(models.TextChoices):
        OFFERED = "offered", "Offered"
        CLAIMED = "claimed", "Claimed"
        RUNNING = "running", "Running"
        PAUSED = "paused", "Paused"
        ENDED = "ended", "Ended"

    gang = models.ForeignKey(Gang, on_delete=models.CASCADE, related_name="assignments")
    node_id = models.BigIntegerField()
    node = models.CharField(max_length=200)
    rank = models.PositiveIntegerField()
    gpus = ArrayField(models.SmallIntegerField(), default=list)
    gpus_of_node = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.OFFERED)
    #: of the machine that has claimed it: no other is ever told to run it
    store = models.CharField(max_length=64, blank=True)
    claimed_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=20, blank=True)
    exit_code = models.SmallIntegerField(null=True)
    checkpoint_at = models.DateTimeField(null=True)
    signals_seen = models.IntegerField(default=0)
    signals_done = models.IntegerField(default=0)
    #: the step of the job's training after which it did the last of them
    done_at_step = models.BigIntegerField(null=True)
    #: what the machine measured of the artifacts that the phase makes; null: nothing
    outputs = models.JSONField(null=True)
    text = models.CharField(max_length=500, blank=True)
    log_tail = models.TextField(blank=True)
    #: what the machine has of its output, as it said at ``log_told_at``, bytes from its beginning
    log_first = models.BigIntegerField(null=True)
    log_size = models.BigIntegerField(null=True)
    log_told_at = models.DateTimeField(null=True)
    #: from where on somebody would read it; -1: its end; null: nobody waits for any
    log_asked_from = models.BigIntegerField(null=True)
    log_asked_at = models.DateTimeField(null=True)
    #: when somebody asked for a terminal there
    shell_asked_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["gang", "node_id"], name="executors_assignment_of_node"
            ),
        ]
        indexes = [
            models.Index(
                fields=["node_id"], condition=~Q(state="ended"), name="executors_assignment_open"
            ),
            models.Index(
                fields=["node_id"],
                condition=Q(log_asked_from__isnull=False),
                name="executors_assignment_asked",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.gang} on {self.node}"


class LogPart(models.Model):
    """Output of an attempt on one node, as its machine sent it when somebody read it."""

    assignment = models.ForeignKey(
        NodeAssignment, on_delete=models.CASCADE, related_name="log_parts"
    )
    start = models.BigIntegerField(help_text="Its place in all of the output, bytes")
    size = models.PositiveIntegerField(help_text="Bytes")
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["assignment", "start"], name="executors_log_part"),
        ]

    def __str__(self) -> str:
        return f"{self.assignment}: {self.size} bytes from {self.start}"


class Shell(models.Model):
    """A terminal that somebody has opened in what an attempt holds on one node.

    Of what is said there nothing is kept but how much it was.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    assignment = models.ForeignKey(NodeAssignment, on_delete=models.CASCADE, related_name="shells")
    job = models.CharField(max_length=200)
    user = models.CharField(max_length=200)
    #: as the machine is asked for it
    request = models.JSONField(default=dict)
    asked_at = models.DateTimeField()
    begun_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    why = models.CharField(max_length=500, blank=True, help_text="Why it ended")
    exit_code = models.SmallIntegerField(null=True)
    bytes_in = models.BigIntegerField(default=0)
    bytes_out = models.BigIntegerField(default=0)

    class Meta:
        indexes = [
            models.Index(
                fields=["assignment"], condition=Q(ended_at=None), name="executors_shell_open"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.assignment}"


class Runner(models.Model):
    """A machine that runs jobs for a node, as it last reported. Another store: another machine."""

    node_id = models.BigIntegerField()
    node = models.CharField(max_length=200)
    agent = models.CharField(max_length=200)
    store = models.CharField(max_length=64)
    version = models.CharField(max_length=50, blank=True)
    is_simulated = models.BooleanField(default=False, help_text="A machine of the twin")
    seen_at = models.DateTimeField()
    #: how long we had listened in all by then, s: see Hearing
    heard_s = models.FloatField(default=0)
    #: after so long a silence it is given up, s; null: an earlier release has heard it last
    lease_s = models.FloatField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node_id", "store"], name="executors_runner_of_node"),
        ]

    def __str__(self) -> str:
        return self.node


class Hearing(models.Model):
    """One row: the time that machines were listened to, s, by a clock that only we move on.

    It goes on with each look, by the time that has passed since the one before, and stands still
    while nobody looks: a clock that is set changes nothing, nor does the time in which we were
    away. A machine is given up for its silence only where others, or the server, are not the cause.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    listened_s = models.FloatField(default=0, help_text="In all, s")
    since_s = models.FloatField(default=0, help_text="When we last began to listen, by listened_s")
    looked_at = models.DateTimeField()
    looked_s = models.FloatField(default=0, help_text="The same, by the uptime of that machine, s")
    boot_id = models.CharField(max_length=64, blank=True, help_text="Of the machine that looked")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="executors_hearing_one_row")]

    def __str__(self) -> str:
        return f"{self.listened_s:g} s"
