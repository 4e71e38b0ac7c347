"""Projects, scheduling classes in versions, and jobs with their phases, attempts and history."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import F, Q

from accounts import visibility
from accounts.models import User
from accounts.roles import Capability
from headroom.jobs import array
from policies.documents.models import Version

__all__ = [
    "Attempt",
    "ClassVersion",
    "Dependency",
    "Job",
    "JobEvent",
    "JobRevision",
    "Phase",
    "Project",
    "SubmissionLimits",
    "SubmissionPace",
    "UserLimits",
]


class SubmissionLimits(models.Model):
    """How much may wait, and how fast it may come. Null: as the settings have it for all."""

    max_pending_jobs = models.PositiveIntegerField(
        null=True, blank=True, help_text="Jobs with phases that wait, at once; null: as is usual"
    )
    max_pending_phases = models.PositiveIntegerField(
        null=True, blank=True, help_text="Phases that wait, at once; null: as is usual"
    )
    max_phases_per_job = models.PositiveIntegerField(
        null=True, blank=True, help_text="Phases of one job; null: as is usual"
    )
    submissions_per_s = models.FloatField(
        null=True, blank=True, help_text="Jobs submitted in a second; null: as is usual"
    )

    class Meta:
        abstract = True


class ProjectQuerySet(models.QuerySet["Project"]):
    def open_to(self, user: User) -> ProjectQuerySet:
        """Projects that ``user`` may submit to, and whose jobs ``user`` may change."""
        if user.can(Capability.EDIT_POLICIES):
            return self
        return self.filter(members=user) if user.can(Capability.SUBMIT_JOBS) else self.none()

    def visible_to(self, user: User) -> ProjectQuerySet:
        """Projects that ``user`` may know of by name: those whose jobs ``user`` sees."""
        if visibility.sees_all(user):
            return self
        return self.filter(members=user) if user.can(Capability.VIEW_FLEET) else self.none()


class Project(SubmissionLimits):
    """A tenant that jobs are run for, with a share of the fleet and quotas."""

    name = models.CharField(max_length=60, unique=True)
    description = models.CharField(max_length=500, blank=True)
    weight = models.FloatField(default=1.0, help_text="Of its fair share, against the others'")
    gpu_quota = models.PositiveIntegerField(
        null=True, blank=True, help_text="GPUs that its jobs hold at once; null: no limit"
    )
    power_quota_w = models.FloatField(
        null=True, blank=True, help_text="W that its jobs reserve at once; null: no limit"
    )
    members = models.ManyToManyField(User, related_name="projects", blank=True)
    #: GPU seconds, decayed; what they were at ``used_at``
    used_gpu_s = models.FloatField(default=0.0, editable=False)
    used_at = models.DateTimeField(null=True, editable=False)

    objects = ProjectQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=Q(weight__gt=0), name="project_weight_above_zero"),
            models.CheckConstraint(
                condition=Q(power_quota_w__isnull=True) | Q(power_quota_w__gte=0),
                name="project_power_quota",
            ),
            models.CheckConstraint(
                condition=Q(submissions_per_s__isnull=True) | Q(submissions_per_s__gt=0),
                name="project_submissions_above_zero",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class UserLimits(SubmissionLimits):
    """The limits of one user, over all projects."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="submission_limits")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(submissions_per_s__isnull=True) | Q(submissions_per_s__gt=0),
                name="user_submissions_above_zero",
            ),
        ]

    def __str__(self) -> str:
        return f"limits of {self.user}"


class SubmissionPace(models.Model):
    """How fast a user or a project has submitted, and how much of it waits at most."""

    kind = models.CharField(max_length=10, help_text="user, project, or a user in a project")
    holder = models.BigIntegerField(help_text="Its id")
    full_at = models.DateTimeField(help_text="When the bucket of submissions is full again")
    waiting_jobs = models.PositiveIntegerField(
        default=0, db_default=0, help_text="As last counted, and all that came since"
    )
    waiting_phases = models.PositiveIntegerField(
        default=0, db_default=0, help_text="As last counted, and all that came since"
    )
    counted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "holder"], name="submission_pace_of_holder"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.holder}"


