"""Jobs, projects and classes in JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db import IntegrityError
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from accounts.models import User
from accounts.visibility import Visibility
from admission.core.throughput import Unit
from admission.jobs import checkpoints, elements, projects
from admission.jobs.limits import Limits, limits_of, waiting_of
from admission.jobs.models import (
    Attempt,
    ClassVersion,
    Dependency,
    Job,
    JobEvent,
    Phase,
    Project,
    UserLimits,
)
from admission.jobs.needs import text_of
from admission.jobs.projects import Use, user_use
from policies.documents.api import VERSION_FIELDS, CheckedSerializer
from telemetry.models import CheckpointFact

__all__ = [
    "ArraySerializer",
    "AttemptSerializer",
    "CancelElementsSerializer",
    "CancelJobSerializer",
    "ClassCheckedSerializer",
    "ClassVersionSerializer",
    "DryRunAnswerSerializer",
    "ExplanationSerializer",
    "HoldJobSerializer",
    "JobAmendmentSerializer",
    "JobDetailSerializer",
    "JobEventSerializer",
    "JobPrioritySerializer",
    "JobSerializer",
    "PhaseSerializer",
    "ProjectSerializer",
    "QueueSerializer",
    "SchedulingClassSerializer",
    "UserLimitsSerializer",
    "array_of",
]


class PhaseSerializer(serializers.ModelSerializer[Phase]):
    class Meta:
        model = Phase
        fields: tuple[str, ...] = (
            "name",
            "needs",
            "state",
            "gpus",
            "held_by",
            "hold_reason",
            "not_before",
            "queued_at",
            "started_at",
            "ended_at",
            "expected_end_at",
            "restarts",
            "reason",
            "reason_since",
        )
        read_only_fields = fields


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    why = serializers.SerializerMethodField(help_text="Why it ended")
    placement = serializers.DictField(help_text="Nodes, GPUs, caps and labels; total_w in W")

    class Meta:
        model = Attempt
        fields = (
            "number",
            "executor",
            "state",
            "outcome",
            "why",
            "exit_code",
            "placement",
            "dispatched_at",
            "room_by",
            "started_at",
            "ended_at",
            "checkpoint_at",
            "lost_gpu_s",
            "energy_j",
            "energy_share",
            "unheard",
        )
        read_only_fields = fields

    def get_why(self, attempt: Attempt) -> str:
        visibility: Visibility = self.context["visibility"]
        return visibility.text(attempt.why)


class _PhaseDetailSerializer(PhaseSerializer):
    attempts = AttemptSerializer(many=True, read_only=True)

    class Meta(PhaseSerializer.Meta):
        fields = (*PhaseSerializer.Meta.fields, "attempts")
        read_only_fields = fields


class ArraySerializer(serializers.Serializer[Any]):
    """The elements of an array. Those with a phase that runs, or is to go on, are running."""

    indices = serializers.CharField(help_text="As they were submitted, such as 0-99:2")
    limit = serializers.IntegerField(allow_null=True, help_text="That run at once; null: all")
    gpus = serializers.IntegerField(help_text="Of one element at most")
    elements = serializers.IntegerField(help_text="In all")
    left = serializers.IntegerField(help_text="That are not in the queue yet, or never came to be")
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()


def array_of(job: Job, counts: dict[int, dict[str, int]]) -> dict[str, Any] | None:
    """Return the array that a job is, with its elements ``counts`` by job; None: it is none."""
    if job.elements is None:
        return None
    return {
        "indices": job.spec["array"].partition("%")[0],
        "limit": elements.array_of(job).limit,
        "gpus": max(phase["gang"]["gpus"] for phase in job.spec["phases"]),
        "elements": job.elements,
        **counts[job.pk],
    }


class JobSerializer(serializers.ModelSerializer[Job]):
    project = serializers.CharField(source="project.name", read_only=True)
    phases = PhaseSerializer(
        many=True, read_only=True, help_text="Of an array: the first that are of interest"
    )
    array = serializers.SerializerMethodField(help_text="null: it is none")

    class Meta:
        model = Job
        fields: tuple[str, ...] = (
            "name",
            "project",
            "job_class",
            "priority",
            "state",
            "fallback_state",
            "revision",
            "submitted_by",
            "submitted_at",
            "ended_at",
            "interactive",
            "labels",
            "array",
            "phases",
        )
        read_only_fields = fields

    @extend_schema_field(ArraySerializer(allow_null=True))
    def get_array(self, job: Job) -> dict[str, Any] | None:
        return array_of(job, self.context["counts"])


class DependencySerializer(serializers.ModelSerializer[Dependency]):
    """A need on another job, or on a phase of its own in another way than to succeed."""

    job = serializers.SerializerMethodField(
        help_text="Empty: its own; null: of a project that is not yours"
    )
    text = serializers.SerializerMethodField(help_text="In words, as job prepare to succeed")
    on_phase = serializers.CharField(help_text="Empty: all of it")
    on_element = serializers.IntegerField(
        allow_null=True,
        help_text="Of an array; null: all, or where state is each, that of the same index",
    )
    why = serializers.CharField(help_text="Why it is never met")

    class Meta:
        model = Dependency
        fields = (
            "phase", "job", "on_phase", "on_element", "when", "after_s", "state", "why", "text",
            "decided_at",
        )  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_job(self, row: Dependency) -> str | None:
        visibility: Visibility = self.context["visibility"]
        return row.on if not row.on or visibility.sees(row.on) else None

    def get_text(self, row: Dependency) -> str:
        visibility: Visibility = self.context["visibility"]
        return visibility.text(text_of(row))


class CheckpointFactSerializer(serializers.ModelSerializer[CheckpointFact]):
    """The latest checkpoint that is whole at a site, as it was told last."""

    site = serializers.CharField(source="site.name")

    class Meta:
        model = CheckpointFact
        fields = (
            "site", "run", "lease_epoch", "epoch", "step", "saved_at", "verified_at", "bytes",
            "digest", "lag_checkpoints", "lag_steps", "lag_s", "lag_bytes", "sent_bytes_per_s",
            "told_at",
        )  # fmt: skip
        read_only_fields = fields


class JobDetailSerializer(JobSerializer):
    """A job with all attempts. Command and environment are shown to its project alone."""

    phases = _PhaseDetailSerializer(many=True, read_only=True)
    dependencies = DependencySerializer(many=True, read_only=True)
    spec = serializers.SerializerMethodField(help_text="As it is in force")
    checkpoints = serializers.SerializerMethodField(
        help_text="The latest that is whole at each site, as told; of other sites nobody has told"
    )

    class Meta(JobSerializer.Meta):
        fields = (*JobSerializer.Meta.fields, "dependencies", "spec", "checkpoints")
        read_only_fields = fields

    @extend_schema_field(CheckpointFactSerializer(many=True))
    def get_checkpoints(self, job: Job) -> Any:
        return CheckpointFactSerializer(checkpoints.of_job(job.name), many=True).data

    @extend_schema_field(serializers.DictField())
    def get_spec(self, job: Job) -> dict[str, Any]:
        spec = job.spec if self.context["is_whole"] else without_secrets(job.spec)
        return _with_known_jobs(spec, self.context["visibility"])


def without_secrets(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a specification without the fields that may hold secrets."""
    phases = [
        {name: value for name, value in phase.items() if name not in ("command", "env")}
        for phase in spec.get("phases", [])
    ]
    return {**spec, "phases": phases}


