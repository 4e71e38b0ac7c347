"""``GET /api/v1/jobs/NAME/diagnosis``: what binds a job, and what to move."""

from __future__ import annotations

import time
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.permissions import ViewsFleet
from accounts.visibility import Visibility
from admission.diagnosis import reading
from admission.diagnosis.told import told
from admission.jobs.models import Job
from fleet.api.actors import actor_of

__all__ = ["JobDiagnosisView"]

_Seconds = serializers.FloatField


class ConstraintSerializer(serializers.Serializer[Any]):
    """What binds: a stable token, a sentence, what to move, and the arithmetic."""

    constraint = serializers.CharField()
    verdict = serializers.CharField()
    lever = serializers.CharField()
    steps = serializers.ListField(child=serializers.CharField())


class FailureForecastSerializer(serializers.Serializer[Any]):
    """The failures that a phase meets until its walltime is up."""

    gpus = serializers.IntegerField()
    time_s = _Seconds()
    expected = serializers.FloatField()
    expected_lower = serializers.FloatField(help_text="At the bounds of the rate, 95 %")
    expected_upper = serializers.FloatField()
    probability = serializers.FloatField(help_text="Of at least one")
    probability_upper = serializers.FloatField()


class CheckpointAdviceSerializer(serializers.Serializer[Any]):
    """How long to train between saves. ``best_s`` and MTBF are null where nothing has failed."""

    interval_s = _Seconds(help_text="Between two saves now")
    best_s = _Seconds(allow_null=True)
    best_lower_s = _Seconds(help_text="At the bounds of the rate")
    best_upper_s = _Seconds(allow_null=True)
    mtbf_s = _Seconds(allow_null=True, help_text="Of all its GPUs together")
    mtbf_lower_s = _Seconds()
    save_s = _Seconds(help_text="What a save takes at most: evaluation is in it")
    ettr = serializers.FloatField(help_text="Share of wall time that is useful now")
    ettr_best = serializers.FloatField()
    gain = serializers.FloatField(help_text="In that share; without a failure the least")
    change = serializers.CharField(help_text="`longer`, `shorter`, or empty: leave it")


class OutlookSerializer(serializers.Serializer[Any]):
    """What failures mean for a phase that is not over."""

    phase = serializers.CharField()
    gpus = serializers.IntegerField()
    basis = serializers.CharField(allow_null=True, help_text="Whose failures of the last 30 days")
    failures_seen = serializers.IntegerField(allow_null=True)
    forecast = FailureForecastSerializer(allow_null=True)
    checkpoint = CheckpointAdviceSerializer(allow_null=True)
    restart_s = _Seconds(allow_null=True, help_text="From a start to its first step")
    sentences = serializers.ListField(child=serializers.CharField())
    missing = serializers.ListField(child=serializers.CharField())


class StragglingRankSerializer(serializers.Serializer[Any]):
    """A rank whose steps take longer than those of the others, nearly all the time."""

    rank = serializers.IntegerField()
    slower = serializers.FloatField(help_text="Its steps over the median rank's, without waiting")
    lost_share = serializers.FloatField(help_text="Of the others' time, in which they wait for it")
    since = serializers.FloatField(help_text="Unix s")
    until = serializers.FloatField(help_text="Unix s")
    windows = serializers.IntegerField(help_text="Of 30 reports of a machine each, that show it")
    of = serializers.IntegerField(help_text="Windows that were looked at")
    is_last = serializers.BooleanField(help_text="Whether the last of them does")


class StragglingGpuSerializer(serializers.Serializer[Any]):
    """A GPU that gives less clock than its peers under the same load."""

    name = serializers.CharField()
    own_mhz = serializers.FloatField()
    peers_mhz = serializers.FloatField(help_text="Their median")
    among = serializers.CharField(help_text="Who they are: of its rack, job, node …")


class StragglersSerializer(serializers.Serializer[Any]):
    """Who holds back a gang that runs, or the one that ran last; nobody, where both are empty."""

    attempt = serializers.CharField()
    looked_s = _Seconds(help_text="How much of its time was looked at")
    ranks = StragglingRankSerializer(many=True, help_text="Who costs most comes first")
    gpus = StragglingGpuSerializer(many=True)


class JobDiagnosisSerializer(serializers.Serializer[Any]):
    job = serializers.CharField()
    found = ConstraintSerializer(many=True, help_text="What binds comes first")
    evidence = serializers.ListField(child=serializers.CharField())
    cannot_tell = serializers.ListField(child=serializers.CharField())
    outlook = OutlookSerializer(many=True)
    stragglers = StragglersSerializer(many=True)


class JobDiagnosisView(APIView):
    """The diagnosis of a job."""

    permission_classes = (ViewsFleet,)

    @extend_schema(responses=JobDiagnosisSerializer, operation_id="job_diagnosis_retrieve")
    @dear("it to a job that held fewer GPUs")
    def get(self, request: Request, name: str) -> Response:
        """Show why it waits, ended or is slow, what would help, and what cannot be told."""
        user = actor_of(request)
        job = get_object_or_404(Job.objects.visible_to(user), name=name)
        found = reading.of_job(job, Visibility(user), time.time())
        return Response(JobDiagnosisSerializer(told(found)).data)
