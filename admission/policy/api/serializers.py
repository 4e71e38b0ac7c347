"""Admission policies, and the decisions of shadows, in JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from admission.policy.models import AdmissionPolicyVersion, ShadowDecision
from policies.documents.api import VERSION_FIELDS, CheckedSerializer

__all__ = [
    "AdmissionPolicyCheckedSerializer",
    "AdmissionPolicySerializer",
    "AdmissionPolicyVersionSerializer",
    "ShadowDecisionSerializer",
    "ShadowSerializer",
]


class AdmissionPolicyVersionSerializer(serializers.ModelSerializer[AdmissionPolicyVersion]):
    class Meta:
        model = AdmissionPolicyVersion
        fields = (*VERSION_FIELDS, "text")
        read_only_fields = fields


class AdmissionPolicyCheckedSerializer(CheckedSerializer):
    name = serializers.CharField(help_text="Empty where it has faults")


class AdmissionPolicySerializer(serializers.Serializer[Any]):
    """The policy in force."""

    name = serializers.CharField()
    number = serializers.IntegerField(help_text="0: as Headroom brings it")
    text = serializers.CharField(help_text="YAML, to be changed and sent back")


class ShadowDecisionSerializer(serializers.ModelSerializer[ShadowDecision]):
    """A shadow's decision on one phase that differs from the real one."""

    job = serializers.CharField(source="phase.job.name", read_only=True)
    phase = serializers.CharField(source="phase.name", read_only=True)

    class Meta:
        model = ShadowDecision
        fields = (
            "job", "phase", "kind", "decided", "otherwise", "first_at", "last_at", "cycles",
        )  # fmt: skip
        read_only_fields = fields


class ShadowSerializer(serializers.Serializer[Any]):
    """The decisions of a shadow over the last day, and how many of them differ."""

    since = serializers.DateTimeField(allow_null=True, help_text="null: it was not asked yet")
    asked_at = serializers.DateTimeField(allow_null=True)
    cycles = serializers.IntegerField()
    jobs = serializers.IntegerField(help_text="That waited or ran since then, of the last day")
    jobs_otherwise = serializers.IntegerField(help_text="Of these, those decided otherwise")
    reconstructed_until = serializers.DateTimeField(
        allow_null=True,
        help_text="What is said of the time before is reconstructed from records; null: not yet",
    )
    reconstructed_step_s = serializers.FloatField(allow_null=True)
    not_recorded = serializers.ListField(
        child=serializers.CharField(), help_text="What the records lack, in words"
    )
    decisions = ShadowDecisionSerializer(
        many=True, help_text="Of jobs that you may see, the newest 2,000"
    )
