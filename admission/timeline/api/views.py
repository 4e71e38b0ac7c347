"""``/api/v1/jobs/NAME/timeline``: an attempt of a job on one time axis."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.cost import dear
from accounts.edge.parameters import whole_number
from accounts.visibility import Visibility
from admission.jobs.models import Attempt, Job
from admission.timeline import reading
from fleet import snapshot
from fleet.api.actors import actor_of
from telemetry.api.figures import PARAMETERS, RESPONSES, FigureView, look
from telemetry.spans import ParameterError

_MOST_ATTEMPT = 2**31 - 1


class JobTimelineView(FigureView):
    """The figure of an attempt."""

    @extend_schema(
        parameters=[
            OpenApiParameter("phase", OpenApiTypes.STR, description="Without it: any"),
            OpenApiParameter("attempt", OpenApiTypes.INT, description="Without it: the newest"),
            *PARAMETERS,
        ],
        responses=RESPONSES,
        operation_id="job_timeline_retrieve",
    )
    @dear("the span of time, or points")
    def get(self, request: Request, name: str) -> Response:
        """Show one attempt on one time axis: its own place, while it held it.

        Losses and steps, power, heat, clocks, memory, fans, network and storage, each as the mean
        over its GPUs, links or mounts with the least and the greatest; caps and limits; throttling,
        directives, restrictions, checkpoints, failures and history. `absent` names what nobody
        reported. `format=csv` gives the readings.
        """
        visibility = Visibility(actor_of(request))
        job = get_object_or_404(Job.objects.visible_to(actor_of(request)), name=name)
        params, now = request.query_params.dict(), time.time()
        attempt = _attempt(job, params.get("phase", ""), params.get("attempt", ""))
        life = reading.lived(attempt, datetime.fromtimestamp(now, UTC))
        try:
            looked = look(params, life, now, "phase", "attempt")
            found = reading.figure(attempt, looked, snapshot.current(), visibility)
        except ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        return self.answer(attempt.key.replace("/", "-"), found)


def _attempt(job: Job, phase: str, number: str) -> Attempt:
    found = Attempt.objects.filter(phase__job=job).select_related("phase__job")
    if phase:
        found = found.filter(phase__name=phase)
    if number:
        wanted = whole_number(number, least=1, most=_MOST_ATTEMPT)
        if wanted is None:
            raise serializers.ValidationError(
                {"attempt": "Give the number of an attempt: 1 or more."}
            )
        found = found.filter(number=wanted)
    attempt = found.order_by("-dispatched_at", "-pk").first()
    if attempt is None:
        raise Http404(f"{job.name} has no such attempt: none has begun yet, or it is another one.")
    return attempt
