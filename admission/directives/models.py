"""Directives to running jobs, the ledger of their effects, and the last signals of each job."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from admission.core.directives.book import ENDING, LASTING, Kind
from admission.jobs.models import Attempt
from policies.leases.book import Key
from policies.scopes import MOST_NAME, Scope, ScopeKind

__all__ = ["Control", "Directive", "DirectiveEvent", "JobFallback", "Overload"]


class DirectiveQuerySet(models.QuerySet["Directive"]):
    def live(self) -> DirectiveQuerySet:
        """Directives that have not ended yet."""
        return self.filter(ended_at=None)

    def in_force(self, now: datetime) -> DirectiveQuerySet:
        """Directives in force at ``now``, whether or not a step has passed since they ran out."""
        return self.live().filter(expires_at__gt=now)

    def unfinished(self) -> DirectiveQuerySet:
        """Directives that still need work or a line in the ledger."""
        return self.filter(is_closed=False)


class Directive(models.Model):
    """An action or limit for one attempt: for whom, why and until when; and its progress.

    Some last: they hold until their cause ends or their lease runs out, and are undone then. The
    others are done once.
    """

    Kind = Kind

    class State(models.TextChoices):
        ISSUED = "issued", "Issued"
        #: all of its nodes have passed it on to the job
        ACKNOWLEDGED = "acknowledged", "Acknowledged"
        #: the job has done it
        APPLIED = "applied", "Applied"
        #: the readings show what it did
        MEASURED = "measured", "Measured"
        #: what came of it is known
        VERDICT = "verdict", "Verdict"
        #: it cannot be done; ``note`` says why
        REFUSED = "refused", "Refused"

    class Outcome(models.TextChoices):
        #: it was done, and the readings show it
        HOLDS = "holds", "Holds"
        #: it was done, and the readings do not show it
        NO_EFFECT = "no_effect", "No effect"
        #: it was done; the readings that would show what it did are missing
        UNMEASURED = "unmeasured", "Unmeasured"
        #: it was over before the job had done it
        NOT_APPLIED = "not_applied", "Not applied"

    LASTING = LASTING
    ENDING = ENDING

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="directives")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    value = models.FloatField(null=True, help_text="Share of the batch, or W; null: it takes none")
    arguments = models.JSONField(default=dict)
    owner = models.CharField(
        max_length=200,
        help_text="response, shedding, placement, preemption, fallback, restriction:ID, "
        "playbook:RUN/STEP or user:NAME",
    )
    cause = models.CharField(max_length=300, help_text="Stays the same for as long as the reason")
    reason = models.CharField(max_length=500)
    evidence = models.JSONField(default=dict)
    state = models.CharField(max_length=12, choices=State.choices, default=State.ISSUED)
    issued_at = models.DateTimeField()
    expires_at = models.DateTimeField(help_text="It ends then by itself")
    #: of the signals by which the executor was told to do it, and to undo it
    signal_seq = models.IntegerField(null=True)
    undo_seq = models.IntegerField(null=True)
    applied_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, help_text="When it ceased to be wanted")
    ended_by = models.CharField(max_length=200, blank=True)
    ended_why = models.CharField(max_length=500, blank=True)
    undone_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=12, choices=Outcome.choices, blank=True)
    note = models.CharField(max_length=1000, blank=True, help_text="The last of what is known")
    is_closed = models.BooleanField(default=False, help_text="Nothing more is to be done about it")

    objects = DirectiveQuerySet.as_manager()

    class Meta:
        ordering = ["-issued_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["attempt", "owner", "cause", "kind"],
                condition=Q(ended_at=None),
                name="directive_one_live",
            ),
        ]
        indexes = [
            models.Index(fields=["attempt", "-issued_at"], name="directive_of_attempt"),
            models.Index(
                fields=["attempt"], condition=Q(is_closed=False), name="directive_unfinished"
            ),
            models.Index(
                fields=["issued_at"], condition=Q(owner="preemption"), name="directive_preempted"
            ),
            models.Index(
                fields=["issued_at"],
                condition=Q(owner__in=["growth", "shrinking", "defragmentation"]),
                name="directive_moved",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.attempt_id}: {self.state}"

    @property
    def is_lasting(self) -> bool:
        return self.kind in self.LASTING

    @property
    def key(self) -> Key:
        """The key that tells it from other live ones, as ``Wanted.key`` does."""
        return self.owner, self.cause, str(self.kind), self.attempt_id


class DirectiveEvent(models.Model):
    """One line of the ledger. Rows are added and never changed."""

    class Kind(models.TextChoices):
        ISSUED = "issued", "Issued"
        CHANGED = "changed", "Value changed"
        ACKNOWLEDGED = "acknowledged", "Acknowledged"
        APPLIED = "applied", "Applied"
        MEASURED = "measured", "Measured"
        VERDICT = "verdict", "Verdict"
        REFUSED = "refused", "Refused"
        #: its cause is over
        RELEASED = "released", "Released"
        #: nobody renewed its lease
        EXPIRED = "expired", "Expired"
        #: the job is as it was without it
        UNDONE = "undone", "Undone"

    directive = models.ForeignKey(Directive, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    text = models.CharField(max_length=1000, blank=True)
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.directive_id} {self.kind} at {self.at:%H:%M:%S}"


class Control(models.Model):
    """The last signals of an attempt, and the status of its graduated response.

    A row is made when there is something to say: without one a job runs in full.
    """

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, related_name="control")
    batch_scale = models.FloatField(default=1.0)
    batch_scale_seq = models.IntegerField(default=0)
    power_cap_w = models.FloatField(null=True)
    power_cap_seq = models.IntegerField(default=0)
    is_paused = models.BooleanField(default=False)
    pause_seq = models.IntegerField(default=0)
    #: ``core.response.respond.ResponseStatus`` as JSON
    response = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"of {self.attempt_id}"


class Overload(models.Model):
    """A scope that draws more than its budget, and since when."""

    scope_kind = models.CharField(max_length=12, choices=[(k.value, k.value) for k in ScopeKind])
    scope_name = models.CharField(max_length=MOST_NAME)
    since = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["scope_kind", "scope_name"], name="overload_of_scope"),
        ]

    def __str__(self) -> str:
        return f"{self.scope} since {self.since:%Y-%m-%d %H:%M:%S}"

    @property
    def scope(self) -> Scope:
        return Scope(ScopeKind(self.scope_kind), self.scope_name)


class JobFallback(models.Model):
    """The fallback status of a job: its home, since when, and since when each way has been open."""

    job = models.OneToOneField("admission_jobs.Job", on_delete=models.CASCADE)
    home = models.CharField(max_length=200, help_text="Its primary site")
    since = models.DateTimeField()
    open_since = models.JSONField(default=dict, help_text="By way: Unix seconds")
    seen_at = models.DateTimeField(null=True, help_text="When that was looked at last")

    def __str__(self) -> str:
        return f"of {self.job_id}, at home in {self.home}"