def _with_known_jobs(spec: dict[str, Any], visibility: Visibility) -> dict[str, Any]:
    """Return a specification without the names of jobs that the reader may not see."""

    def known(need: Any) -> Any:
        if not isinstance(need, dict) or "job" not in need:
            return need
        return {**need, "job": visibility.shown([need["job"]])[0]}

    def with_known(part: dict[str, Any]) -> dict[str, Any]:
        needs = {"needs": [known(need) for need in part["needs"]]} if "needs" in part else {}
        return {**part, **needs}

    return {**with_known(spec), "phases": [with_known(each) for each in spec.get("phases", [])]}


class JobEventSerializer(serializers.ModelSerializer[JobEvent]):
    class Meta:
        model = JobEvent
        fields = ("id", "at", "phase", "kind", "text", "data")
        read_only_fields = fields


class LimitsSerializer(serializers.Serializer[Limits]):
    """How much may wait, and how many jobs may be submitted in a second."""

    max_pending_jobs = serializers.IntegerField()
    max_pending_phases = serializers.IntegerField()
    max_phases_per_job = serializers.IntegerField()
    submissions_per_s = serializers.FloatField()


class UserLimitsSerializer(serializers.ModelSerializer[UserLimits]):
    """The limits of one user's submissions. null: as is usual."""

    user = serializers.SlugRelatedField[User](slug_field="username", read_only=True)
    submissions_per_s = serializers.FloatField(
        required=False, allow_null=True, min_value=0.01, max_value=1e4
    )
    limits = serializers.SerializerMethodField(help_text="In force")
    pending_jobs = serializers.SerializerMethodField(help_text="Jobs with phases that wait")
    pending_phases = serializers.SerializerMethodField(help_text="Phases that wait")

    class Meta:
        model = UserLimits
        fields = (
            "user",
            "max_pending_jobs",
            "max_pending_phases",
            "max_phases_per_job",
            "submissions_per_s",
            "limits",
            "pending_jobs",
            "pending_phases",
        )

    @extend_schema_field(LimitsSerializer)
    def get_limits(self, row: UserLimits) -> dict[str, Any]:
        return asdict(limits_of(row, "user"))

    def get_pending_jobs(self, row: UserLimits) -> int:
        return waiting_of(row.user.get_username(), 0)["user"].jobs

    def get_pending_phases(self, row: UserLimits) -> int:
        return waiting_of(row.user.get_username(), 0)["user"].phases


