"""Playbooks and runs in JSON."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from policies.documents.api import VERSION_FIELDS, CheckedSerializer
from policies.playbooks.document import Playbook
from policies.playbooks.machine import RunState
from policies.playbooks.models import Directive, PlaybookRun, PlaybookVersion, StepRun
from policies.playbooks.plan import Plan
from policies.playbooks.run_context import preview
from policies.scopes import MOST_NAME, ScopeKind

SCOPE_CHOICES = [(kind.value, kind.value) for kind in ScopeKind]


class PlaybookCheckedSerializer(CheckedSerializer):
    scopes = serializers.ListField(
        child=serializers.ChoiceField(SCOPE_CHOICES), help_text="What a run may be about"
    )


class PlaybookVersionSerializer(serializers.ModelSerializer[PlaybookVersion]):
    """A version, with the descriptive fields of its text."""

    description = serializers.SerializerMethodField()
    constraint = serializers.SerializerMethodField(help_text="What is the real constraint?")
    failure_mode = serializers.SerializerMethodField(help_text="What fails first?")
    switching_cost = serializers.SerializerMethodField(
        help_text="What does it cost to change later?"
    )
    scopes = serializers.SerializerMethodField(help_text="What a run may be about")
    inputs = serializers.SerializerMethodField()

    class Meta:
        model = PlaybookVersion
        fields = (
            *VERSION_FIELDS,
            "description",
            "constraint",
            "failure_mode",
            "switching_cost",
            "scopes",
            "inputs",
            "text",
        )
        read_only_fields = fields

    def get_description(self, row: PlaybookVersion) -> str:
        return _playbook(row).description.strip()

    def get_constraint(self, row: PlaybookVersion) -> str:
        return _playbook(row).constraint.strip()

    def get_failure_mode(self, row: PlaybookVersion) -> str:
        return _playbook(row).failure_mode.strip()

    def get_switching_cost(self, row: PlaybookVersion) -> str:
        return _playbook(row).switching_cost.strip()

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(SCOPE_CHOICES)))
    def get_scopes(self, row: PlaybookVersion) -> list[str]:
        return [kind.value for kind in _playbook(row).scopes]

    @extend_schema_field(serializers.DictField(child=serializers.DictField()))
    def get_inputs(self, row: PlaybookVersion) -> dict[str, Any]:
        return {
            name: {
                "default": each.default,
                "min": each.min,
                "max": each.max,
                "unit": each.unit,
                "help": each.help,
            }
            for name, each in _playbook(row).inputs.items()
        }


def _playbook(row: PlaybookVersion) -> Playbook:
    return row.program.playbook


class RunScopeSerializer(serializers.Serializer[Any]):
    """The scope of a run, by its name in the inventory or the queue."""

    kind = serializers.ChoiceField(SCOPE_CHOICES)
    name = serializers.CharField(max_length=MOST_NAME)


class StepRunSerializer(serializers.ModelSerializer[StepRun]):
    class Meta:
        model = StepRun
        fields = (
            "path",
            "step",
            "kind",
            "state",
            "entered_at",
            "deadline",
            "ended_at",
            "by",
            "note",
            "value",
            "lease_until",
            "escalated",
            "since",
            "restriction",
        )
        read_only_fields = fields


class DirectiveSerializer(serializers.ModelSerializer[Directive]):
    class Meta:
        model = Directive
        fields = (
            "key",
            "kind",
            "scope_kind",
            "scope_name",
            "arguments",
            "state",
            "issued_at",
            "expires_at",
            "note",
            "ledger",
        )
        read_only_fields = fields


class PlaybookRunSerializer(serializers.ModelSerializer[PlaybookRun]):
    version = serializers.IntegerField(source="version.number", read_only=True)
    scope = serializers.SerializerMethodField()
    step = serializers.SerializerMethodField(
        help_text="Id of the step that is next or waits; empty: none"
    )

    class Meta:
        model = PlaybookRun
        fields: tuple[str, ...] = (
            "id",
            "playbook",
            "version",
            "scope",
            "incident_id",
            "state",
            "why",
            "step",
            "inputs",
            "started_at",
            "started_by",
            "deadline",
            "paused_at",
            "ended_at",
            "ended_by",
            "rule",
            "attempt",
            "verifying_since",
            "clear_since",
        )
        read_only_fields = fields

    @extend_schema_field(RunScopeSerializer)
    def get_scope(self, row: PlaybookRun) -> dict[str, str]:
        return {"kind": row.scope_kind, "name": row.scope_name}

    def get_step(self, row: PlaybookRun) -> str:
        steps = row.version.program.steps
        return "" if row.ended_at or row.place >= len(steps) else steps[row.place].id


class PlaybookRunDetailSerializer(PlaybookRunSerializer):
    """A run with all that it has done so far."""

    gives_back = serializers.SerializerMethodField(
        help_text="What an abort or undo would give back now, and what that would break"
    )
    steps = StepRunSerializer(many=True, read_only=True)
    directives = DirectiveSerializer(many=True, read_only=True)

    class Meta(PlaybookRunSerializer.Meta):
        fields = (*PlaybookRunSerializer.Meta.fields, "values", "gives_back", "steps", "directives")
        read_only_fields = fields

    def get_gives_back(self, row: PlaybookRun) -> str:
        return "" if RunState(row.state).is_over else preview(row, timezone.now())


class OnScopeSerializer(serializers.Serializer[Any]):
    scope = RunScopeSerializer()
    inputs = serializers.DictField(
        child=serializers.FloatField(), default=dict, help_text="By name; the rest by default"
    )


class StartRunSerializer(OnScopeSerializer):
    playbook = serializers.CharField(max_length=60)
    incident_id = serializers.IntegerField(
        required=False, default=None, allow_null=True, min_value=1, max_value=2**62
    )


class DryRunSerializer(OnScopeSerializer):
    version = serializers.IntegerField(
        required=False,
        default=None,
        allow_null=True,
        min_value=1,
        max_value=2**31 - 1,
        help_text="Of the playbook; the active one by default",
    )


class StepAnswerSerializer(serializers.Serializer[Any]):
    step = serializers.CharField(max_length=70, help_text="Id of the step")
    note = serializers.CharField(max_length=2000, default="", allow_blank=True)


class StepDecisionSerializer(StepAnswerSerializer):
    version = serializers.IntegerField(
        default=0,
        min_value=0,
        max_value=2**31 - 1,
        help_text="Of its restriction, as you have seen it; 0: whatever it is",
    )


class RunReasonSerializer(serializers.Serializer[Any]):
    why = serializers.CharField(max_length=500)


class PlannedStepSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    id = serializers.CharField()
    kind = serializers.CharField()
    does = serializers.CharField()
    problem = serializers.CharField(help_text="Why it would fail as things stand")
    undo = serializers.CharField()
    otherwise = serializers.CharField(help_text="What follows where it is not done")
    numbers = serializers.DictField(child=serializers.FloatField())
    holds = serializers.BooleanField(
        allow_null=True, help_text="Of a branch, whether its condition holds now; null: unknown"
    )
    is_on_the_way = serializers.BooleanField(help_text="As branches would be taken now")


class PlaybookPlanSerializer(serializers.Serializer[Plan]):
    """The plan of a run. Nothing has been done."""

    playbook = serializers.CharField()
    scope = RunScopeSerializer()
    inputs = serializers.DictField(child=serializers.FloatField())
    steps = PlannedStepSerializer(many=True)
