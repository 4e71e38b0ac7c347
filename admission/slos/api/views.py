"""``/api/v1/slos``: objectives, how they stand, and what was judged by them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import django_filters
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import generics, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parsers import JSONParser
from accounts.permissions import ViewsFleet, ViewsFleetOrEditsPolicies
from admission.slos import actions, document, measuring
from admission.slos.api.serializers import (
    SloCheckedSerializer,
    SloJudgmentSerializer,
    SloSerializer,
    SloTextSerializer,
    shown,
)
from admission.slos.models import Slo, SloJudgment
from fleet.api.actors import actor_of
from policies.rules.api.parsers import YamlParser
from policies.rules.api.refusals import refused
from policies.rules.errors import RuleError

if TYPE_CHECKING:
    pass


class SlosView(APIView):
    permission_classes = (ViewsFleetOrEditsPolicies,)
    parser_classes = (JSONParser, YamlParser)

    @extend_schema(operation_id="slos_list", responses=SloSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the objectives in use and how they stand."""
        return Response([shown(each) for each in measuring.standings(timezone.now())])

    @extend_schema(request=SloTextSerializer, responses={201: SloSerializer})
    def post(self, request: Request) -> Response:
        """Declare an objective, or change the one that the text names.

        The body is ``{"text": …}`` or, as ``application/yaml``, the text itself. What a changed one
        is about is judged anew.
        """
        try:
            slo = actions.declare(actor_of(request), _text(request))
        except RuleError as error:
            return refused(error, "invalid_slo")
        return Response(_shown(slo), status=status.HTTP_201_CREATED)


class SloCheckView(APIView):
    """Whether a text is an objective, and if not, what is wrong where. Nothing is kept."""

    permission_classes = (ViewsFleet,)
    parser_classes = (JSONParser, YamlParser)

    @extend_schema(request=SloTextSerializer, responses=SloCheckedSerializer)
    def post(self, request: Request) -> Response:
        """Check an objective's text."""
        try:
            objective = document.read(_text(request))
        except RuleError as error:
            problems = [dataclasses.asdict(each) for each in error.problems]
            return Response({"problems": problems, "sentence": ""})
        return Response({"problems": [], "sentence": objective.sentence})


class SloView(APIView):
    permission_classes = (ViewsFleetOrEditsPolicies,)

    @extend_schema(responses=SloSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Show an objective and how it stands."""
        return Response(_shown(_in_use(name)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Measure an objective no more."""
        actions.retire(actor_of(request), _in_use(name))
        return Response(status=status.HTTP_204_NO_CONTENT)


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
    """What was judged by an objective, the newest first, of jobs that you may see."""

    queryset = SloJudgment.objects.none()
    serializer_class = SloJudgmentSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = SloJudgmentFilter
    cursor_ordering = ("-at", "-id")

    def get_queryset(self) -> QuerySet[SloJudgment]:
        """Return the judgments of the objective that the path names."""
        slo = _in_use(self.kwargs["name"])
        return SloJudgment.objects.filter(slo=slo).visible_to(actor_of(self.request))


def _text(request: Request) -> str:
    given = SloTextSerializer(data=request.data)
    given.is_valid(raise_exception=True)
    return str(given.validated_data["text"])


def _in_use(name: str) -> Slo:
    return get_object_or_404(Slo.objects.in_use(), name=name)


def _shown(slo: Slo) -> dict[str, Any]:
    (standing,) = measuring.standings(timezone.now(), [slo])
    return shown(standing)
