"""``/api/v1/goodput`` and the like of jobs and restrictions: where the time of GPUs went."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge.csv_text import csv_text
from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleet
from accounts.visibility import Visibility
from admission.goodput import costs, csv_rows, queue, reading, summing
from admission.goodput.api.serializers import (
    GoodputSerializer,
    JobGoodputSerializer,
    RestrictionCostSerializer,
)
from admission.goodput.summing import Asked, By
from admission.goodput.told import told, told_of_fleet
from admission.jobs.models import Job
from fleet.api.actors import actor_of
from policies.restrictions.models import Restriction
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
        check_names(params, ("range", "from", "to", "format"))
        try:
            asked = any(params.get(each) for each in ("range", "from", "to"))
            span = spans.parse(params, now) if asked else reading.lived(job, now)
            found = None if span is None else reading.of_job(job, span, now)
        except spans.ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        waits = queue.of_job(job, timezone.now())
        return Response(JobGoodputSerializer(told(job.name, found, waits)).data)


class RestrictionCostView(APIView):
    """What a restriction cost."""

    permission_classes = (ViewsFleet,)

    @extend_schema(responses=RestrictionCostSerializer, operation_id="restriction_cost_retrieve")
    def get(self, request: Request, pk: int) -> Response:
        """Show the time of GPUs that it took, by whole hours, with its energy and its money."""
        user = actor_of(request)
        row = get_object_or_404(Restriction.objects.seen_by(Visibility(user)), pk=pk)
        told: dict[str, Any] = {"restriction": pk, "cost": None, "not_known": ""}
        try:
            told["cost"] = costs.of_restriction(row, user, timezone.now())
        except costs.NotKnown as why:
            told["not_known"] = str(why)
        told["currency"] = settings.ENERGY_CURRENCY
        return Response(RestrictionCostSerializer(told).data)


class CsvRenderer(BaseRenderer):
    """A row for each sum: its key, and seconds by cause."""

    media_type = "text/csv"
    format = "csv"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> str:
        # What went wrong has no rows: its words then.
        return csv_text(data["rows"] if "rows" in data else data.items())


_PARAMETERS = ("range", "from", "to", "by", "format", *summing.FILTERS)
_ONLY = "Of this one alone"


class GoodputView(APIView):
    """The account of the fleet."""

    permission_classes = (ViewsFleet,)
    renderer_classes = (JSONRenderer, CsvRenderer)

    @extend_schema(
        parameters=[
            OpenApiParameter("range", OpenApiTypes.STR, description="Such as 24h, up to now"),
            OpenApiParameter("from", OpenApiTypes.STR, description="Unix s, or ISO 8601"),
            OpenApiParameter("to", OpenApiTypes.STR, description="Unix s, or ISO 8601; else now"),
            OpenApiParameter("by", OpenApiTypes.STR, enum=list(By), default=By.CAUSE.value),
            *(OpenApiParameter(n, OpenApiTypes.STR, description=_ONLY) for n in summing.FILTERS),
            OpenApiParameter("format", OpenApiTypes.STR, enum=["json", "csv"]),
        ],
        responses={
            (200, "application/json"): GoodputSerializer,
            (200, "text/csv"): OpenApiTypes.STR,
        },
        operation_id="goodput_retrieve",
    )
    @dear("the span of time")
    def get(self, request: Request) -> Response:
        """Show where the time of all GPUs went, by whole hours; of projects that one may see."""
        params, now = request.query_params, time.time()
        check_names(params, _PARAMETERS)
        try:
            by = By(params.get("by", By.CAUSE))
        except ValueError:
            known = ", ".join(By)
            raise serializers.ValidationError({"by": f"give one of {known}"}) from None
        only = {summing.FILTERS[n]: params[n] for n in summing.FILTERS if params.get(n)}
        try:
            span = spans.parse(params, now, "24h")
            asked = Asked.of(actor_of(request), span, by, only)
        except spans.ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        found = summing.add_up(asked, now)
        if isinstance(request.accepted_renderer, CsvRenderer):
            name = f'attachment; filename="goodput-by-{by}.csv"'
            return Response({"rows": csv_rows.rows(found)}, headers={"Content-Disposition": name})
        return Response(GoodputSerializer(told_of_fleet(found)).data)
