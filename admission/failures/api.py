"""``GET /api/v1/failures``: what failed, of what, and how often such things fail."""

from __future__ import annotations

import time
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleet
from accounts.visibility import Visibility
from admission.failures import reading
from admission.failures.grouping import By
from admission.failures.told import told
from fleet.api.actors import actor_of
from telemetry import spans

__all__ = ["DEFAULT_RANGE", "FailuresView"]

DEFAULT_RANGE = "30d"
_NAMES = ("range", "from", "to", "by")


class FailureCausesSerializer(serializers.Serializer[Any]):
    """Failures by cause."""

    hardware = serializers.IntegerField()
    plant = serializers.IntegerField(help_text="Power and cooling")
    network = serializers.IntegerField()
    software = serializers.IntegerField(help_text="Does not count for rates, but of a program")
    unknown = serializers.IntegerField()


class FailureGroupSerializer(serializers.Serializer[Any]):
    """Failures of one component, model, rack, site, or of the fleet. Null: nothing was observed."""

    name = serializers.CharField()
    device = serializers.ChoiceField(["gpu", "node"], help_text="Whose rate it is")
    devices = serializers.IntegerField(help_text="Of the inventory of now")
    device_h = serializers.FloatField(help_text="Hours in which they were observed, added up")
    silent_h = serializers.FloatField(
        help_text="Hours in between in which they were not: their agents were silent"
    )
    failures = serializers.IntegerField(help_text="That count for the rate: in observed time")
    causes = FailureCausesSerializer()
    rate_per_h = serializers.FloatField(allow_null=True, help_text="Of one device")
    rate_lower_per_h = serializers.FloatField(allow_null=True, help_text="95 %, exact (Poisson)")
    rate_upper_per_h = serializers.FloatField(
        allow_null=True, help_text="The same; without a failure a one-sided bound"
    )
    mtbf_h = serializers.FloatField(allow_null=True, help_text="Of one device; null: no failure")
    mtbf_lower_h = serializers.FloatField(allow_null=True)
    every_h = serializers.FloatField(
        allow_null=True, help_text="One of all devices together fails so often"
    )


class FailureEvidenceSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField(help_text="See `precedence`")
    at = serializers.FloatField(help_text="Unix s")
    text = serializers.CharField()


class FailureSerializer(serializers.Serializer[Any]):
    """One failure. Its evidence begins with what says what it was."""

    at = serializers.FloatField(help_text="Unix s")
    cause = serializers.CharField(help_text="hardware, plant, network, software or unknown")
    component = serializers.CharField()
    nodes = serializers.ListField(
        child=serializers.CharField(), help_text="That it may be of: one, where that is known"
    )
    nodes_count = serializers.IntegerField()
    gpu = serializers.IntegerField(allow_null=True, help_text="Index on the node")
    jobs = serializers.ListField(child=serializers.CharField(), help_text="Attempts that it ended")
    evidence = FailureEvidenceSerializer(many=True)
    evidence_count = serializers.IntegerField()
    observed = serializers.BooleanField(
        help_text="Whether its nodes were observed then: else it counts for no rate"
    )


class LemonNodesSerializer(serializers.Serializer[Any]):
    """Nodes that fail more than the rest, at a false discovery rate of 5 %."""

    nodes = serializers.ListField(child=serializers.CharField())
    failures = serializers.IntegerField()
    share = serializers.FloatField(
        allow_null=True, help_text="Of the failures of single nodes; null: there was none"
    )


class FailuresSerializer(serializers.Serializer[Any]):
    start = serializers.FloatField(help_text="Unix s")
    end = serializers.FloatField(help_text="Unix s")
    by = serializers.ChoiceField([each.value for each in By])
    fleet = FailureGroupSerializer()
    groups = FailureGroupSerializer(many=True, help_text="Those that fail most first")
    groups_left_out = serializers.IntegerField()
    lemons = LemonNodesSerializer()
    precedence = serializers.ListField(
        child=serializers.CharField(), help_text="Kinds of evidence: the first one decides"
    )
    unobserved = serializers.IntegerField(
        help_text="Failures recorded outside of observed time: they count for no rate"
    )
    failures = FailureSerializer(many=True, help_text="The newest first")
    failures_left_out = serializers.IntegerField()


class FailuresView(APIView):
    """Failures of the fleet, and their rates."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        operation_id="failures",
        parameters=[
            OpenApiParameter("range", OpenApiTypes.STR, description="Such as 7d; else 30d"),
            OpenApiParameter("from", OpenApiTypes.STR, description="Unix s, or ISO 8601"),
            OpenApiParameter("to", OpenApiTypes.STR, description="Unix s, or ISO 8601; else now"),
            OpenApiParameter("by", OpenApiTypes.STR, enum=[each.value for each in By],
                             description="How rates are grouped; else by component"),
        ],
        responses=FailuresSerializer,
    )  # fmt: skip
    @dear("the span of time")
    def get(self, request: Request) -> Response:
        """Return failures with their causes, and rates with confidence intervals."""
        params, now = request.query_params, time.time()
        check_names(params, _NAMES)
        by = params.get("by", By.COMPONENT.value)
        if by not in [each.value for each in By]:
            known = ", ".join(each.value for each in By)
            raise serializers.ValidationError({"by": f"Give one of {known}."})
        try:
            found = reading.of_fleet(spans.parse(params, now, DEFAULT_RANGE), now)
        except spans.ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        return Response(FailuresSerializer(told(found, By(by), Visibility(actor_of(request)))).data)
