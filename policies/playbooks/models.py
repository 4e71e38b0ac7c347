"""Playbooks in versions, their runs with each step, and the directives that they give."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from accounts.visibility import Visibility
from policies.documents.models import Version
from policies.playbooks.document import Program
from policies.playbooks.machine import OVER, RunState, StepState
from policies.playbooks.parse import parse
from policies.scopes import MOST_NAME, Scope, ScopeKind

__all__ = ["Directive", "PlaybookRun", "PlaybookVersion", "StepRun"]

_SCOPE_KINDS = [(each.value, each.value) for each in ScopeKind]


class PlaybookVersion(Version):
    """A version of a playbook."""

    @property
    def program(self) -> Program:
        """The program of its text, which was checked when it was saved."""
        return parse(self.text)


class PlaybookRunQuerySet(models.QuerySet["PlaybookRun"]):
    def seen_by(self, visibility: Visibility) -> PlaybookRunQuerySet:
        """Those that the reader may see: not about a job that is hidden from them."""
        return self.filter(visibility.seen_rows())

    def live(self) -> PlaybookRunQuerySet:
        """Runs that still do something, or wait to."""
        return self.exclude(state__in=OVER)


class PlaybookRun(models.Model):
    """A playbook at work on one scope."""

    STATES = [(state.value, state.value) for state in RunState]

    version = models.ForeignKey(PlaybookVersion, on_delete=models.PROTECT, related_name="runs")
    #: that of its version, for the constraint
    playbook = models.CharField(max_length=60)
    scope_kind = models.CharField(max_length=12, choices=_SCOPE_KINDS)
    scope_name = models.CharField(max_length=MOST_NAME)
    values = models.JSONField(default=dict, help_text="What the rule saw that started it")
    inputs = models.JSONField(default=dict, help_text="Inputs of the playbook, by name")
    incident_id = models.BigIntegerField(null=True, blank=True)
    state = models.CharField(max_length=10, choices=STATES)
    why = models.TextField(blank=True, help_text="Why it is where it is")
    place = models.PositiveIntegerField(
        default=0, help_text="Which of all steps, in the order of the text, is next or waits"
    )
    started_at = models.DateTimeField()
    started_by = models.CharField(max_length=200)
    deadline = models.DateTimeField(help_text="All of it is over by then")
    due_at = models.DateTimeField(null=True, help_text="When it is to be looked at next")
    paused_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(
        max_length=200, blank=True, help_text="The person who ended it; empty: by itself"
    )
    rule = models.CharField(
        max_length=300, blank=True, help_text="The rule that started it; empty: a person did"
    )
    attempt = models.PositiveIntegerField(
        default=1, help_text="Which run it is for this rule and place within a while"
    )
    verifying_since = models.DateTimeField(
        null=True, blank=True, help_text="When all its steps were through, while its rule fired"
    )
    clear_since = models.DateTimeField(
        null=True, blank=True, help_text="Since when its rule is clear, while it holds on"
    )
    escalated_at = models.DateTimeField(
        null=True, blank=True, help_text="When people were told that its rule fires on"
    )

    objects = PlaybookRunQuerySet.as_manager()

    class Meta:
        ordering = ["-started_at", "-id"]
        constraints = [
            # Two who see the same new incident start one run.
            models.UniqueConstraint(
                fields=["playbook", "scope_kind", "scope_name", "incident_id"],
                condition=Q(
                    state__in=["running", "waiting", "paused", "verifying"],
                    incident_id__isnull=False,
                ),
                name="playbook_run_one_per_incident",
            ),
        ]
        indexes = [
            models.Index(fields=["-started_at", "-id"], name="playbook_run_started"),
            models.Index(fields=["incident_id"], name="playbook_run_incident"),
            models.Index(fields=["rule", "scope_name", "-started_at"], name="playbook_run_rule"),
            models.Index(
                fields=["due_at"], condition=Q(due_at__isnull=False), name="playbook_run_due"
            ),
        ]

    def __str__(self) -> str:
        return f"run {self.pk} of {self.playbook} on {self.scope}"

    @property
    def scope(self) -> Scope:
        return Scope(ScopeKind(self.scope_kind), self.scope_name)

    def key(self, path: str) -> str:
        """The key of the effect of one step: the same however often it is asked for."""
        return f"playbook:{self.pk}/{path}"


class StepRun(models.Model):
    """A step that has begun. It begins once: a constraint sees to it."""

    STATES = [(state.value, state.value) for state in StepState]

    run = models.ForeignKey(PlaybookRun, on_delete=models.CASCADE, related_name="steps")
    path = models.CharField(max_length=80, help_text="Its place: 2, 2.then.0, or 2/undo")
    step = models.CharField(max_length=70, help_text="Its id in the playbook")
    kind = models.CharField(max_length=12)
    state = models.CharField(max_length=12, choices=STATES)
    entered_at = models.DateTimeField()
    deadline = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    by = models.CharField(max_length=200, blank=True, help_text="Who answered")
    note = models.TextField(blank=True)
    value = models.FloatField(null=True, help_text="Of its restriction")
    lease_until = models.DateTimeField(
        null=True, help_text="How long its restriction is held for; null: it holds none"
    )
    escalated = models.BooleanField(default=False)
    restriction = models.BigIntegerField(null=True, help_text="The restriction that it has issued")
    since = models.DateTimeField(null=True, help_text="Since when its condition holds")
    seen_at = models.DateTimeField(null=True, help_text="When that was last looked at")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["run", "path"], name="playbook_step_once"),
        ]

    def __str__(self) -> str:
        return f"{self.step} ({self.path}): {self.state}"


class DirectiveQuerySet(models.QuerySet["Directive"]):
    def open(self) -> DirectiveQuerySet:
        """Directives whose outcome is not final yet."""
        return self.filter(state__in=Directive.OPEN)


class Directive(models.Model):
    """An instruction to jobs, for the executor to take up: an outbox with a ledger."""

    class Kind(models.TextChoices):
        CHECKPOINT = "checkpoint", "Checkpoint"
        MIGRATE = "migrate", "Migrate"
        RESUME = "resume", "Resume"

    class State(models.TextChoices):
        ISSUED = "issued", "Issued"
        #: an executor has taken it up
        ACKNOWLEDGED = "acknowledged", "Acknowledged"
        #: the jobs have done it
        APPLIED = "applied", "Applied"
        #: its effect has been measured
        MEASURED = "measured", "Measured"
        #: what came of it is known
        VERDICT = "verdict", "Verdict"
        #: it cannot be done; ``note`` says why
        REFUSED = "refused", "Refused"
        #: whoever gave it does not want it any more
        WITHDRAWN = "withdrawn", "Withdrawn"

    OPEN = (State.ISSUED, State.ACKNOWLEDGED)
    #: From each state, what may follow.
    NEXT: dict[str, frozenset[str]] = {
        State.ISSUED: frozenset({State.ACKNOWLEDGED, State.REFUSED, State.WITHDRAWN}),
        State.ACKNOWLEDGED: frozenset({State.APPLIED, State.REFUSED, State.WITHDRAWN}),
        State.APPLIED: frozenset({State.MEASURED}),
        State.MEASURED: frozenset({State.VERDICT}),
    }

    key = models.CharField(max_length=200, unique=True, help_text="Whose it is: one step, once")
    run = models.ForeignKey(PlaybookRun, on_delete=models.CASCADE, related_name="directives")
    kind = models.CharField(max_length=12, choices=Kind.choices)
    scope_kind = models.CharField(max_length=12, choices=_SCOPE_KINDS)
    scope_name = models.CharField(max_length=MOST_NAME)
    arguments = models.JSONField(default=dict)
    state = models.CharField(max_length=12, choices=State.choices, default=State.ISSUED)
    issued_at = models.DateTimeField()
    expires_at = models.DateTimeField(help_text="Not to be taken up after this")
    note = models.TextField(blank=True)
    ledger = models.JSONField(default=list, help_text="State, time and note of each change")

    objects = DirectiveQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(
                fields=["expires_at"],
                condition=Q(state__in=["issued", "acknowledged"]),
                name="directive_open",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} on {self.scope_kind} {self.scope_name}: {self.state}"