class ProjectGroup(models.Model):
    """A group of the identity provider whose people are members of a project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="groups")
    group = models.CharField(max_length=255, help_text="Exactly as the groups claim has it")

    class Meta:
        ordering = ["group", "project"]
        verbose_name = "project of a group"
        verbose_name_plural = "projects of groups"
        constraints = [
            models.UniqueConstraint(fields=["project", "group"], name="project_group_once"),
        ]

    def __str__(self) -> str:
        return f"{self.group}: {self.project}"


class GroupMembership(models.Model):
    """A membership given by a group, which may take it back. Those by hand have no such row."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="group_memberships")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="group_membership_once"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}"


class ClassVersion(Version):
    """A version of a scheduling class. The active one takes the place of the built-in one."""


class JobQuerySet(models.QuerySet["Job"]):
    def open(self) -> JobQuerySet:
        """Jobs that have not ended."""
        return self.filter(state__in=Job.OPEN)

    def whole_for(self, user: User) -> JobQuerySet:
        """Jobs whose command and environment ``user`` may see: of the own projects alone."""
        if not user.can(Capability.SUBMIT_JOBS):
            return self.none()
        return self.filter(project__in=user.projects.all())

    def changeable_by(self, user: User) -> JobQuerySet:
        """Jobs that ``user`` may cancel, hold and amend."""
        return self.filter(project__in=Project.objects.open_to(user))

    def readable_by(self, user: User) -> JobQuerySet:
        """Jobs whose output ``user`` may read: who may end a job has to know what it does."""
        return self.visible_to(user) & self.changeable_by(user)

    def visible_to(self, user: User) -> JobQuerySet:
        """Jobs that ``user`` may see by name: see ``accounts.visibility``."""
        if visibility.sees_all(user):
            return self
        return self.filter(project__in=Project.objects.visible_to(user))


