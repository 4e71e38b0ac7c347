"""Directives, fallback and advice in JSON."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import serializers

from admission.core.reasons import ReasonToken
from admission.core.response.advice import Direction
from admission.directives.actions import GIVEN_BY_PEOPLE, LONGEST
from admission.directives.models import Directive, DirectiveEvent
from admission.directives.remaining import Why
from admission.jobs.models import Job

DIRECTIONS = [(each.value, each.value) for each in Direction]
GIVEN = [(kind.value, kind.label) for kind in GIVEN_BY_PEOPLE]


class JobDirectiveEventSerializer(serializers.ModelSerializer[DirectiveEvent]):
    class Meta:
        model = DirectiveEvent
        fields = ("id", "at", "kind", "text", "data")
        read_only_fields = fields


class JobDirectiveSerializer(serializers.ModelSerializer[Directive]):
    """A directive to a running job, and its ledger."""

    job = serializers.CharField(source="attempt.phase.job.name")
    phase = serializers.CharField(source="attempt.phase.name")
    attempt = serializers.IntegerField(source="attempt.number")
    is_in_force = serializers.SerializerMethodField(help_text="Whether it counts now")
    ledger = JobDirectiveEventSerializer(source="events", many=True)

    class Meta:
        model = Directive
        fields = (
            "id", "job", "phase", "attempt", "kind", "value", "owner", "cause", "reason",
            "evidence", "state", "outcome", "note", "is_in_force", "issued_at", "applied_at",
            "expires_at", "ended_at", "ended_by", "ended_why", "undone_at", "ledger",
        )  # fmt: skip
        read_only_fields = fields

    def get_is_in_force(self, row: Directive) -> bool:
        return row.ended_at is None and row.expires_at > timezone.now()


class JobDirectiveGiveSerializer(serializers.Serializer[Any]):
    """A directive that a person gives. One that lasts ends by itself after ``for_s``."""

    kind = serializers.ChoiceField(GIVEN)
    value = serializers.FloatField(
        required=False, allow_null=True, default=None, help_text="Share of the batch, or W per GPU"
    )
    phase = serializers.CharField(max_length=60, required=False, default="")
    reason = serializers.CharField(max_length=300)
    for_s = serializers.FloatField(min_value=1, max_value=LONGEST.total_seconds(), default=3600)


class JobDirectiveWithdrawSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=300)


class JobFallbackSerializer(serializers.Serializer[Any]):
    """Where a job is to go on. The policy goes on from there."""

    state = serializers.ChoiceField(Job.Fallback.choices)
    reason = serializers.CharField(max_length=300)


class StillSerializer(serializers.Serializer[Any]):
    """A job that is still in a place that is being drained."""

    key = serializers.CharField(
        allow_blank=True, help_text="Job and phase; empty: a job of another project"
    )
    project = serializers.CharField(allow_blank=True)
    gpus = serializers.IntegerField(help_text="Of its GPUs those there")
    why = serializers.ChoiceField(
        [(each.value, each.value) for each in Why],
        help_text="`ending`: it was told to end; `not_told`: it may be stopped, and has not been "
        "told yet; `stays`: it did not agree to be stopped",
    )
    told_at = serializers.DateTimeField(allow_null=True)
    expected_end_at = serializers.DateTimeField(allow_null=True)


class RemainingSerializer(serializers.Serializer[Any]):
    """What still runs where a restriction drains a place."""

    is_empty = serializers.BooleanField(help_text="It is known that nothing runs there")
    said = serializers.CharField(help_text="All of it in a sentence")
    jobs = StillSerializer(many=True, help_text="Those with the most GPUs there first")
    unowned = serializers.ListField(
        child=serializers.CharField(),
        help_text="Nodes on which something runs that no job of Headroom holds",
    )
    silent = serializers.ListField(
        child=serializers.CharField(), help_text="Nodes that nobody hears of"
    )


class AdviceReasonSerializer(serializers.Serializer[Any]):
    token = serializers.ChoiceField([(each.value, each.value) for each in ReasonToken])
    need = serializers.FloatField()
    have = serializers.FloatField()
    unit = serializers.CharField()
    sentence = serializers.CharField()


class AdviceOptionSerializer(serializers.Serializer[Any]):
    """One way to scale, its effect, and why or why not."""

    direction = serializers.ChoiceField(DIRECTIONS)
    is_possible = serializers.BooleanField()
    throughput = serializers.FloatField(help_text="Work done in a second; 1.0 is as now")
    gpus = serializers.IntegerField()
    power_cap_w = serializers.FloatField(allow_null=True, help_text="Per GPU; null: none")
    batch_scale = serializers.FloatField()
    added_w = serializers.FloatField()
    margin = serializers.FloatField(
        allow_null=True, help_text="Share left of the tightest budget after it; null: not known"
    )
    comm_ratio = serializers.FloatField(allow_null=True)
    comm_model = serializers.CharField()
    sentence = serializers.CharField()
    reasons = AdviceReasonSerializer(many=True)


class AdviceSerializer(serializers.Serializer[Any]):
    """The advice for one running phase, and all options that were weighed."""

    key = serializers.CharField(help_text="job/phase")
    best = serializers.ChoiceField(DIRECTIONS)
    sentence = serializers.CharField()
    options = AdviceOptionSerializer(many=True)


class ClassAdviceSerializer(serializers.Serializer[Any]):
    """How many running phases of a class get which advice, and each of them."""

    counts = serializers.DictField(child=serializers.IntegerField())
    advice = AdviceSerializer(many=True)
