"""``GET /api/v1/jobs/NAME/artifacts``: what phases make, and where each artifact is."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import ViewsFleetOrSubmitsJobs
from admission.jobs.artifacts import lines_of
from admission.jobs.models import Job
from fleet.api.actors import actor_of

__all__ = ["JobArtifactsView"]


class ArtifactPlaceSerializer(serializers.Serializer[Any]):
    """An artifact at one site."""

    site = serializers.CharField()
    path = serializers.CharField(help_text="On the machines there; empty: nobody has measured it")
    digest = serializers.CharField()
    recorded_at = serializers.DateTimeField(allow_null=True)
    is_whole = serializers.BooleanField(
        allow_null=True, help_text="It is as it was made; null: nobody has measured it there"
    )


class CellsSerializer(serializers.Serializer[Any]):
    """How many cells of a matrix ended how."""

    passed = serializers.IntegerField()
    failed = serializers.IntegerField()
    error = serializers.IntegerField()
    not_measured = serializers.IntegerField()
    not_run = serializers.IntegerField()


class ArtifactSerializer(serializers.Serializer[Any]):
    """An artifact that a phase is to make. Before it is recorded its digest is empty."""

    phase = serializers.CharField()
    name = serializers.CharField()
    path = serializers.CharField()
    digest = serializers.CharField()
    size_bytes = serializers.IntegerField(allow_null=True)
    cells = CellsSerializer(
        allow_null=True, help_text="Of the result of a matrix: how many cells ended how"
    )
    places = ArtifactPlaceSerializer(many=True)


class JobArtifactsSerializer(serializers.Serializer[Any]):
    """The artifacts of a job, by phase."""

    job = serializers.CharField()
    artifacts = ArtifactSerializer(many=True)


class JobArtifactsView(APIView):
    """The artifacts of one job."""

    permission_classes = (ViewsFleetOrSubmitsJobs,)

    @extend_schema(responses=JobArtifactsSerializer, operation_id="job_artifacts_retrieve")
    def get(self, request: Request, name: str) -> Response:
        """Show what its phases make and hand on, and where each artifact is."""
        job = get_object_or_404(Job.objects.visible_to(actor_of(request)), name=name)
        answer = {"job": job.name, "artifacts": lines_of(job)}
        return Response(JobArtifactsSerializer(answer).data)