class Job(models.Model):
    """A pipeline run: its specification, and its progress."""

    class State(models.TextChoices):
        #: none of its phases has been dispatched yet
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        SUCCEEDED = "succeeded", "Succeeded"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    class Fallback(models.TextChoices):
        PRIMARY_SITE = "primary-site", "Primary site"
        REGIONAL = "regional-fallback", "Regional fallback"
        LOCAL_ONLY = "local-only", "Local only"
        HELD_FOR_REVIEW = "held-for-review", "Held for review"

    OPEN = (State.QUEUED, State.RUNNING)

    name = models.CharField(max_length=200, unique=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="jobs")
    job_class = models.CharField(max_length=60)
    priority = models.IntegerField(help_text="Larger is more urgent; its class adds its own")
    spec = models.JSONField(help_text="As it is in force; what it was before is in revisions")
    spec_version = models.PositiveIntegerField(help_text="Of the format")
    revision = models.PositiveIntegerField(default=1, help_text="Grows as the spec is amended")
    submitted_by = models.CharField(max_length=200)
    submitted_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    fallback_state = models.CharField(
        max_length=20, choices=Fallback.choices, default=Fallback.PRIMARY_SITE
    )
    labels = models.JSONField(default=dict)
    idempotency_key = models.CharField(max_length=200, blank=True)
    elements = models.PositiveIntegerField(
        null=True, blank=True, help_text="Of an array; null: it is none"
    )
    elements_reached = models.PositiveIntegerField(
        default=0, help_text="Those before this place in the array have phases"
    )
    held_by = models.CharField(
        max_length=200, blank=True, help_text="Of elements that have no phases yet"
    )
    hold_reason = models.CharField(max_length=500, blank=True)
    interactive = models.BooleanField(
        default=False, help_text="It is for a terminal in it, and ends once that does"
    )
    pipeline = models.CharField(
        max_length=300,
        blank=True,
        db_default="",
        default="",
        help_text="Of phases that came as jobs of their own, the owner and name of their run",
    )

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering = ["-submitted_at", "-id"]
        constraints = [
            # Who sends the same submission twice gets the same job.
            models.UniqueConstraint(
                fields=["submitted_by", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="job_idempotency",
            ),
        ]
        indexes = [
            models.Index(fields=["-submitted_at", "-id"], name="job_submitted"),
            models.Index(fields=["state", "-submitted_at"], name="job_state"),
            # Traces are sent in the order in which jobs end.
            models.Index(
                fields=["ended_at", "id"],
                condition=Q(ended_at__isnull=False),
                name="job_ended",
            ),
            # With each submission it is counted what waits of its user and its project.
            models.Index(
                fields=["submitted_by"],
                condition=Q(state__in=["queued", "running"]),
                name="job_open_of_user",
            ),
            models.Index(
                fields=["project"],
                condition=Q(state__in=["queued", "running"]),
                name="job_open_of_project",
            ),
            # Each cycle asks for arrays that have elements left.
            models.Index(
                fields=["id"],
                condition=Q(elements_reached__lt=F("elements"), state__in=["queued", "running"]),
                name="job_array_open",
            ),
            # Phases of one run have each other's artifacts.
            models.Index(
                fields=["project", "pipeline"],
                condition=~Q(pipeline=""),
                name="job_pipeline",
            ),
            # Those whose terminals are looked after.
            models.Index(fields=["state"], condition=Q(interactive=True), name="job_interactive"),
        ]

    def __str__(self) -> str:
        return self.name


class PhaseQuerySet(models.QuerySet["Phase"]):
    def open(self) -> PhaseQuerySet:
        """Phases that have not ended."""
        return self.filter(state__in=Phase.OPEN)

    def pending(self) -> PhaseQuerySet:
        """Phases that wait to begin, or for other phases."""
        return self.filter(state__in=Phase.PENDING)


class Phase(models.Model):
    """One step of a job, with constraints and a placement of its own: the unit of scheduling."""

    class State(models.TextChoices):
        #: a phase before it has not succeeded yet
        WAITING = "waiting", "Waiting"
        QUEUED = "queued", "Queued"
        #: dispatched; its executor has not begun it everywhere yet
        STARTING = "starting", "Starting"
        RUNNING = "running", "Running"
        #: writes a checkpoint, then stops
        PAUSING = "pausing", "Pausing"
        PAUSED = "paused", "Paused"
        #: told to end
        STOPPING = "stopping", "Stopping"
        SUCCEEDED = "succeeded", "Succeeded"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    PENDING = (State.WAITING, State.QUEUED)
    #: in these an attempt may hold GPUs
    ACTIVE = (State.STARTING, State.RUNNING, State.PAUSING, State.PAUSED, State.STOPPING)
    OPEN = (*PENDING, *ACTIVE)
    OVER = (State.SUCCEEDED, State.FAILED, State.CANCELLED)

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="phases")
    name = models.CharField(max_length=60)
    index = models.PositiveIntegerField(help_text="Its place in the specification")
    element = models.PositiveIntegerField(
        null=True, blank=True, help_text="Its index in an array; null: its job is none"
    )
    needs = models.JSONField(default=list, help_text="Names of the phases before it")
    state = models.CharField(max_length=10, choices=State.choices)
    request = models.JSONField(help_text="What the solver is asked, its class's defaults applied")
    gpus = models.PositiveIntegerField(help_text="That it asks for")
    held_by = models.CharField(max_length=200, blank=True)
    hold_reason = models.CharField(max_length=500, blank=True)
    not_before = models.DateTimeField(null=True, blank=True, help_text="It waits to restart")
    queued_at = models.DateTimeField(null=True, blank=True, help_text="Since when it may begin")
    started_at = models.DateTimeField(null=True, blank=True, help_text="Its first attempt")
    ended_at = models.DateTimeField(null=True, blank=True)
    expected_end_at = models.DateTimeField(null=True, blank=True)
    restarts = models.PositiveIntegerField(default=0)
    returns_to = models.JSONField(
        null=True, blank=True, help_text="The placement that is kept for it while it moves"
    )
    returns_by = models.DateTimeField(null=True, blank=True, help_text="It is kept until then")
    left_out = models.BooleanField(
        default=False, help_text="Cancelled since the job went another way: nothing failed"
    )
    reason = models.CharField(
        max_length=30, blank=True, help_text="Token of the dominant one, of the last cycle"
    )
    reason_since = models.DateTimeField(null=True, blank=True)

    objects = PhaseQuerySet.as_manager()

    class Meta:
        ordering = ["job_id", "element", "index"]
        constraints = [
            models.UniqueConstraint(fields=["job", "name"], name="phase_of_job"),
            models.UniqueConstraint(
                fields=["job", "index", "element"], name="phase_index", nulls_distinct=False
            ),
        ]
        indexes = [
            # Most phases are over; the cycle and the pages ask for the others.
            models.Index(
                fields=["state", "reason"],
                condition=~Q(state__in=["succeeded", "failed", "cancelled"]),
                name="phase_open",
            ),
            # Of an array most are over, too.
            models.Index(
                fields=["job"],
                condition=~Q(state__in=["succeeded", "failed", "cancelled"]),
                name="phase_open_of_job",
            ),
        ]

    def __str__(self) -> str:
        return self.key

    @staticmethod
    def ended(state: Phase.State, now: datetime) -> dict[str, Any]:
        """Return the fields of a phase that is over in ``state``, with their values."""
        return {"state": state, "ended_at": now, "reason": "", "reason_since": None}

    @property
    def key(self) -> str:
        """Its key in the solver."""
        return f"{self.job.name}/{self.name}"

    @property
    def name_in_spec(self) -> str:
        """The name that the specification has for it: all elements of an array share it."""
        return self.name if self.element is None else array.name_in_spec(self.name)


