"""Rules in JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from policies.rules.models import Rule, RuleEpisode, RuleFault, RuleReplay, RuleVersion

#: A rule's document is refused by itself where it is longer than the reader takes.
_MOST_TEXT = 100_000


class FaultSerializer(serializers.ModelSerializer[RuleFault]):
    class Meta:
        model = RuleFault
        fields = ("status", "message", "count", "names", "first_at", "last_at")
        read_only_fields = fields


class VersionSummarySerializer(serializers.ModelSerializer[RuleVersion]):
    rule = serializers.CharField(source="rule.name", read_only=True)

    class Meta:
        model = RuleVersion
        fields = (
            "rule",
            "number",
            "state",
            "share",
            "note",
            "author",
            "reviewer",
            "created_at",
            "changed_at",
        )
        read_only_fields = fields


class VersionSerializer(serializers.ModelSerializer[RuleVersion]):
    rule = serializers.CharField(source="rule.name", read_only=True)
    faults = FaultSerializer(many=True, read_only=True)

    class Meta:
        model = RuleVersion
        fields = (*VersionSummarySerializer.Meta.fields, "text", "faults")
        read_only_fields = fields


class RuleSerializer(serializers.ModelSerializer[Rule]):
    """A rule with the versions that are evaluated, or drafts, the newest first."""

    versions = serializers.SerializerMethodField()
    firing = serializers.IntegerField(
        read_only=True, help_text="Scopes that it fires on now, shadows left out"
    )

    class Meta:
        model = Rule
        fields = ("name", "created_at", "firing", "versions")
        read_only_fields = fields

    def get_versions(self, rule: Rule) -> list[dict[str, Any]]:
        rows = [row for row in rule.versions.all() if row.state != RuleVersion.States.RETIRED]
        return [dict(VersionSummarySerializer(row).data) for row in rows]


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
    rule = serializers.CharField(source="version.rule.name", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)

    class Meta:
        model = RuleReplay
        fields = (
            "id",
            "rule",
            "version",
            "start_at",
            "end_at",
            "state",
            "by",
            "created_at",
            "finished_at",
            "error",
            "result",
        )
        read_only_fields = fields


class DraftSerializer(serializers.Serializer[Any]):
    """A rule's YAML."""

    text = serializers.CharField(
        max_length=_MOST_TEXT, trim_whitespace=False, help_text="The rule, in YAML"
    )
    note = serializers.CharField(max_length=500, required=False, default="", allow_blank=True)


class PromoteSerializer(serializers.Serializer[Any]):
    to = serializers.ChoiceField(["shadow", "canary", "active"])
    share = serializers.FloatField(
        required=False, default=None, allow_null=True, help_text="Of a canary: 0 to 1 of the racks"
    )


class RetireSerializer(serializers.Serializer[Any]):
    why = serializers.CharField(max_length=500)


class AskForReplaySerializer(serializers.Serializer[Any]):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()


class ProblemSerializer(serializers.Serializer[Any]):
    """A fault in a rule's text. Lines and columns count from 1; 0: none."""

    message = serializers.CharField()
    line = serializers.IntegerField()
    column = serializers.IntegerField()
    field = serializers.CharField()
    hint = serializers.CharField()


class CheckedSerializer(serializers.Serializer[Any]):
    problems = ProblemSerializer(many=True)
    looks_at = serializers.ListField(
        child=serializers.CharField(), help_text="What its conditions look at"
    )


class ChangeSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    old = serializers.JSONField()
    new = serializers.JSONField()


class DiffSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(help_text="A unified diff")
    changes = ChangeSerializer(many=True, help_text="Fields that say something else")


class StandingSerializer(serializers.Serializer[Any]):
    """A scope on which something is under way."""

    version = serializers.IntegerField()
    mode = serializers.CharField()
    scope_kind = serializers.CharField()
    scope_name = serializers.CharField()
    phase = serializers.ChoiceField(["pending", "firing", "clearing"])
    since = serializers.DateTimeField(allow_null=True)
    fired_at = serializers.DateTimeField(allow_null=True)
    clear_since = serializers.DateTimeField(allow_null=True)