class StandingSerializer(serializers.Serializer[Any]):
    """The share of the fleet that is due to a project, and the share that it has had, of 1."""

    organization = serializers.CharField(help_text="Empty: it stands beside the organizations")
    weight = serializers.FloatField(help_text="Against the others of its organization")
    is_stated = serializers.BooleanField(help_text="By the admission policy; else by the project")
    due = serializers.FloatField(help_text="While all projects want it")
    had = serializers.FloatField(allow_null=True, help_text="What is long ago counting less")
    gpu_quota = serializers.IntegerField(allow_null=True, help_text="GPUs; null: no limit")
    cohort = serializers.CharField(help_text="Lends and borrows what is idle; empty: with nobody")
    may_borrow = serializers.IntegerField(allow_null=True, help_text="GPUs; null: all there are")
    may_lend = serializers.IntegerField(allow_null=True, help_text="GPUs; null: all of its quota")


class UserLimitSerializer(serializers.Serializer[Any]):
    """The limits of a user in a project. null: none."""

    gpus = serializers.IntegerField(allow_null=True, help_text="Held by what runs at once")
    running = serializers.IntegerField(allow_null=True, help_text="Phases that run at once")
    pending_jobs = serializers.IntegerField(allow_null=True)
    pending_phases = serializers.IntegerField(allow_null=True)
    submissions_per_s = serializers.FloatField(allow_null=True)


class UserUseSerializer(serializers.Serializer[Any]):
    gpus = serializers.FloatField(help_text="Slices count by their shares")
    running = serializers.IntegerField()
    pending_jobs = serializers.IntegerField()
    pending_phases = serializers.IntegerField()


class MyUseSerializer(serializers.Serializer[Any]):
    """The limits and the present use of whoever asks."""

    limits = UserLimitSerializer()
    use = UserUseSerializer()


class PerUserSerializer(serializers.Serializer[Any]):
    each = UserLimitSerializer(help_text="Of whom nothing else is stated")
    mine = MyUseSerializer()


