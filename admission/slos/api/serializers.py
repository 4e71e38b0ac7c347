"""Objectives in JSON. Values that no event tells are null."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from accounts.edge.numbers import NumberField
from admission.slos.budget import SPANS_S, State
from admission.slos.document import Measure
from admission.slos.measuring import SloStatus
from admission.slos.models import Slo, SloJudgment
from headroom.numbers import plain
from policies.documents.api import VERSION_FIELDS, CheckedSerializer

STATES = [(each.value, each.value) for each in State]
MEASURES = [(each.value, each.value) for each in Measure]


class SloCheckedSerializer(CheckedSerializer):
    sentence = serializers.CharField(help_text="What it promises; empty where it has faults")


class SloVersionSerializer(serializers.ModelSerializer[Slo]):
    class Meta:
        model = Slo
        fields = (*VERSION_FIELDS, "judged_at", "text")
        read_only_fields = fields


class SloBurnRatesSerializer(serializers.Serializer[Any]):
    """By span; 1 uses up the budget in the objective's window."""

    def get_fields(self) -> dict[str, Any]:
        """Return a field for each span."""
        return {name: serializers.FloatField(allow_null=True) for name in SPANS_S}


class SloSerializer(serializers.Serializer[Any]):
    """An objective and its status."""

    name = serializers.CharField()
    sentence = serializers.CharField(help_text="What it promises")
    description = serializers.CharField()
    state = serializers.ChoiceField(STATES)
    measure = serializers.ChoiceField(MEASURES)
    target = serializers.FloatField(help_text="Share of events that is to be good")
    within_s = serializers.FloatField(
        allow_null=True, help_text="null: one checkpoint interval of each"
    )
    when = serializers.CharField(help_text="Time counts only while it holds; empty: always")
    window_s = serializers.FloatField()
    events = serializers.IntegerField(help_text="Judged in the window")
    bad = serializers.IntegerField()
    good_share = serializers.FloatField(allow_null=True)
    budget_left = serializers.FloatField(
        allow_null=True, help_text="Share of the error budget; below 0: overdrawn"
    )
    burn_rates = SloBurnRatesSerializer()
    lasts_s = NumberField(help_text="Until the budget is used up at the rate of the last six hours")
    version = serializers.IntegerField()
    author = serializers.CharField()
    changed_at = serializers.DateTimeField()
    judged_at = serializers.DateTimeField(allow_null=True, help_text="Up to when events are judged")
    text = serializers.CharField(help_text="YAML")


class SloJudgmentSerializer(serializers.ModelSerializer[SloJudgment]):
    class Meta:
        model = SloJudgment
        fields = (
            "event",
            "is_good",
            "at",
            "clock_s",
            "limit_s",
            "job",
            "phase",
            "job_class",
            "project",
        )
        read_only_fields = fields


def shown(status: SloStatus) -> dict[str, Any]:
    """Return a status as :class:`SloSerializer` has it."""
    slo, objective, health = status.slo, status.objective, status.health
    body = {
        "name": slo.name,
        "sentence": objective.sentence,
        "description": objective.description,
        "state": health.state,
        "measure": objective.measure,
        "target": objective.target,
        "within_s": objective.within_s,
        "when": objective.when.expression.strip() if objective.when else "",
        "window_s": objective.window_s,
        "events": health.tally.events,
        "bad": health.tally.bad,
        "good_share": plain(health.good_share),
        "budget_left": plain(health.budget_left),
        "burn_rates": {name: plain(rate) for name, rate in health.burn_rates.items()},
        "lasts_s": health.lasts_s,
        "version": slo.number,
        "author": slo.author,
        "changed_at": slo.changed_at,
        "judged_at": slo.judged_at,
        "text": slo.text,
    }
    return dict(SloSerializer(body).data)
