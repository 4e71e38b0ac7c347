"""``/api/v1/jobs/NAME/goodput``: where the time of a job's GPUs went."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import ViewsFleet
from admission.core.account import LEVERS, Cause
from admission.goodput import reading
from admission.goodput.api.serializers import JobGoodputSerializer
from admission.goodput.reading import JobAccount
from admission.jobs.models import Job
from fleet.api.actors import actor_of
from telemetry import spans

#: What only a loop tells.
_ONLY_TOLD = (
    Cause.PRODUCTIVE,
    Cause.REPEATED,
    Cause.OUTSIDE_STEPS,
    Cause.DATA_WAIT,
    Cause.SYNCHRONIZATION,
)


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
        return Response(JobGoodputSerializer(_answer(job.name, found)).data)


def _answer(job: str, found: JobAccount | None) -> dict[str, Any]:
    causes = found.causes if found else {}
    attempts = found.attempts if found else ()
    held_us = sum(causes.values())
    told = any(each.told for each in attempts)
    silent = any(not each.told and each.held_us for each in attempts)
    return {
        "job": job,
        "start": found.span.start if found else None,
        "end": found.span.end if found else None,
        "gpu_s": held_us / 1e6,
        "goodput": causes[Cause.PRODUCTIVE] / held_us if told and held_us else None,
        "cannot_tell": [*_ONLY_TOLD] if silent else [],
        "causes": _causes(causes),
        "attempts": [
            {
                "phase": each.phase, "attempt": each.number, "gpus": each.gpus,
                "told": each.told, "gpu_s": each.held_us / 1e6, "causes": _causes(each.causes),
            }
            for each in attempts
        ],
    }  # fmt: skip


def _causes(causes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return those that took any time, the greatest first."""
    held_us = sum(causes.values())
    return [
        {"cause": cause, "gpu_s": us / 1e6, "share": us / held_us, "lever": LEVERS[cause]}
        for cause, us in sorted(causes.items(), key=lambda each: -each[1])
        if us
    ]