class ProjectSerializer(serializers.ModelSerializer[Project]):
    # save(actor=…) makes or changes it, with the entry in the audit log.
    members = serializers.SlugRelatedField(
        slug_field="username",
        queryset=User.objects.filter(is_active=True),
        many=True,
        required=False,
        error_messages={"does_not_exist": "There is no active user {value}."},
    )
    name = serializers.RegexField(r"\A[a-z0-9]([a-z0-9._-]*[a-z0-9])?\Z", max_length=60)
    weight = serializers.FloatField(default=1.0, min_value=1e-6, max_value=1e6)
    power_quota_w = serializers.FloatField(
        required=False, allow_null=True, min_value=0, max_value=1e12, help_text="null: no limit"
    )
    submissions_per_s = serializers.FloatField(
        required=False, allow_null=True, min_value=0.01, max_value=1e4,
        help_text="Jobs submitted in a second; null: as is usual",
    )  # fmt: skip
    limits = serializers.SerializerMethodField(help_text="In force for submissions")
    share = serializers.SerializerMethodField(help_text="In force, by the admission policy")
    per_user = serializers.SerializerMethodField(
        help_text="What each user may have of it at once, by the admission policy"
    )
    gpus_held = serializers.SerializerMethodField(help_text="By what runs now")
    reserved_w = serializers.SerializerMethodField(help_text="Peak of what runs now, W")
    waiting = serializers.SerializerMethodField(help_text="Phases that wait")
    running = serializers.SerializerMethodField(help_text="Phases that run")

    _TAKEN = "There is a project of this name."

    class Meta:
        model = Project
        fields = (
            "name",
            "description",
            "weight",
            "gpu_quota",
            "power_quota_w",
            "max_pending_jobs",
            "max_pending_phases",
            "max_phases_per_job",
            "submissions_per_s",
            "limits",
            "members",
            "share",
            "per_user",
            "used_gpu_s",
            "gpus_held",
            "reserved_w",
            "waiting",
            "running",
        )
        read_only_fields = ("used_gpu_s",)

    def validate_name(self, name: str) -> str:
        """Jobs call their project by its name."""
        if self.instance is not None and name != self.instance.name:
            raise serializers.ValidationError("A project keeps its name.")
        if self.instance is None and Project.objects.filter(name=name).exists():
            raise serializers.ValidationError(self._TAKEN, "unique")
        return name

    def create(self, validated_data: dict[str, Any]) -> Project:
        """Add a project; one that somebody else adds meanwhile is refused as one that is there."""
        try:
            return projects.create(validated_data.pop("actor"), **validated_data)
        except IntegrityError as error:
            if not Project.objects.filter(name=validated_data["name"]).exists():
                raise
            taken = ErrorDetail(self._TAKEN, "unique")
            raise serializers.ValidationError({"name": [taken]}) from error

    def update(self, instance: Project, validated_data: dict[str, Any]) -> Project:
        """Change what was given, and nothing else."""
        validated_data.pop("name", None)
        return projects.update(validated_data.pop("actor"), instance, **validated_data)

    @extend_schema_field(LimitsSerializer)
    def get_limits(self, row: Project) -> dict[str, Any]:
        return asdict(limits_of(row, "project"))

    @extend_schema_field(StandingSerializer)
    def get_share(self, row: Project) -> dict[str, Any]:
        return asdict(self.context["standings"](row.name))

    @extend_schema_field(PerUserSerializer)
    def get_per_user(self, row: Project) -> dict[str, Any]:
        stated = self.context["per_user"](row.name)
        user = self.context["request"].user.get_username()
        return {
            "each": asdict(stated.each),
            "mine": {"limits": asdict(stated.of(user)), "use": asdict(user_use(row.pk, user))},
        }

    def get_gpus_held(self, row: Project) -> float:
        return self._use(row).gpus_held

    def get_reserved_w(self, row: Project) -> float:
        return self._use(row).reserved_w

    def get_waiting(self, row: Project) -> int:
        return self._use(row).waiting

    def get_running(self, row: Project) -> int:
        return self._use(row).running

    def _use(self, row: Project) -> Use:
        found: Use = self.context["uses"](row.pk)
        return found


