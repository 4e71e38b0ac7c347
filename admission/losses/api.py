"""``/api/v1/losses``: what cost most of a span of time, and the intervention that pays first."""

from __future__ import annotations

import time
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleet
from admission.core.baselines import Metric
from admission.core.losses import Basis, Order
from admission.goodput.api.views import CsvRenderer
from admission.losses import reading
from admission.losses.told import csv_rows, told
from fleet.api.actors import actor_of
from telemetry import spans

__all__ = ["LossesView"]


class CausePartSerializer(serializers.Serializer[dict[str, Any]]):
    """What of a loss one cause of the account took."""

    cause = serializers.CharField()
    gpu_h = serializers.FloatField(help_text="GPU-hours")


class NamedPartSerializer(serializers.Serializer[dict[str, Any]]):
    """What of a loss one site or project had."""

    name = serializers.CharField()
    gpu_h = serializers.FloatField(help_text="GPU-hours")


class UsualSerializer(serializers.Serializer[dict[str, Any]]):
    """The share of time that a loss took in the 28 days before."""

    days = serializers.IntegerField(help_text="Of them, those that have an account")
    p10 = serializers.FloatField()
    p50 = serializers.FloatField()
    p90 = serializers.FloatField()


class ShiftSerializer(serializers.Serializer[dict[str, Any]]):
    """How a value of gangs differed from normal under a loss."""

    metric = serializers.CharField(help_text=", ".join(Metric))
    ratio = serializers.FloatField(help_text="Of its median to that of normal hours")
    hours = serializers.IntegerField(help_text="Of gangs, under it")


class GainSerializer(serializers.Serializer[dict[str, Any]]):
    """What an intervention brings back a week."""

    basis = serializers.ChoiceField(
        [each.value for each in Basis],
        help_text="law: by a law on live numbers; usual: what it takes beyond its usual",
    )
    lever = serializers.CharField()
    gpu_h_week = serializers.FloatField()
    kwh_week = serializers.FloatField(allow_null=True)
    money_week = serializers.FloatField(allow_null=True)
    steps = serializers.ListField(child=serializers.CharField(), help_text="The arithmetic")


class LossSerializer(serializers.Serializer[dict[str, Any]]):
    """What one loss took."""

    loss = serializers.CharField(help_text="A stable token; see the reference of losses")
    reason = serializers.CharField(allow_blank=True, help_text="Why it waited; of waiting alone")
    gpu_h = serializers.FloatField(help_text="GPU-hours; of waiting: that stood against free GPUs")
    share = serializers.FloatField(
        help_text="Of what was held; of silent, drained and waiting: of all GPU time"
    )
    kwh = serializers.FloatField(
        allow_null=True, help_text="Energy of jobs shared out by time; null: not known, or not held"
    )
    money = serializers.FloatField(
        allow_null=True,
        help_text="GPU-hours and energy; of waiting: demand at ENERGY_WAITING_GPU_HOUR",
    )
    waited_gpu_h = serializers.FloatField(
        allow_null=True, help_text="All that was waited for; of waiting alone"
    )
    across_sites_gpu_h = serializers.FloatField(
        allow_null=True, help_text="Of network: of gangs at several sites; null: not known"
    )
    causes = CausePartSerializer(many=True)
    sites = NamedPartSerializer(many=True, help_text="The 5 with the most of it; not of waiting")
    projects = NamedPartSerializer(many=True, help_text="Likewise; of what nobody held none")
    usual = UsualSerializer(allow_null=True, help_text="Null: fewer than 7 days are known")
    degraded = ShiftSerializer(
        many=True, help_text="Of throttling and caps, in the last 24 h of the span"
    )
    lever = serializers.CharField(help_text="What brings the greatest of its causes back")
    most_gpu_h_week = serializers.FloatField(
        allow_null=True, help_text="What it takes a week: the most that can be brought back"
    )
    gain = GainSerializer(allow_null=True, help_text="Null: it is not known")


class NotRankedSerializer(CausePartSerializer):
    """Time of which it is not known whether it was lost."""

    lever = serializers.CharField(help_text="What would tell, or bring it back")


class LossesSerializer(serializers.Serializer[dict[str, Any]]):
    """The report over whole hours."""

    start = serializers.FloatField(help_text="Unix s: the first hour that begins in the span")
    end = serializers.FloatField(help_text="Unix s")
    rank = serializers.ChoiceField([each.value for each in Order])
    currency = serializers.CharField()
    hours = serializers.IntegerField(help_text="Of which there is an account")
    missing_hours = serializers.IntegerField(help_text="That are over, and of which there is none")
    first_missing = serializers.FloatField(allow_null=True, help_text="The first of them, Unix s")
    newest = serializers.FloatField(
        allow_null=True, help_text="The last hour of which there is an account, Unix s"
    )
    gpu_h = serializers.FloatField(help_text="GPU-hours, held or not")
    held_gpu_h = serializers.FloatField()
    price_known = serializers.FloatField(
        allow_null=True, help_text="The share of all time whose price of a GPU-hour is known"
    )
    energy_known = serializers.FloatField(
        allow_null=True, help_text="The share of held time at sites whose energy is known"
    )
    first = LossSerializer(
        allow_null=True, help_text="The loss whose gain is the greatest; null: no gain is known"
    )
    losses = LossSerializer(many=True, help_text="What cost most first")
    not_ranked = NotRankedSerializer(many=True)
    cannot_tell = serializers.ListField(child=serializers.CharField())


class LossesView(APIView):
    """What cost most, of the fleet, a site or a project."""

    permission_classes = (ViewsFleet,)
    renderer_classes = (JSONRenderer, CsvRenderer)

    @extend_schema(
        parameters=[
            OpenApiParameter("range", OpenApiTypes.STR, description="Such as 7d, up to now"),
            OpenApiParameter("from", OpenApiTypes.STR, description="Unix s, or ISO 8601"),
            OpenApiParameter("to", OpenApiTypes.STR, description="Unix s, or ISO 8601; else now"),
            OpenApiParameter(
                "rank", OpenApiTypes.STR, enum=list(Order), default=Order.GPU_H.value
            ),
            *(OpenApiParameter(n, OpenApiTypes.STR, description="Of this one alone")
              for n in reading.ONLY),
            OpenApiParameter("format", OpenApiTypes.STR, enum=["json", "csv"]),
        ],
        responses={
            (200, "application/json"): LossesSerializer,
            (200, "text/csv"): OpenApiTypes.STR,
        },
        operation_id="losses_retrieve",
    )  # fmt: skip
    @dear("the span of time")
    def get(self, request: Request) -> Response:
        """Rank what cost most, each loss beside its usual; of projects that one may see."""
        params, now = request.query_params, time.time()
        check_names(params, ("range", "from", "to", "rank", "format", *reading.ONLY))
        order = params.get("rank", Order.GPU_H)
        if order not in list(Order):
            raise serializers.ValidationError({"rank": f"give one of {', '.join(Order)}"})
        only = {name: params[name] for name in reading.ONLY if params.get(name)}
        try:
            span = spans.parse(params, now, "7d")
            found = told(reading.of_span(actor_of(request), span, only, now), Order(order))
        except spans.ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        if isinstance(request.accepted_renderer, CsvRenderer):
            name = 'attachment; filename="losses.csv"'
            return Response({"rows": csv_rows(found)}, headers={"Content-Disposition": name})
        return Response(LossesSerializer(found).data)
