"""``/api/v1/curtailments``: what grids ask of sites, what it would cost, and what was kept."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.edge.csv_text import csv_response
from accounts.permissions import ViewsFleetOrEditsPolicies, ViewsFleetOrRunsPlaybooks
from admission.curtailments import actions, metered
from admission.curtailments.api.serializers import (
    CurtailmentAskSerializer,
    CurtailmentCancelSerializer,
    CurtailmentPlanSerializer,
    CurtailmentSerializer,
    planned,
)
from admission.curtailments.models import Curtailment
from fleet import snapshot
from fleet.api.actors import SeeingView, actor_of
from policies.restrictions.kinds import BadRestriction


class CurtailmentFilter(django_filters.FilterSet):  # type: ignore[misc]
    """``open``: 1 for those that are to be met now or later."""

    site = django_filters.CharFilter("site")
    open = django_filters.ChoiceFilter(
        choices=[("1", "to be met now or later")], method="filter_open"
    )

    class Meta:
        model = Curtailment
        fields: list[str] = []

    def filter_open(self, rows: Any, name: str, value: str) -> QuerySet[Curtailment]:
        found: QuerySet[Curtailment] = rows.open(timezone.now())
        return found


class CurtailmentViewSet(
    SeeingView,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    viewsets.GenericViewSet[Curtailment],
):
    """Curtailments, the newest first."""

    queryset = Curtailment.objects.all()
    serializer_class = CurtailmentSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    filterset_class = CurtailmentFilter
    lookup_value_regex = "[0-9]{1,18}"
    cursor_ordering = ("-starts_at", "-id")
    veiled_fields = ("reason",)

    def get_object(self) -> Curtailment:
        """Return the object as the requesting user may see it."""
        found: list[Curtailment] = self.visibility.veiled(
            [super().get_object()], *self.veiled_fields
        )
        return found[0]

    @extend_schema(
        request=CurtailmentAskSerializer,
        parameters=[
            OpenApiParameter(
                "dry_run", OpenApiTypes.STR, enum=["1"],
                description="1: only answer what it would cost, and change nothing",
            )
        ],
        responses={200: CurtailmentPlanSerializer, 201: CurtailmentSerializer},
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        """Have a site draw less for a time, or say what that would cost."""
        now = timezone.now()
        body = CurtailmentAskSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        try:
            if request.query_params.get("dry_run") == "1":
                found = actions.plan(body.as_request(now), now=now)
                answer = CurtailmentPlanSerializer(planned(found, self.visibility))
                return Response(answer.data)
            row = actions.ask(
                actor_of(request), body.as_request(now), now=now,
                even_if_short=body.validated_data["even_if_short"],
            )  # fmt: skip
        except (actions.Refused, BadRestriction) as error:
            raise _api_error(error) from error
        return Response(self.get_serializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=CurtailmentCancelSerializer, responses=CurtailmentSerializer)
    @action(detail=True, methods=["post"], permission_classes=[ViewsFleetOrRunsPlaybooks])
    def cancel(self, request: Request, pk: str) -> Response:
        """End it before its time; what was kept until then is judged."""
        body = CurtailmentCancelSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        why = body.validated_data["reason"]
        try:
            row = actions.cancel(actor_of(request), int(pk), why=why, now=timezone.now())
        except Curtailment.DoesNotExist as error:
            raise Http404 from error
        except actions.Refused as error:
            raise _api_error(error) from error
        return Response(self.get_serializer(row).data)

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    @action(detail=True, url_path="readings.csv")
    def readings(self, request: Request, pk: str) -> HttpResponse:
        """Return the load of the site by its meters over the time of it, as CSV."""
        row = self.get_object()
        if row.site not in snapshot.current().sites.index_by_name:
            raise Http404
        end = min(row.ends_at, timezone.now()).timestamp()
        load = metered.read(snapshot.current(), row.site, row.starts_at.timestamp(), end)
        rows = (
            (datetime.fromtimestamp(at, UTC), None if watts != watts else round(watts, 1), target)
            for at, watts, target in zip(
                load.times.tolist(), load.watts.tolist(), repeat(row.target_w), strict=False
            )
        )
        return csv_response(chain([("time", "load_w", "target_w")], rows))


def _api_error(error: actions.Refused | BadRestriction) -> APIException:
    if isinstance(error, BadRestriction):
        message = f"{error}: {error.hint}" if error.hint else str(error)
        return ValidationError({error.field: [ErrorDetail(message, "invalid")]})
    if error.code == "invalid":
        return ValidationError({error.field: [ErrorDetail(str(error), "invalid")]})
    conflict = APIException(str(error), error.code)
    conflict.status_code = status.HTTP_409_CONFLICT
    return conflict
