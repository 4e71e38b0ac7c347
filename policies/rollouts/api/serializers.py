"""Rollouts in JSON. Numbers that are not known are null."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from accounts.edge.numbers import NumberField
from policies.documents.api import VERSION_FIELDS, CheckedSerializer
from policies.rollouts.judging import GuardState, Verdict
from policies.rollouts.models import RolloutEvent, RolloutRun, RolloutVersion

VERDICTS = [(each.value, each.value) for each in Verdict]
GUARD_STATES = [(each.value, each.value) for each in GuardState]


class RolloutCheckedSerializer(CheckedSerializer):
    sentence = serializers.CharField(help_text="What it changes; empty where it has faults")


class RolloutVersionSerializer(serializers.ModelSerializer[RolloutVersion]):
    class Meta:
        model = RolloutVersion
        fields = (*VERSION_FIELDS, "text")
        read_only_fields = fields


class RolloutRunSerializer(serializers.ModelSerializer[RolloutRun]):
    version = serializers.IntegerField(source="version.number", read_only=True)

    class Meta:
        model = RolloutRun
        fields = (
            "id", "name", "version", "state", "step", "since", "soaking_since", "why", "by",
            "started_at", "ended_at",
        )  # fmt: skip
        read_only_fields = fields


class RolloutEventSerializer(serializers.ModelSerializer[RolloutEvent]):
    class Meta:
        model = RolloutEvent
        fields = ("at", "state", "step", "by", "text")
        read_only_fields = fields


class FindingSerializer(serializers.Serializer[Any]):
    """What the evidence says of one guard. Differences are in its unit, more being worse."""

    metric = serializers.CharField()
    unit = serializers.CharField()
    matters = serializers.FloatField(allow_null=True, help_text="null: it need not be harmless")
    state = serializers.ChoiceField(GUARD_STATES)
    blocks = serializers.IntegerField(help_text="Of evidence so far")
    difference = NumberField()
    lower = NumberField()
    upper = NumberField()
    evidence = NumberField(help_text="Of counts: the likelihood ratio against equal rates")
    needed = NumberField(help_text="Of which so much is enough")


class OtherWorkSerializer(serializers.Serializer[Any]):
    """Jobs of each arm that did other work than before the change, and tell less meanwhile."""

    changed = serializers.IntegerField()
    control = serializers.IntegerField()


class JudgementSerializer(serializers.Serializer[Any]):
    verdict = serializers.ChoiceField(VERDICTS)
    why = serializers.CharField()
    covered = serializers.FloatField(help_text="Share of the changed GPUs that it speaks for")
    blocks = serializers.IntegerField()
    other_work = OtherWorkSerializer()
    at = serializers.DateTimeField()
    findings = FindingSerializer(many=True)


class DriftSerializer(serializers.Serializer[Any]):
    """A node that does not report what it is to have."""

    rack = serializers.CharField()
    node = serializers.CharField()
    wanted = serializers.CharField()
    found = serializers.CharField(help_text="Empty: it reports nothing")


class RolloutSerializer(serializers.Serializer[Any]):
    """A rollout with its arms and its evidence."""

    run = RolloutRunSerializer()
    sentence = serializers.CharField()
    next = serializers.CharField(help_text="What comes next, and when")
    racks = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="Those that each step has changed",
    )
    control = serializers.ListField(child=serializers.CharField())
    imbalance = serializers.DictField(
        child=serializers.FloatField(),
        help_text="Differences of the arms, in standard deviations of all racks",
    )
    judged = JudgementSerializer(allow_null=True)
    drift = DriftSerializer(many=True)
    may = serializers.ListField(child=serializers.CharField(), help_text="What a person may do now")
    events = RolloutEventSerializer(many=True)


class RolloutReasonSerializer(serializers.Serializer[Any]):
    why = serializers.CharField(max_length=500)
