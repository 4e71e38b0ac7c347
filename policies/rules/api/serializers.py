"""Rules in JSON."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from policies.documents.api import (
    VERSION_FIELDS,
    CheckedSerializer,
    VersionSummarySerializer,
    summary_of,
)
from policies.rules.models import RuleEpisode, RuleFault, RuleReplay, RuleVersion


class FaultSerializer(serializers.ModelSerializer[RuleFault]):
    class Meta:
        model = RuleFault
        fields = ("status", "message", "count", "names", "first_at", "last_at")
        read_only_fields = fields


class RuleVersionSerializer(serializers.ModelSerializer[RuleVersion]):
    faults = FaultSerializer(many=True, read_only=True)

    class Meta:
        model = RuleVersion
        fields = (*VERSION_FIELDS, "text", "faults")
        read_only_fields = fields


class RuleSerializer(serializers.ModelSerializer[RuleVersion]):
    """A rule with the versions that are not retired, the newest first."""

    created_at = serializers.DateTimeField(source="began_at", help_text="Of its first version")
    versions = serializers.SerializerMethodField()
    firing = serializers.IntegerField(
        read_only=True, help_text="Scopes that it fires on now, shadows left out"
    )

    class Meta:
        model = RuleVersion
        fields = ("name", "created_at", "firing", "versions")
        read_only_fields = fields

    @extend_schema_field(VersionSummarySerializer(many=True))
    def get_versions(self, rule: RuleVersion) -> list[dict[str, Any]]:
        rows: list[RuleVersion] = self.context["versions"].get(rule.name, [])
        return [summary_of(row) for row in rows]


class EpisodeSerializer(serializers.ModelSerializer[RuleEpisode]):
    version = serializers.IntegerField(source="version.number", read_only=True)

    class Meta:
        model = RuleEpisode
        fields = (
            "id",
            "rule",
            "version",
            "mode",
            "scope_kind",
            "scope_name",
            "severity",
            "since",
            "fired_at",
            "cleared_at",
            "summary",
            "values",
            "labels",
            "restricts",
            "playbook",
            "channels",
        )
        read_only_fields = fields


class ReplaySerializer(serializers.ModelSerializer[RuleReplay]):
    rule = serializers.CharField(source="version.name", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    whole_s = serializers.FloatField(read_only=True, help_text="The length of its span, s")

    class Meta:
        model = RuleReplay
        fields = (
            "id",
            "rule",
            "version",
            "start_at",
            "end_at",
            "state",
            "done_s",
            "whole_s",
            "by",
            "created_at",
            "finished_at",
            "error",
            "result",
        )
        read_only_fields = fields


class AskForReplaySerializer(serializers.Serializer[Any]):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()


class RuleCheckedSerializer(CheckedSerializer):
    looks_at = serializers.ListField(
        child=serializers.CharField(), help_text="What its conditions look at"
    )


class ActiveScopeSerializer(serializers.Serializer[Any]):
    """A scope on which something is under way."""

    version = serializers.IntegerField()
    mode = serializers.CharField()
    scope_kind = serializers.CharField()
    scope_name = serializers.CharField()
    phase = serializers.ChoiceField(["pending", "firing", "clearing"])
    since = serializers.DateTimeField(allow_null=True)
    fired_at = serializers.DateTimeField(allow_null=True)
    clear_since = serializers.DateTimeField(allow_null=True)