class SchedulingClassSerializer(serializers.Serializer[Any]):
    """A class in force. ``number`` 0 is the built-in one."""

    name = serializers.CharField()
    number = serializers.IntegerField(help_text="Of its version; 0: built in")
    author = serializers.CharField()
    created_at = serializers.DateTimeField(allow_null=True)
    description = serializers.CharField()
    kind_of_work = serializers.CharField(help_text="Only classes of the same are offered to a job")
    priority = serializers.IntegerField()
    preemptible = serializers.BooleanField()
    preempts = serializers.BooleanField()
    max_running = serializers.IntegerField(allow_null=True)
    max_gpus = serializers.IntegerField(allow_null=True)
    max_walltime_s = serializers.FloatField(allow_null=True)
    defaults = serializers.DictField(help_text="What a phase has that says nothing itself")
    text = serializers.CharField(help_text="YAML, to be changed and sent back")


class ClassVersionSerializer(serializers.ModelSerializer[ClassVersion]):
    class Meta:
        model = ClassVersion
        fields = (*VERSION_FIELDS, "text")
        read_only_fields = fields


class ClassCheckedSerializer(CheckedSerializer):
    name = serializers.CharField(help_text="Empty where it has faults")


class CancelJobSerializer(serializers.Serializer[Any]):
    why = serializers.CharField(max_length=500, default="", allow_blank=True)


class CancelElementsSerializer(CancelJobSerializer):
    elements = serializers.RegexField(
        r"\A[0-9,:-]*\Z", max_length=1000, default="", allow_blank=True,
        help_text="Of an array: these alone, such as 3,7-9; empty: all",
    )  # fmt: skip


class HoldJobSerializer(CancelJobSerializer):
    pass


class JobPrioritySerializer(serializers.Serializer[Any]):
    priority = serializers.IntegerField(min_value=-100, max_value=100)


class JobAmendmentSerializer(serializers.Serializer[Any]):
    """The change of a counterfactual; fields left out stay as they are."""

    phase = serializers.CharField(max_length=60)
    gpus = serializers.IntegerField(required=False, min_value=1)
    slice = serializers.CharField(required=False, max_length=20, help_text="MIG profile")
    lowest_cap_w = serializers.FloatField(required=False, help_text="W per GPU")
    max_slowdown = serializers.FloatField(required=False, help_text="0 to 1")
    walltime_s = serializers.FloatField(required=False)
    checkpoint_interval_s = serializers.FloatField(required=False)
    cross_site = serializers.CharField(
        required=False, max_length=20, help_text="Whether checkpoints are copied to another site"
    )
    sites = serializers.ListField(
        child=serializers.CharField(max_length=200), required=False, max_length=100
    )
    locality = serializers.CharField(required=False, max_length=20, help_text="Required level")
    job_class = serializers.CharField(required=False, max_length=60)
    may_wait_s = serializers.FloatField(required=False, min_value=0)


class ReasonSerializer(serializers.Serializer[Any]):
    """Why a phase does not run. Numbers are in ``unit``."""

    token = serializers.CharField()
    need = serializers.FloatField()
    have = serializers.FloatField()
    short = serializers.FloatField()
    unit = serializers.CharField()
    scope_kind = serializers.CharField(help_text="Empty: nowhere in particular")
    scope_name = serializers.CharField()
    sentence = serializers.CharField()
    evidence = serializers.DictField()


class StepSerializer(serializers.Serializer[Any]):
    check = serializers.CharField()
    passed = serializers.BooleanField()
    sentence = serializers.CharField()


class WhereSerializer(serializers.Serializer[Any]):
    """A placement that would do."""

    gpus = serializers.IntegerField()
    nodes = serializers.IntegerField()
    sites = serializers.ListField(child=serializers.CharField())
    racks = serializers.ListField(child=serializers.CharField())
    power_cap_w = serializers.FloatField(allow_null=True, help_text="W per GPU; null: none")
    total_w = serializers.FloatField()
    slowdown = serializers.FloatField(help_text="Share of its speed that is lost")
    locality = serializers.CharField()
    comm_ratio = serializers.FloatField(allow_null=True)
    comm_model = serializers.CharField()
    warnings = serializers.ListField(child=serializers.CharField())


class PriceSerializer(serializers.Serializer[Any]):
    """The price of a change to the team, against what the phase asks for now."""

    slower = serializers.FloatField(help_text="Share of its speed that it gives up")
    later_s = serializers.FloatField(help_text="It begins so much later than now")
    less_work = serializers.FloatField(help_text="Share of its walltime that it no longer has")
    keeps_work = serializers.BooleanField(help_text="What is done by the end of less is kept")


