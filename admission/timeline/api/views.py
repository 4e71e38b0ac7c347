"""``/api/v1/jobs/NAME/timeline``: an attempt of a job on one time axis, or two by step."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.cost import dear
from accounts.edge.parameters import check_names, whole_number
from accounts.visibility import Visibility
from admission.jobs.models import Attempt, Job
from admission.timeline import comparing, reading
from fleet import snapshot
from fleet.api.actors import actor_of
from telemetry import series
from telemetry.api.figures import PARAMETERS, RESPONSES, FigureView, RowSerializer, look
from telemetry.api.series import POINTS, ColumnsView
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
        attempt = chosen(job, params.get("phase", ""), params.get("attempt", ""))
        life = reading.lived(attempt, datetime.fromtimestamp(now, UTC))
        try:
            looked = look(params, life, now, "phase", "attempt")
            found = reading.figure(attempt, looked, snapshot.current(), visibility)
        except ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        return self.answer(attempt.key.replace("/", "-"), found)


def chosen(job: Job, phase: str, number: str) -> Attempt:
    """Return an attempt of a job; empty: any phase, the newest. Raises what the API answers."""
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


def other_than(this: Attempt, jobs: QuerySet[Job], key: str) -> Attempt:
    """Return the attempt that another is compared with, of ``jobs`` by its key or a part of it.

    Empty: the one before it of its phase. Raises what the API answers.
    """
    if not key:
        before = Attempt.objects.filter(phase=this.phase_id, number__lt=this.number)
        found = before.select_related("phase__job").order_by("-number").first()
        if found is None:
            said = f"{this.key} is the first of its phase: name a job, or an attempt, to compare."
            raise serializers.ValidationError({"with": said})
        return found
    name, _, rest = key.partition("/")
    phase, _, number = rest.partition("/")
    return chosen(get_object_or_404(jobs, name=name), phase, number)


class DifferenceSerializer(serializers.Serializer[Any]):
    """Something that two runs were given and that differs. Empty: the run had none."""

    kind = serializers.ChoiceField(["place", "image", "inputs", "limits"])
    what = serializers.CharField()
    this = serializers.CharField()
    other = serializers.CharField()


class RunSerializer(serializers.Serializer[Any]):
    """An attempt by the step of its loop."""

    attempt = serializers.CharField()
    why = serializers.CharField(help_text="Why there are no rows; else empty")
    rows = RowSerializer(many=True, help_text="As of a timeline, with a column `step` for `t`")


class ComparedSerializer(serializers.Serializer[Any]):
    this = RunSerializer()
    other = RunSerializer()
    differences = DifferenceSerializer(many=True)


class ComparedView(ColumnsView):
    """Two attempts by step."""

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "with",
                OpenApiTypes.STR,
                description="Job, job/phase or job/phase/number. Without it: the attempt of the "
                "same phase before this one",
            ),
            OpenApiParameter("phase", OpenApiTypes.STR, description="Without it: any"),
            OpenApiParameter("attempt", OpenApiTypes.INT, description="Without it: the newest"),
            POINTS,
        ],
        responses={
            (200, "application/json"): ComparedSerializer,
            (200, "application/msgpack"): ComparedSerializer,
            (200, "text/csv"): OpenApiResponse(
                OpenApiTypes.STR, description="`step`, and the fields of both runs"
            ),
        },
        operation_id="job_timeline_compared",
    )
    @dear("points")
    def get(self, request: Request, name: str) -> Response:
        """Show two attempts on one axis by step, and what they were given that differs.

        Losses and times of steps, power, heat, clocks and what else was read of each, at the step
        that its loop had reached; place, image, inputs and limits that differ.
        """
        jobs = Job.objects.visible_to(actor_of(request))
        params, now = request.query_params.dict(), datetime.now(UTC)
        check_names(params, _COMPARED)
        job = get_object_or_404(jobs, name=name)
        this = chosen(job, params.get("phase", ""), params.get("attempt", ""))
        other = other_than(this, jobs, params.get("with", ""))
        try:
            points = series.points_of(params.get("points", ""))
            found = comparing.compare(this, other, points, now, snapshot.current())
        except ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        if self.is_csv:
            file = f"{this.key}-{other.key}".replace("/", "-")
            headers = self.csv_headers(file, this.dispatched_at.timestamp())
            return Response({"columns": comparing.columns(found)}, headers=headers)
        return Response(comparing.told(found))


_COMPARED = ("with", "phase", "attempt", "points", "format")
