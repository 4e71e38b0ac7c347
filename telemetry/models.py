"""Agents, how far each one's batches are stored, and throttle events.

Samples are not models: they live in range-partitioned tables that only COPY writes
(``telemetry/samples.py``).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField, DateTimeRangeField
from django.db import models
from django.db.models import Aggregate, Func, OuterRef, Q, Value
from django.db.models.functions import Coalesce, Greatest, Least, Now

from accounts import tokens
from fleet.models import Gpu, Node, Site
from headroom.contracts import ThrottleCause
from telemetry.checkpoints.models import CheckpointFact as CheckpointFact
from telemetry.cold.models import ColdFile, DetachedPartition
from telemetry.faults.models import EccEvent
from telemetry.lemons.models import LemonFinding, LemonWatch
from telemetry.limits.models import LimitReport
from telemetry.rollups.models import JobCarrier, RollupMark, RollupProgress
from telemetry.throttle import rules
from telemetry.throttle.models import TrackedRounds
from telemetry.versions.models import NodeVersions

#: Models of modules of their own: Django finds them through this one.
_ELSEWHERE = (
    CheckpointFact,
    ColdFile,
    DetachedPartition,
    EccEvent,
    JobCarrier,
    LemonFinding,
    LemonWatch,
    LimitReport,
    NodeVersions,
    RollupMark,
    RollupProgress,
    TrackedRounds,
)


class AgentState(models.TextChoices):
    """The state of an agent: exactly one of these holds."""

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
    any_job = models.BooleanField(
        default=False, help_text="It may report on jobs that are not placed on its nodes"
    )
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    hint = models.CharField(max_length=12, editable=False)
    previous_digest = models.BinaryField(max_length=32, null=True, editable=False)
    previous_until = models.DateTimeField(
        null=True, editable=False, help_text="Until then the token before this one is good, too"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    # What its last batch said.
    last_seen_at = models.DateTimeField(null=True, blank=True)
    heard_to = models.DateTimeField(
        null=True, editable=False, help_text="Its newest reading, by its own clock"
    )
    lag_s = models.FloatField(
        null=True, blank=True, help_text="From its newest reading to our receipt of it, s"
    )
    skew_s = models.FloatField(null=True, blank=True, help_text="Its clock minus ours, s")
    version = models.CharField(max_length=50, blank=True)
    spooled_batches = models.BigIntegerField(default=0)
    dropped_batches = models.BigIntegerField(default=0)
    thinned_rows = models.BigIntegerField(
        default=0, help_text="Readings left out of batches that waited, to make room"
    )
    errors = models.BigIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)

    # What we refused of it.
    refused_batches = models.BigIntegerField(default=0, help_text="Of which nothing was taken")
    refused_rows = models.BigIntegerField(
        default=0, help_text="Of batches of which the rest was taken"
    )
    last_refusal = models.CharField(max_length=500, blank=True)
    last_refused_at = models.DateTimeField(null=True, blank=True)

    objects = AgentQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def state(self, now: datetime, stale_after_s: float) -> AgentState:
        """Return the state of the agent at ``now``."""
        if self.revoked_at is not None:
            return AgentState.REVOKED
        if self.last_seen_at is None:
            return AgentState.NEVER
        if self.last_seen_at < now - timedelta(seconds=stale_after_s):
            return AgentState.STALE
        return AgentState.LIVE

    #: What :meth:`renew_token` changes, for the save that has to follow.
    TOKEN_FIELDS = ("digest", "hint", "previous_digest", "previous_until", "revoked_at")

    def renew_token(self, *, old_until: datetime | None = None) -> str:
        """Take a new token in place of any old one and return it; the caller saves.

        ``old_until``: until then the one that was in force stays so. Any before it ends.
        """
        in_force = self.pk is not None and self.revoked_at is None
        keep = old_until is not None and in_force
        self.previous_digest = self.digest if keep else None
        self.previous_until = old_until if keep else None
        secret = tokens.generate(tokens.AGENT_PREFIX)
        self.digest = tokens.digest(secret)
        self.hint = tokens.hint(secret)
        self.revoked_at = None
        return secret


class AgentSilence(models.Model):
    """A time of which an agent has no readings, from the last before it to the first after it."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="silences")
    since = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        ordering = ["-since"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "since"], name="agent_silence_key"),
        ]
        indexes = [models.Index(fields=["until"], name="agent_silence_until")]

    def __str__(self) -> str:
        return f"{self.agent}: {self.since:%Y-%m-%d %H:%M:%S} to {self.until:%Y-%m-%d %H:%M:%S}"


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


