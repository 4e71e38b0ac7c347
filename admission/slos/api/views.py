"""``/api/v1/slos``: objectives, their status, and their judgments."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parameters import check_names
from accounts.edge.parsers import JSONParser
from accounts.permissions import ViewsFleet, ViewsFleetOrEditsPolicies
from admission.slos import document, measuring
from admission.slos.actions import SLOS
from admission.slos.api.serializers import (
    SloJudgmentSerializer,
    SloSerializer,
    SloVersionSerializer,
    shown,
)
from admission.slos.models import Slo, SloJudgment
from fleet.api.actors import actor_of
from policies.documents.api import DraftSerializer, YamlParser, drafted


class SlosView(APIView):
    permission_classes = (ViewsFleetOrEditsPolicies,)
    parser_classes = (JSONParser, YamlParser)

    @extend_schema(operation_id="slos_list", responses=SloSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the objectives in use, with their status."""
        check_names(request.query_params, ("format",))
        return Response([shown(each) for each in measuring.statuses(timezone.now())])

    @extend_schema(request=DraftSerializer, responses={201: SloVersionSerializer})
    def post(self, request: Request) -> Response:
        """Add a version, as a draft, of the objective that the text names.

        The body is ``{"text": …, "note": …}`` or, as ``application/yaml``, the text itself.
        """
        return drafted(SLOS, SloVersionSerializer, request)


def says(text: str) -> dict[str, Any]:
    """Return the sentence of an objective's text, for its check."""
    return {"sentence": document.read(text).sentence}


class SloView(APIView):
    permission_classes = (ViewsFleet,)

    @extend_schema(responses=SloSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Show an objective, with its status."""
        return Response(_shown(_in_use(name)))


class SloJudgmentFilter(django_filters.FilterSet):  # type: ignore[misc]
    verdict = django_filters.ChoiceFilter(
        choices=[("good", "in time"), ("bad", "too late")], method="filter_verdict"
    )
    job = django_filters.CharFilter("job")
    job_class = django_filters.CharFilter("job_class")
    project = django_filters.CharFilter("project")

    class Meta:
        model = SloJudgment
        fields: list[str] = []

    def filter_verdict(self, rows: Any, name: str, value: str) -> QuerySet[SloJudgment]:
        found: QuerySet[SloJudgment] = rows.filter(is_good=value == "good")
        return found


class SloJudgmentsView(generics.ListAPIView[SloJudgment]):
    """The judgments of an objective, the newest first, of jobs that you may see."""

    queryset = SloJudgment.objects.none()
    serializer_class = SloJudgmentSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = SloJudgmentFilter
    cursor_ordering = ("-at", "-id")

    def get_queryset(self) -> QuerySet[SloJudgment]:
        """Return the judgments of the objective that the path names."""
        slo = _in_use(self.kwargs["name"])
        return SloJudgment.objects.filter(slo=slo).visible_to(actor_of(self.request))


def _in_use(name: str) -> Slo:
    return get_object_or_404(Slo.objects.active(), name=name)


def _shown(slo: Slo) -> dict[str, Any]:
    (status,) = measuring.statuses(timezone.now(), [slo])
    return shown(status)