class Dependency(models.Model):
    """A need of a job that is more than phases of its own to succeed. It is decided once."""

    class State(models.TextChoices):
        OPEN = "open", "Open"
        MET = "met", "Met"
        #: what it waits for cannot come about any more
        NEVER = "never", "Never met"
        #: somebody let the job begin without
        WAIVED = "waived", "Waived"
        #: each element waits for its own: rows with :attr:`element` say how they stand
        EACH = "each", "Each for its own"

    #: in these its phases wait
    KEEPS = (State.OPEN, State.NEVER)

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="dependencies")
    phase = models.CharField(max_length=60, blank=True, help_text="That waits; empty: all of it")
    element = models.PositiveIntegerField(
        null=True, blank=True, help_text="That waits, of an array; null: all"
    )
    on_job = models.ForeignKey(Job, on_delete=models.SET_NULL, null=True, related_name="dependents")
    on = models.CharField(max_length=200, blank=True, help_text="Its name; empty: its own job")
    on_phase = models.CharField(max_length=60, blank=True)
    on_element = models.PositiveIntegerField(null=True, blank=True)
    when = models.CharField(max_length=10, help_text="succeeded, failed, ended or started")
    after_s = models.FloatField(default=0.0, help_text="And so long ago, s")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    why = models.CharField(max_length=200, blank=True, help_text="Why it is never met")
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["job_id", "id"]
        verbose_name_plural = "dependencies"
        indexes = [
            # Each cycle asks for those that are to be decided.
            models.Index(fields=["job"], condition=Q(state="open"), name="dependency_open"),
        ]

    def __str__(self) -> str:
        return f"{self.job} needs {self.on or self.on_phase}"


class AttemptQuerySet(models.QuerySet["Attempt"]):
    def open(self) -> AttemptQuerySet:
        """Attempts that hold, or may hold, GPUs."""
        return self.filter(state__in=Attempt.OPEN)

    def overlapping(self, start: datetime, end: datetime) -> AttemptQuerySet:
        """Attempts that held GPUs at some time from ``start`` up to ``end``, whoever holds them."""
        lasts = Q(ended_at=None) | Q(ended_at__gt=start)
        return self.filter(lasts, dispatched_at__lt=end)