class PushedRequest(models.Model):
    """A request of a sender that keeps nothing: remote write or OTLP.

    The answer says that it was taken, so what it holds lies here until it is stored; after that the
    digest alone, by which the request is known when it is sent again.
    """

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="pushed_requests")
    digest = models.BinaryField(max_length=32)
    received_at = models.DateTimeField()
    rows = models.IntegerField()
    body = models.BinaryField(null=True, help_text="Its readings; null once they are stored")
    seq = models.BigIntegerField(null=True, help_text="The batch that carries them to the writer")
    sent_at = models.DateTimeField(null=True, help_text="When that was last put on the stream")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "digest"], name="pushed_request_key")
        ]
        indexes = [
            models.Index(
                fields=["id"], condition=Q(body__isnull=False), name="pushed_request_waiting"
            ),
            models.Index(fields=["agent", "-seq"], name="pushed_request_seq"),
        ]

    def __str__(self) -> str:
        return f"{self.agent} {self.received_at:%H:%M:%S}"


class ReportedJob(models.Model):
    """A job that telemetry mentioned, by the name that the training loop gave it."""

    name = models.CharField(max_length=200, unique=True)
    agent = models.ForeignKey(
        Agent,
        null=True,
        on_delete=models.SET_NULL,
        related_name="named_jobs",
        help_text="Who named it first; null: Headroom placed it, or nobody wrote it down",
    )
    seen_at = models.DateTimeField(db_default=Now(), help_text="To the day: when it was last named")

    def __str__(self) -> str:
        return self.name


class Mount(models.Model):
    """A mount of a node whose storage the agent probes, by the name that the agent gives it."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="mounts")
    name = models.CharField(max_length=200)
    seen_at = models.DateTimeField(db_default=Now(), help_text="To the day: when it last reported")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "name"], name="mount_key")]

    def __str__(self) -> str:
        return f"{self.node} {self.name}"


class XidEvent(models.Model):
    """An Xid error that a node's kernel logged."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="xid_events")
    gpu = models.ForeignKey(
        Gpu,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="xid_events",
        help_text="None where the line names no GPU that is known",
    )
    ts = models.DateTimeField(help_text="Time of the line")
    xid = models.IntegerField()
    pci = models.CharField(max_length=50, blank=True, help_text="Bus id that the line gives")
    text = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-ts", "-id"]
        constraints = [
            # A kernel log may be read twice.
            models.UniqueConstraint(
                fields=["node", "ts", "xid", "gpu", "pci", "text"],
                name="xid_event_line",
                nulls_distinct=False,
            )
        ]
        indexes = [
            models.Index(fields=["-ts"], name="xid_event_ts"),
            models.Index(fields=["gpu", "-ts"], name="xid_event_gpu_ts"),
        ]

    def __str__(self) -> str:
        return f"{self.gpu or self.node} Xid {self.xid} at {self.ts:%H:%M:%S}"


#: Xid errors of a GPU that are so close to a throttle event belong to it.
_XID_NEAR = timedelta(minutes=1)


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

    def spans_by_cause(
        self, start: datetime, end: datetime
    ) -> dict[int, list[tuple[datetime, datetime]]]:
        """Return when each cause held for any GPU between ``start`` and ``end``. One query.

        Postgres makes one span of those that overlap: of many GPUs there are many times more.
        """
        span = Func(
            Greatest("opened_at", Value(start)),
            Least(Coalesce("closed_at", Value(end)), Value(end)),
            function="tstzrange",
            output_field=DateTimeRangeField(),
        )
        rows = self.overlapping(start, end).order_by().values("cause")
        found = rows.annotate(
            spans=Aggregate(span, function="range_agg", output_field=DateTimeRangeField())
        )
        return {row["cause"]: [(each.lower, each.upper) for each in row["spans"]] for row in found}

    def of_class(self, wanted: ThrottleEvent.Class) -> ThrottleEventQuerySet:
        """Events that are expected, since somebody asked for them, or those that are not."""
        return self.filter(expected=wanted == ThrottleEvent.Class.EXPECTED)

    def at_least(self, severity: rules.Severity) -> ThrottleEventQuerySet:
        """Events that are so severe, or worse."""
        return self.filter(severity__gte=severity)

    def with_xids(self) -> ThrottleEventQuerySet:
        """Events with ``xids``, the codes that were logged for their GPU meanwhile."""
        meanwhile = XidEvent.objects.filter(
            gpu=OuterRef("gpu"),
            ts__gte=OuterRef("opened_at") - _XID_NEAR,
            ts__lte=Coalesce(OuterRef("closed_at"), Now()) + _XID_NEAR,
        )
        return self.annotate(xids=ArraySubquery(meanwhile.order_by("ts", "pk").values("xid")))


