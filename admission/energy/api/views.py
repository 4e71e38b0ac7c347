"""``/api/v1/energy`` and ``/api/v1/tariffs``."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError as Invalid
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import visibility
from accounts.cost import dear
from accounts.edge.csv_text import csv_response
from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleet, ViewsFleetOrEditsPolicies
from admission.energy import actions, budgets, demand, reports
from admission.energy.api.serializers import (
    BudgetAskSerializer,
    BudgetSerializer,
    DemandChargesSerializer,
    EnergyReportSerializer,
    TariffAskSerializer,
    TariffSerializer,
    flat,
    flat_demand,
    told,
)
from admission.energy.models import Budget, BudgetQuerySet, Tariff
from fleet.api.actors import actor_of
from telemetry import spans

_PARAMETERS = [
    OpenApiParameter("by", OpenApiTypes.STR, enum=[each.value for each in reports.By],
                     description="What rows are about; else project"),
    OpenApiParameter("range", OpenApiTypes.STR, description="Such as 30d, up to now; else 24h"),
    OpenApiParameter("from", OpenApiTypes.STR, description="Unix s, or ISO 8601"),
    OpenApiParameter("to", OpenApiTypes.STR, description="Unix s, or ISO 8601; else now"),
]  # fmt: skip
DEFAULT_RANGE = "24h"
_IS_MONTH = re.compile(r"2\d{3}-(0[1-9]|1[0-2])")


class EnergyView(APIView):
    """Where the energy went: by project, job, site, rack, node or hour."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=_PARAMETERS, responses=EnergyReportSerializer, operation_id="energy_retrieve"
    )
    @dear("the span of time")
    def get(self, request: Request) -> Response:
        """Return the energy, carbon and money of whole hours; of the own projects to ML users."""
        return Response(EnergyReportSerializer(_report(request)).data)


class EnergyCsvView(APIView):
    """The rows of the same as CSV."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=_PARAMETERS, responses={(200, "text/csv"): OpenApiTypes.STR},
        operation_id="energy_csv_retrieve",
    )  # fmt: skip
    @dear("the span of time")
    def get(self, request: Request) -> HttpResponse:
        """Return a line for each row, with the parts of its energy and its money."""
        return csv_response(flat(_report(request)))


def _report(request: Request) -> dict[str, object]:
    params = request.query_params
    check_names(params, ("by", "range", "from", "to", "format"))
    try:
        by = reports.By(params.get("by") or reports.By.PROJECT)
    except ValueError as error:
        known = ", ".join(reports.By)
        raise serializers.ValidationError({"by": f"give one of {known}"}) from error
    try:
        span = spans.parse(params, time.time(), DEFAULT_RANGE)
        return told(reports.report(by, span, actor_of(request)))
    except spans.ParameterError as error:
        raise serializers.ValidationError({error.field: str(error)}) from error
    except reports.NotForReader as error:
        raise PermissionDenied(str(error)) from error


_MONTH = OpenApiParameter(
    "month", OpenApiTypes.STR,
    description="Such as 2026-11, in the time zone of each site; else the one that goes on",
)  # fmt: skip


class DemandChargesView(APIView):
    """Demand charges: the peak of a month at each site, who drew it, and what the next kW costs."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[_MONTH], responses=DemandChargesSerializer,
        operation_id="demand_charges_retrieve",
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Return how a month stands at the sites that have a demand charge in it."""
        told = {"currency": settings.ENERGY_CURRENCY, "sites": _months(request)}
        return Response(DemandChargesSerializer(told).data)


class DemandChargesCsvView(APIView):
    """The same as CSV, by who drew the peaks."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[_MONTH], responses={(200, "text/csv"): OpenApiTypes.STR},
        operation_id="demand_charges_csv_retrieve",
    )  # fmt: skip
    def get(self, request: Request) -> HttpResponse:
        """Return a line for each project, for the rest and for each rack of a peak."""
        return csv_response(flat_demand(_months(request)))


def _months(request: Request) -> list[demand.Month]:
    """Return the months that are asked for. Sites are shared: they are for who sees all jobs."""
    if not visibility.sees_all(actor_of(request)):
        raise PermissionDenied("demand charges are of whole sites, shared with other projects")
    check_names(request.query_params, ("month", "format"))
    now, asked = timezone.now(), request.query_params.get("month")
    if not asked:
        return demand.months(now)
    if not _IS_MONTH.fullmatch(asked):
        raise serializers.ValidationError({"month": "give a month such as 2026-11"})
    return demand.months(now, datetime.fromisoformat(f"{asked}-15T12:00Z"))


class TariffViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Tariff]
):
    """Tariffs of sites, the latest first. They are added and never changed."""

    queryset = Tariff.objects.select_related("site")
    serializer_class = TariffSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    lookup_value_regex = "[0-9]{1,18}"
    cursor_ordering = ("-begins_at", "-id")

    @extend_schema(request=TariffAskSerializer, responses={201: TariffSerializer})
    def create(self, request: Request) -> Response:
        """Make a tariff from an hour on: hours that it holds for are rated by it."""
        body = TariffAskSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given = dict(body.validated_data)
        site, begins_at = given.pop("site"), given.pop("begins_at")
        try:
            row = actions.make_tariff(actor_of(request), site, begins_at, given, now=timezone.now())
        except Invalid as error:
            raise serializers.ValidationError(error.message_dict) from error
        return Response(self.get_serializer(row).data, status=status.HTTP_201_CREATED)


class BudgetViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Budget]
):
    """Budgets of projects, the newest first, and how they stand; of the own projects to ML users.

    They are added and ended, never changed.
    """

    queryset = Budget.objects.select_related("project")
    serializer_class = BudgetSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    lookup_value_regex = "[0-9]{1,18}"
    cursor_ordering = ("-id",)

    def get_queryset(self) -> BudgetQuerySet:
        """Those that the reader may know of."""
        return Budget.objects.visible_to(actor_of(self.request)).select_related("project")

    def get_serializer(self, *args: Any, **kwargs: Any) -> Any:
        """With how those that are in force stand, some queries for all of them."""
        if args:
            rows = [args[0]] if isinstance(args[0], Budget) else list(args[0])
            now = timezone.now()
            kept = Budget.objects.in_force(now).filter(pk__in=[row.pk for row in rows])
            found = budgets.standings(kept.select_related("project"), now)
            context = {"standings": {row.pk: stands for row, stands in found}}
            kwargs["context"] = {**self.get_serializer_context(), **context}
        return super().get_serializer(*args, **kwargs)

    @extend_schema(request=BudgetAskSerializer, responses={201: BudgetSerializer})
    def create(self, request: Request) -> Response:
        """Make a budget: of each calendar month (UTC), or of a range of hours."""
        body = BudgetAskSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given = dict(body.validated_data)
        project = given.pop("project")
        try:
            row = budgets.make(actor_of(request), project, given, now=timezone.now())
        except Invalid as error:
            raise serializers.ValidationError(error.message_dict) from error
        return Response(self.get_serializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=BudgetSerializer)
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        """End a budget from now on."""
        row = budgets.end(actor_of(request), self.get_object(), now=timezone.now())
        return Response(self.get_serializer(row).data)