class BurdenSerializer(serializers.Serializer[Any]):
    """The cost of a change to others: those that wait and that the phase would go ahead of."""

    jobs = serializers.ListField(
        child=serializers.CharField(), help_text="Keys; those of other projects without name"
    )
    own = serializers.IntegerField(help_text="So many of them are of its own project")
    gpus = serializers.IntegerField(help_text="That it holds meanwhile")
    hold_s = serializers.FloatField(help_text="For so long at most")
    put_off_s = serializers.FloatField(
        help_text="What is kept for one of them is free so much later"
    )


class StartToStepSerializer(serializers.Serializer[Any]):
    """How long starts took to their first step: the median."""

    s = serializers.FloatField()
    of = serializers.IntegerField(help_text="Of so many starts")
    is_own = serializers.BooleanField(help_text="Of the phase itself; else of its project")


class FirstStepSerializer(serializers.Serializer[Any]):
    """When a phase that moves makes its first step there, and on what that rests."""

    in_s = serializers.FloatField(allow_null=True, help_text="After its start; null: not known")
    site = serializers.CharField()
    begin = serializers.CharField(
        help_text="checkpoint: from one that counts; unseen: nobody tells from which; anew"
    )
    step = serializers.IntegerField(allow_null=True, help_text="Of that checkpoint")
    left_bytes = serializers.FloatField(
        allow_null=True, help_text="Of it, before it is packed, that are not there; null: not known"
    )
    left_basis = serializers.CharField(help_text="measured, stated or unknown")
    bytes_per_s = serializers.FloatField(allow_null=True, help_text="At which they get there")
    rate_basis = serializers.CharField(help_text="measured, stated or unknown")
    send_s = serializers.FloatField(allow_null=True, help_text="Until they are there")
    start = StartToStepSerializer(allow_null=True, help_text="null: nothing was measured")


class CounterfactualSerializer(serializers.Serializer[Any]):
    """A change under which the same solver lets the phase begin; the cheapest comes first."""

    change = serializers.DictField(
        help_text="To be sent to /amend as it is, with the phase; empty: it need only wait"
    )
    sentence = serializers.CharField()
    begins_at = serializers.DateTimeField(allow_null=True, help_text="null: with the next cycle")
    slowdown = serializers.FloatField()
    price = PriceSerializer()
    costs_others = BurdenSerializer(allow_null=True, help_text="null: nobody")
    placement = WhereSerializer()
    first_step = FirstStepSerializer(
        allow_null=True, help_text="null: it goes to no site that is new to it"
    )


class EstimateSerializer(serializers.Serializer[Any]):
    """In how many seconds it begins: in 8 of 10 cases between the 10th and the 90th percentile."""

    p10_s = serializers.FloatField(allow_null=True)
    p50_s = serializers.FloatField(allow_null=True)
    p90_s = serializers.FloatField(allow_null=True)
    basis = serializers.CharField()


class WayOutSerializer(serializers.Serializer[Any]):
    """A change under which a phase could start on an empty fleet."""

    change = serializers.DictField(help_text="To be sent to /amend as it is, with the phase")
    sentence = serializers.CharField()
    slowdown = serializers.FloatField()
    placement = WhereSerializer()
    first_step = FirstStepSerializer(
        allow_null=True, help_text="null: it goes to no site that is new to it"
    )


class NeverSerializer(serializers.Serializer[Any]):
    """Why a phase cannot start as it is, though the fleet were all its own."""

    reason = ReasonSerializer()
    ways = WayOutSerializer(many=True, help_text="The least slower first; empty: none was found")


class WaitsSerializer(serializers.Serializer[Any]):
    reasons = ReasonSerializer(many=True, help_text="The dominant one first")
    position = serializers.IntegerField(help_text="In the queue, from 1")
    trace = StepSerializer(many=True)
    counterfactuals = CounterfactualSerializer(many=True)
    never = NeverSerializer(allow_null=True, help_text="null: it can start, once there is room")