class Attempt(models.Model):
    """One dispatch of a phase to an executor. It is run at most once."""

    class State(models.TextChoices):
        DISPATCHED = "dispatched", "Dispatched"
        RUNNING = "running", "Running"
        ENDED = "ended", "Ended"

    class Outcome(models.TextChoices):
        SUCCEEDED = "succeeded", "Succeeded"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"
        #: stopped so that others can run, or that a budget holds
        PREEMPTED = "preempted", "Preempted"
        #: its gang did not come together in time
        WITHDRAWN = "withdrawn", "Withdrawn"
        #: a node, or all trace of it, is gone
        LOST = "lost", "Lost"

    OPEN = (State.DISPATCHED, State.RUNNING)
    #: of an open attempt: it was told to end, and counts as this however its work ends then
    SETTLED = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED)

    phase = models.ForeignKey(Phase, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField(help_text="1 for the first")
    key = models.CharField(max_length=300, unique=True, help_text="job/phase/number")
    executor = models.CharField(max_length=20)
    placement = models.JSONField(
        help_text="nodes, gpus by node, power_cap_w, peak_w by node, sites, racks, "
        "switch_domains, storage"
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.DISPATCHED)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, blank=True)
    why = models.CharField(max_length=500, blank=True, help_text="Why it ended")
    exit_code = models.IntegerField(null=True, blank=True)
    told = models.JSONField(
        null=True, blank=True, editable=False,
        help_text="What its output says most of how it failed: kind, node, text, before_s",
    )  # fmt: skip
    dispatched_at = models.DateTimeField()
    room_by = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Power is being taken back for it until then; empty: it was handed over",
    )
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    checkpoint_at = models.DateTimeField(null=True, blank=True, help_text="The last one")
    lost_gpu_s = models.FloatField(default=0.0, help_text="Work done since, thrown away")
    energy_j = models.FloatField(
        null=True, blank=True, help_text="Of its GPUs, by their readings; empty: none were read"
    )
    energy_share = models.FloatField(
        null=True, blank=True, help_text="Of its GPUs' time, what was read; empty: not added up yet"
    )
    unheard = models.CharField(
        max_length=500,
        blank=True,
        default="",
        help_text="Which of its machines are not heard, and since when; empty: all are",
    )

    objects = AttemptQuerySet.as_manager()

    class Meta:
        ordering = ["phase_id", "number"]
        constraints = [
            models.UniqueConstraint(fields=["phase", "number"], name="attempt_of_phase"),
            # Two cycles that see the same phase let it go once.
            models.UniqueConstraint(
                fields=["phase"],
                condition=Q(state__in=["dispatched", "running"]),
                name="attempt_one_open",
            ),
        ]
        indexes = [
            models.Index(fields=["ended_at"], name="attempt_ended"),
            models.Index(fields=["phase"], condition=~Q(unheard=""), name="attempt_unheard"),
            models.Index(
                fields=["ended_at"], condition=Q(energy_share=None), name="attempt_unmeasured"
            ),
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def reports_as(self) -> tuple[str, str, str]:
        """The names under which its loop may report: job, phase or attempt."""
        return self.phase.job.name, self.phase.key, self.key


class Artifact(models.Model):
    """An artifact that a phase has made, as its machines measured it. It is recorded once."""

    phase = models.ForeignKey(Phase, on_delete=models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=60)
    path = models.CharField(max_length=4000, help_text="On the machines of its phase")
    digest = models.CharField(max_length=80)
    size_bytes = models.BigIntegerField()
    site = models.CharField(max_length=200, blank=True, help_text="Where it was made")
    cells = models.JSONField(null=True, help_text="Of a result of a matrix: how many ended how")
    attempt = models.CharField(max_length=300, help_text="That made it: job/phase/number")
    recorded_at = models.DateTimeField()

    class Meta:
        ordering = ["phase_id", "name"]
        constraints = [
            models.UniqueConstraint(fields=["phase", "name"], name="artifact_of_phase"),
        ]

    def __str__(self) -> str:
        return f"{self.phase}: {self.name}"


class ArtifactCopy(models.Model):
    """A copy of an artifact at another site, as the machines of a phase there measured it."""

    artifact = models.ForeignKey(Artifact, on_delete=models.CASCADE, related_name="copies")
    site = models.CharField(max_length=200)
    path = models.CharField(max_length=4000, help_text="On the machines there")
    digest = models.CharField(max_length=80)
    size_bytes = models.BigIntegerField()
    attempt = models.CharField(max_length=300, help_text="That made it: job/phase/number")
    recorded_at = models.DateTimeField()

    class Meta:
        ordering = ["artifact_id", "site"]
        verbose_name_plural = "artifact copies"
        constraints = [
            models.UniqueConstraint(fields=["artifact", "site"], name="artifact_copy_at_site"),
        ]

    def __str__(self) -> str:
        return f"{self.artifact} at {self.site}"


class JobRevision(models.Model):
    """A job's specification as it was before it was amended."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    spec = models.JSONField()
    replaced_at = models.DateTimeField()
    replaced_by = models.CharField(max_length=200)
    change = models.CharField(max_length=500, help_text="What was changed, in words")

    class Meta:
        ordering = ["job_id", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="job_revision"),
        ]

    def __str__(self) -> str:
        return f"{self.job} revision {self.number}"


class JobEvent(models.Model):
    """One thing that happened to a job. Rows are added and never changed."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events")
    phase = models.CharField(max_length=60, blank=True, help_text="Empty: the whole job")
    at = models.DateTimeField()
    kind = models.CharField(max_length=30, help_text="A stable token, such as submitted")
    text = models.CharField(max_length=1000, help_text="In words")
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["at", "id"]
        indexes = [models.Index(fields=["job", "at", "id"], name="job_event_of")]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.kind} {self.text}"
