"""``/api/v1/baselines`` and ``/api/v1/jobs/NAME/baselines``: what is usual of jobs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleet
from admission.baselines import reading
from admission.baselines.told import told, told_of_job
from admission.core.baselines import Metric
from admission.goodput.summing import Asked, By
from admission.jobs.models import Job
from fleet.api.actors import actor_of
from telemetry import spans

__all__ = ["BaselinesView", "JobBaselinesView"]

_ONLY = ("project", "phase", "site", "rack")
_BY = (By.SITE, By.RACK)


class SpreadSerializer(serializers.Serializer[dict[str, Any]]):
    """The spread of one value over the hours in which it is known."""

    metric = serializers.CharField(help_text=", ".join(Metric))
    unit = serializers.CharField()
    hours = serializers.IntegerField(help_text="Of gangs, in which it is known")
    p10 = serializers.FloatField()
    p50 = serializers.FloatField()
    p90 = serializers.FloatField()


class BaselineSerializer(serializers.Serializer[dict[str, Any]]):
    """What is usual of one project's phase at one place."""

    project = serializers.CharField()
    phase = serializers.CharField()
    site = serializers.CharField()
    rack = serializers.CharField(allow_blank=True, help_text="Empty by site")
    cause = serializers.CharField(
        allow_blank=True, help_text="What held gangs back in these hours; empty: normal hours"
    )
    metrics = SpreadSerializer(many=True, help_text="Without those that are not known")


class BaselinesSerializer(serializers.Serializer[dict[str, Any]]):
    """Baselines over whole hours."""

    start = serializers.FloatField(help_text="Unix s: the first hour that begins in the span")
    end = serializers.FloatField(help_text="Unix s")
    by = serializers.CharField()
    baselines = BaselineSerializer(many=True)


class OutsideSerializer(SpreadSerializer):
    """A value of a job beyond the 10th or 90th percentile of what is normal."""

    phase = serializers.CharField()
    site = serializers.CharField()
    rack = serializers.CharField()
    hour = serializers.FloatField(help_text="Unix s: its start")
    causes = serializers.ListField(
        child=serializers.CharField(), help_text="What held it back in that hour, as far as known"
    )
    value = serializers.FloatField()
    ratio = serializers.FloatField(allow_null=True, help_text="To the median; null: that is 0")


class JobBaselinesSerializer(serializers.Serializer[dict[str, Any]]):
    """Where a job is outside of what is normal of its like."""

    job = serializers.CharField()
    outside = OutsideSerializer(many=True)


class BaselinesView(APIView):
    """What is usual of jobs, in normal hours and in degraded ones."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[
            OpenApiParameter("range", OpenApiTypes.STR, description="Such as 7d, up to now"),
            OpenApiParameter("from", OpenApiTypes.STR, description="Unix s, or ISO 8601"),
            OpenApiParameter("to", OpenApiTypes.STR, description="Unix s, or ISO 8601; else now"),
            OpenApiParameter("by", OpenApiTypes.STR, enum=list(_BY), default=By.SITE.value),
            *(OpenApiParameter(n, OpenApiTypes.STR, description="Of this one alone")
              for n in _ONLY),
        ],
        responses=BaselinesSerializer,
        operation_id="baselines_retrieve",
    )  # fmt: skip
    @dear("the span of time")
    def get(self, request: Request) -> Response:
        """Show them by project, phase and place; of projects that one may see."""
        params = request.query_params
        check_names(params, ("range", "from", "to", "by", *_ONLY))
        by = params.get("by", By.SITE)
        if by not in _BY:
            raise serializers.ValidationError({"by": f"give one of {', '.join(_BY)}"})
        only = {name: params[name] for name in _ONLY if params.get(name)}
        try:
            span = spans.parse(params, time.time(), "7d")
            # Rows are by rack, so that as long a span is as dear by site.
            asked = Asked.of(actor_of(request), span, By.RACK, only)
        except spans.ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        asked = replace(asked, by=By(by))
        return Response(BaselinesSerializer(told(asked, reading.over(asked))).data)


class JobBaselinesView(APIView):
    """Where a job is beside what is normal."""

    permission_classes = (ViewsFleet,)

    @extend_schema(responses=JobBaselinesSerializer, operation_id="job_baselines_retrieve")
    @dear("it to a job of fewer phases")
    def get(self, request: Request, name: str) -> Response:
        """Show where it is outside of what is normal of its project's hours of the same phase."""
        job = get_object_or_404(Job.objects.visible_to(actor_of(request)), name=name)
        found = told_of_job(job.name, reading.of_job(job, time.time()))
        return Response(JobBaselinesSerializer(found).data)