class ExplainedPhaseSerializer(WaitsSerializer):
    phase = serializers.CharField()
    elements = serializers.IntegerField(
        help_text="Of an array: how many wait for the same, in the queue or behind it; else 1"
    )
    decided_at = serializers.DateTimeField(help_text="Of the cycle whose decision this explains")
    estimate = EstimateSerializer(allow_null=True)


class StaysSerializer(serializers.Serializer[Any]):
    phase = serializers.CharField()
    sentence = serializers.CharField()


class MeasuredSizeSerializer(serializers.Serializer[Any]):
    gpus = serializers.IntegerField()
    per_s = serializers.FloatField(help_text="What it did in a second, in the unit of the phase")
    for_s = serializers.FloatField(help_text="For how long it was measured, s")
    counts = serializers.BooleanField(
        source="is_settled", help_text="Whether that is long enough to decide by"
    )


class ScalingSerializer(serializers.Serializer[Any]):
    """What an elastic phase did at each size that it ran at."""

    phase = serializers.CharField()
    unit = serializers.ChoiceField(choices=[each.value for each in Unit])
    sizes = MeasuredSizeSerializer(many=True)
    sentence = serializers.CharField()


class ExplanationSerializer(serializers.Serializer[Any]):
    """Why a job does not run, phase by phase; phases that do not wait are left out."""

    job = serializers.CharField()
    state = serializers.CharField()
    at = serializers.DateTimeField()
    phases = ExplainedPhaseSerializer(many=True)
    stays = StaysSerializer(
        many=True,
        help_text="Why phases that run with fewer GPUs than they may have get no more just now",
    )
    scaling = ScalingSerializer(
        many=True, help_text="Of elastic phases that are not over: by what they grow and shrink"
    )


class DryRunPhaseSerializer(serializers.Serializer[Any]):
    phase = serializers.CharField()
    starts = serializers.BooleanField(help_text="With the next cycle")
    after = serializers.ListField(child=serializers.CharField(), help_text="Phases before it")
    needs = serializers.ListField(
        child=serializers.CharField(), help_text="What else comes before it, in words"
    )
    decided_at = serializers.DateTimeField(help_text="Of the cycle whose queue it was tried on")
    placement = WhereSerializer(allow_null=True)
    reasons = ReasonSerializer(many=True)
    position = serializers.IntegerField(allow_null=True)
    trace = StepSerializer(many=True)
    counterfactuals = CounterfactualSerializer(many=True)
    never = NeverSerializer(allow_null=True, help_text="null: it can start, once there is room")


class DryRunAnswerSerializer(serializers.Serializer[Any]):
    """The outcome of the next cycle. Nothing was submitted."""

    dry_run = serializers.BooleanField()
    project = serializers.CharField()
    job_class = serializers.CharField()
    at = serializers.DateTimeField()
    phases = DryRunPhaseSerializer(many=True)


class QueuedSerializer(serializers.Serializer[Any]):
    """A phase that waits. Those of other projects have no name."""

    position = serializers.IntegerField()
    job = serializers.CharField(allow_null=True)
    phase = serializers.CharField(allow_null=True)
    project = serializers.CharField(allow_null=True)
    what = serializers.CharField()
    job_class = serializers.CharField()
    gpus = serializers.IntegerField(help_text="Of one element, where it is an array")
    elements = serializers.IntegerField(help_text="Of an array: how many are in this line; else 1")
    queued_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()
    sentence = serializers.CharField()
    estimate = EstimateSerializer(allow_null=True)
    never = serializers.CharField(
        help_text="Why it cannot start though the fleet were all its own; empty: it can"
    )


class QueueCountSerializer(serializers.Serializer[Any]):
    job_class = serializers.CharField()
    reason = serializers.CharField()
    count = serializers.IntegerField()
    oldest_s = serializers.FloatField()


class QueueSerializer(serializers.Serializer[Any]):
    """The queue as the last cycle left it."""

    at = serializers.DateTimeField(allow_null=True, help_text="Of that cycle; null: none yet")
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    counts = QueueCountSerializer(many=True)
    queue = QueuedSerializer(many=True)
