"""``/api/v1/jobs/NAME/goodput``: where the time of a job's GPUs went."""

from __future__ import annotations

import time

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.permissions import ViewsFleet
from admission.goodput import reading
from admission.goodput.api.serializers import JobGoodputSerializer
from admission.goodput.told import told
from admission.jobs.models import Job
from fleet.api.actors import actor_of
from telemetry import spans


class JobGoodputView(APIView):
    """The account of a job."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[
            OpenApiParameter("range", OpenApiTypes.STR, description="Such as 6h, up to now; else "
                             "all the time in which it held GPUs"),
            OpenApiParameter("from", OpenApiTypes.STR, description="Unix s, or ISO 8601"),
            OpenApiParameter("to", OpenApiTypes.STR, description="Unix s, or ISO 8601; else now"),
        ],
        responses=JobGoodputSerializer,
        operation_id="job_goodput_retrieve",
    )  # fmt: skip
    @dear("the span of time")
    def get(self, request: Request, name: str) -> Response:
        """Show where the time of its GPUs went, by cause and attempt."""
        job = get_object_or_404(Job.objects.visible_to(actor_of(request)), name=name)
        params, now = request.query_params, time.time()
        try:
            asked = any(params.get(each) for each in ("range", "from", "to"))
            span = spans.parse(params, now) if asked else reading.lived(job, now)
            found = None if span is None else reading.of_job(job, span, now)
        except spans.ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        return Response(JobGoodputSerializer(told(job.name, found)).data)