class ThrottleEvent(models.Model):
    """A span in which one GPU was throttled for one cause.

    Figures of an event that goes on are those of ``updated_at``, at most a minute old.
    """

    class Cause(models.IntegerChoices):
        SW_POWER_CAP = ThrottleCause.SW_POWER_CAP, "Software power cap"
        HW_SLOWDOWN = ThrottleCause.HW_SLOWDOWN, "Hardware slowdown"
        SYNC_BOOST = ThrottleCause.SYNC_BOOST, "Sync boost"
        SW_THERMAL = ThrottleCause.SW_THERMAL, "Software thermal"
        HW_THERMAL = ThrottleCause.HW_THERMAL, "Hardware thermal"
        HW_POWER_BRAKE = ThrottleCause.HW_POWER_BRAKE, "Hardware power brake"
        DISPLAY_CLOCK = ThrottleCause.DISPLAY_CLOCK, "Display clock"

    class Class(models.TextChoices):
        """Whether an event is expected: somebody asked for it."""

        EXPECTED = "expected", "Expected"
        UNEXPECTED = "unexpected", "Unexpected"

    class Severity(models.IntegerChoices):
        INFO = rules.Severity.INFO, "Info"
        WARNING = rules.Severity.WARNING, "Warning"
        CRITICAL = rules.Severity.CRITICAL, "Critical"

    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, related_name="throttle_events")
    cause = models.IntegerField(choices=Cause.choices)
    opened_at = models.DateTimeField(help_text="Begin of the first interval in which it held")
    updated_at = models.DateTimeField(help_text="End of the last interval in which it held")
    closed_at = models.DateTimeField(
        null=True, blank=True, help_text="The same, once it is over; null while it goes on"
    )
    readings = models.IntegerField(default=1, help_text="Intervals in which it held")
    expected = models.BooleanField(
        default=False, help_text="For most of its throttled time a limit was lowered"
    )
    severity = models.SmallIntegerField(choices=Severity.choices, default=Severity.INFO)
    observed_s = models.FloatField(default=0.0, help_text="Of its span, what readings tell of")
    throttled_s = models.FloatField(default=0.0, help_text="For so long the cause held")
    capped_s = models.FloatField(default=0.0, help_text="Of that, with a lowered power limit")
    sampled_s = models.FloatField(
        default=0.0,
        db_default=0.0,
        help_text="Of that, known by the masks of readings and no counter",
    )
    usual_mhz = models.FloatField(
        null=True, blank=True, help_text="Clock of the GPU under load without throttling"
    )
    lost_mhz_s = models.FloatField(
        null=True, blank=True, help_text="Clock below the usual one, over the throttled time"
    )
    energy_j = models.FloatField(null=True, blank=True, help_text="Energy drawn over its span")
    peak_temp_c = models.FloatField(null=True, blank=True)
    peak_temp_mem_c = models.FloatField(null=True, blank=True)
    peak_power_w = models.FloatField(null=True, blank=True)
    min_sm_mhz = models.FloatField(null=True, blank=True)
    job = models.ForeignKey(
        ReportedJob, null=True, blank=True, on_delete=models.SET_NULL,
        related_name="throttle_events", help_text="What the GPU worked on when it opened",
    )  # fmt: skip
    place = models.TextField(
        blank=True, default="", help_text="site/rack/node/index of the GPU when it opened"
    )

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
            models.Index(fields=["closed_at"], name="throttle_event_closed"),
            models.Index(fields=["gpu", "-opened_at"], name="throttle_event_gpu_opened"),
        ]

    def __str__(self) -> str:
        return f"{self.gpu} {self.get_cause_display()} from {self.opened_at:%H:%M:%S}"

    @property
    def cause_token(self) -> str:
        """The cause by its stable token, such as ``sw_power_cap``."""
        return ThrottleCause(self.cause).token

    @property
    def severity_token(self) -> str:
        """The severity by its stable token, such as ``critical``."""
        return rules.Severity(self.severity).token

    @property
    def class_token(self) -> str:
        """``expected`` or ``unexpected``."""
        return self.Class.EXPECTED.value if self.expected else self.Class.UNEXPECTED.value

    @property
    def is_sampled(self) -> bool:
        """Whether most of its throttled time is known by masks of readings alone."""
        return self.sampled_s > self.throttled_s / 2

    @property
    def share(self) -> float | None:
        """For which share of its observed time the cause held; None: seen at one moment only."""
        return self.throttled_s / self.observed_s if self.observed_s > 0 else None

    @property
    def lost_s(self) -> float | None:
        """The lost clock as seconds of work at the usual clock."""
        if self.lost_mhz_s is None or not self.usual_mhz:
            return None
        return self.lost_mhz_s / self.usual_mhz
