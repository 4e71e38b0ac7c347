"""Agents, how far each one's batches are stored, and throttle events.

Samples are not models: they live in range-partitioned tables that only COPY writes
(``telemetry/samples.py``).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from accounts import tokens
from fleet.models import Gpu, Node, Site
from headroom.contracts import ThrottleCause

if TYPE_CHECKING:
    pass


class AgentState(models.TextChoices):
    """How an agent stands: exactly one of these holds."""

    LIVE = "live", "Live"
    STALE = "stale", "Stale"
    NEVER = "never", "Never heard"
    REVOKED = "revoked", "Revoked"


def state_condition(state: AgentState, stale_before: datetime) -> Q:
    """Return the condition under which an agent is in ``state``."""
    in_force = Q(revoked_at__isnull=True)
    return {
        AgentState.LIVE: in_force & Q(last_seen_at__gte=stale_before),
        AgentState.STALE: in_force & Q(last_seen_at__lt=stale_before),
        AgentState.NEVER: in_force & Q(last_seen_at__isnull=True),
        AgentState.REVOKED: ~in_force,
    }[state]


class AgentQuerySet(models.QuerySet["Agent"]):
    def usable(self) -> AgentQuerySet:
        """Agents whose token is not revoked."""
        return self.filter(revoked_at__isnull=True)

    def stale(self, now: datetime, after_s: float) -> AgentQuerySet:
        """Usable agents that were heard once, but not in the last ``after_s`` seconds."""
        limit = now - timedelta(seconds=after_s)
        return self.usable().filter(last_seen_at__lt=limit)

    def in_state(self, state: AgentState, now: datetime, stale_after_s: float) -> AgentQuerySet:
        """Agents for which ``Agent.state`` is ``state``."""
        return self.filter(state_condition(state, now - timedelta(seconds=stale_after_s)))

    def count_by_state(self, now: datetime, stale_after_s: float) -> dict[AgentState, int]:
        """Return how many agents are in each state. One query."""
        limit = now - timedelta(seconds=stale_after_s)
        counts = self.order_by().aggregate(
            **{s.value: models.Count("pk", filter=state_condition(s, limit)) for s in AgentState}
        )
        return {state: counts[state.value] for state in AgentState}

    def search(self, text: str) -> AgentQuerySet:
        """Agents with ``text`` in their name, or in that of a node or site they speak for."""
        named = Q(name__icontains=text)
        of_node = Agent.nodes.through.objects.filter(node__name__icontains=text).values("agent")
        of_site = Agent.sites.through.objects.filter(site__name__icontains=text).values("agent")
        return self.filter(named | Q(pk__in=of_node) | Q(pk__in=of_site))


class Agent(models.Model):
    """A source of telemetry, with the token that says which nodes it may speak for."""

    name = models.CharField(max_length=200, unique=True)
    nodes = models.ManyToManyField(Node, blank=True, related_name="agents")
    sites = models.ManyToManyField(
        Site,
        blank=True,
        related_name="agents",
        help_text="The agent may speak for everything at these sites",
    )
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    hint = models.CharField(max_length=12, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    # What its last batch said.
    last_seen_at = models.DateTimeField(null=True, blank=True)
    lag_s = models.FloatField(
        null=True, blank=True, help_text="From its newest reading to our receipt of it, s"
    )
    skew_s = models.FloatField(
        null=True, blank=True, help_text="Its clock minus ours, network time included, s"
    )
    version = models.CharField(max_length=50, blank=True)
    spooled_batches = models.BigIntegerField(default=0)
    dropped_batches = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)

    # What we refused of it.
    refused_batches = models.BigIntegerField(default=0)
    last_refusal = models.CharField(max_length=500, blank=True)
    last_refused_at = models.DateTimeField(null=True, blank=True)

    objects = AgentQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def state(self, now: datetime, stale_after_s: float) -> AgentState:
        """Say how the agent stands at ``now``."""
        if self.revoked_at is not None:
            return AgentState.REVOKED
        if self.last_seen_at is None:
            return AgentState.NEVER
        if self.last_seen_at < now - timedelta(seconds=stale_after_s):
            return AgentState.STALE
        return AgentState.LIVE

    #: What :meth:`renew_token` changes, for the save that has to follow.
    TOKEN_FIELDS = ("digest", "hint", "revoked_at")

    def renew_token(self) -> str:
        """Take a new token in place of any old one and return it; the caller saves."""
        secret = tokens.generate(tokens.AGENT_PREFIX)
        self.digest = tokens.digest(secret)
        self.hint = tokens.hint(secret)
        self.revoked_at = None
        return secret


class ScopeGeneration(models.Model):
    """One row, whose number grows with every change of an agent's token, name or scope.

    Triggers see to it (``0003_scope_generation``), inside the writing transaction, whoever writes.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    number = models.BigIntegerField()

    def __str__(self) -> str:
        return str(self.number)

    @staticmethod
    def current() -> int:
        """Return the number now, or 0. One query."""
        return ScopeGeneration.objects.values_list("number", flat=True).first() or 0


