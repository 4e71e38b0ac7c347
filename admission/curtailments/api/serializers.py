"""Curtailments in JSON."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from accounts.edge.parameters import MomentField
from admission.core.curtailment import Ask, BadAsk
from admission.curtailments.actions import Plan, Request
from admission.curtailments.models import Curtailment
from admission.curtailments.seeing import seen
from policies.restrictions.kinds import LONGEST

_LONGEST_S = LONGEST.total_seconds()


class CurtailmentSerializer(serializers.ModelSerializer[Curtailment]):
    state = serializers.SerializerMethodField(
        help_text="announced, active, over, canceled, or the verdict: held, late, missed, unproven"
    )
    estimate = serializers.SerializerMethodField(
        help_text="What it would cost, as worked out beforehand; jobs as far as you may see them"
    )

    class Meta:
        model = Curtailment
        fields = (
            "id", "site", "asked", "source", "reason", "state", "baseline_w", "baseline_s",
            "target_w", "announced_at", "starts_at", "ends_at", "restriction", "estimate",
            "canceled_at", "canceled_by", "judged_at", "result", "program_id", "event_id",
            "interval_id", "reported_at",
        )  # fmt: skip
        read_only_fields = fields

    def get_state(self, row: Curtailment) -> str:
        return row.state_at(timezone.now())

    def get_estimate(self, row: Curtailment) -> dict[str, Any]:
        return seen(row.estimate, self.context["visibility"])


class CurtailmentAskSerializer(serializers.Serializer[Any]):
    """How much less a site is to draw (one of ``by_w``, ``to_w``, ``by_share``), and when."""

    site = serializers.CharField(max_length=200)
    by_w = serializers.FloatField(required=False, allow_null=True, default=None)
    to_w = serializers.FloatField(required=False, allow_null=True, default=None)
    by_share = serializers.FloatField(required=False, allow_null=True, default=None)
    starts_at = MomentField(required=False, allow_null=True, default=None)
    in_s = serializers.FloatField(
        required=False, allow_null=True, default=None, min_value=0.0, max_value=_LONGEST_S,
        help_text="In place of starts_at: so many seconds from now",
    )  # fmt: skip
    for_s = serializers.FloatField(
        min_value=1.0, max_value=_LONGEST_S, help_text="How long it lasts, s"
    )
    reason = serializers.CharField(max_length=400)
    even_if_short = serializers.BooleanField(
        default=False, help_text="Also where jobs cannot give enough: as far as they can"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if (attrs["starts_at"] is None) == (attrs["in_s"] is None):
            raise serializers.ValidationError({"starts_at": "Give starts_at or in_s."})
        try:
            attrs["ask"] = Ask(by_w=attrs["by_w"], to_w=attrs["to_w"], by_share=attrs["by_share"])
        except BadAsk as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        return attrs

    def as_request(self, now: datetime) -> Request:
        """Return what is asked. The body has to be valid."""
        given = self.validated_data
        in_s = given["in_s"]
        starts_at = given["starts_at"] if in_s is None else now + timedelta(seconds=in_s)
        ends_at = starts_at + timedelta(seconds=given["for_s"])
        return Request(given["site"], given["ask"], starts_at, ends_at, given["reason"])


class CurtailmentPlanSerializer(serializers.Serializer[Any]):
    """The answer beforehand. Nothing is changed by it."""

    site = serializers.CharField()
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    baseline_w = serializers.FloatField(allow_null=True)
    baseline_s = serializers.FloatField()
    target_w = serializers.FloatField()
    estimate = serializers.DictField()


class CurtailmentCancelSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=500)


def planned(found: Plan, visibility: Any) -> dict[str, Any]:
    """Return a plan for :class:`CurtailmentPlanSerializer`."""
    baseline = found.baseline
    return {
        "site": found.request.site,
        "starts_at": found.request.starts_at,
        "ends_at": found.request.ends_at,
        "baseline_w": None if baseline is None else baseline.watts,
        "baseline_s": 0.0 if baseline is None else baseline.seconds,
        "target_w": found.target_w,
        "estimate": seen(found.estimate.as_data(), visibility),
    }