class IngestPosition(models.Model):
    """Which batches of one life of an agent are stored: up to ``mark``, and those ``beyond``."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="positions")
    boot_id = models.CharField(max_length=64)
    mark = models.BigIntegerField(default=0)
    beyond = ArrayField(models.BigIntegerField(), default=list)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "boot_id"], name="ingest_position_key")
        ]

    def __str__(self) -> str:
        return f"{self.agent} {self.boot_id}: {self.mark}"


class ReportedJob(models.Model):
    """A job that telemetry mentioned, by the name that the training loop gave it."""

    name = models.CharField(max_length=200, unique=True)

    def __str__(self) -> str:
        return self.name


class ThrottleEventQuerySet(models.QuerySet["ThrottleEvent"]):
    def open(self) -> ThrottleEventQuerySet:
        """Events that still go on."""
        return self.filter(closed_at__isnull=True)

    def touching_since(self, start: datetime) -> ThrottleEventQuerySet:
        """Events that still went on at ``start``, or opened later."""
        return self.filter(Q(closed_at__isnull=True) | Q(closed_at__gt=start))

    def overlapping(self, start: datetime, end: datetime) -> ThrottleEventQuerySet:
        """Events that touch the span from ``start`` to ``end``."""
        return self.filter(opened_at__lt=end).touching_since(start)


class ThrottleEvent(models.Model):
    """A span in which one GPU was throttled for one cause."""

    class Cause(models.IntegerChoices):
        SW_POWER_CAP = ThrottleCause.SW_POWER_CAP, "Software power cap"
        HW_SLOWDOWN = ThrottleCause.HW_SLOWDOWN, "Hardware slowdown"
        SYNC_BOOST = ThrottleCause.SYNC_BOOST, "Sync boost"
        SW_THERMAL = ThrottleCause.SW_THERMAL, "Software thermal"
        HW_THERMAL = ThrottleCause.HW_THERMAL, "Hardware thermal"
        HW_POWER_BRAKE = ThrottleCause.HW_POWER_BRAKE, "Hardware power brake"
        DISPLAY_CLOCK = ThrottleCause.DISPLAY_CLOCK, "Display clock"

    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, related_name="throttle_events")
    cause = models.IntegerField(choices=Cause.choices)
    opened_at = models.DateTimeField(help_text="First reading that showed it")
    updated_at = models.DateTimeField(help_text="Last reading that showed it")
    closed_at = models.DateTimeField(
        null=True, blank=True, help_text="First reading that no longer showed it"
    )
    readings = models.IntegerField(default=1)
    peak_temp_c = models.FloatField(null=True, blank=True)
    peak_power_w = models.FloatField(null=True, blank=True)
    min_sm_mhz = models.FloatField(null=True, blank=True)

    objects = ThrottleEventQuerySet.as_manager()

    class Meta:
        ordering = ["-opened_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["gpu", "cause"],
                condition=Q(closed_at__isnull=True),
                name="throttle_event_one_open",
            )
        ]
        indexes = [
            models.Index(fields=["-opened_at"], name="throttle_event_opened"),
            models.Index(fields=["gpu", "-opened_at"], name="throttle_event_gpu_opened"),
        ]

    def __str__(self) -> str:
        return f"{self.gpu} {self.get_cause_display()} from {self.opened_at:%H:%M:%S}"

    @property
    def cause_token(self) -> str:
        """The cause by its stable token, such as ``sw_power_cap``."""
        return ThrottleCause(self.cause).token
