"""``/api/v1/bookings``: hosts that are kept for projects, and maintenance."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.permissions import ViewsFleetOrEditsPolicies
from admission.bookings import actions
from admission.bookings.api.serializers import (
    BookingAskSerializer,
    BookingEndSerializer,
    BookingSerializer,
)
from admission.bookings.models import Booking
from admission.jobs.models import Project
from fleet.api.actors import actor_of


class BookingFilter(django_filters.FilterSet):  # type: ignore[misc]
    """``live``: 1 for those that are not over."""

    live = django_filters.ChoiceFilter(choices=[("1", "not over")], method="filter_live")

    class Meta:
        model = Booking
        fields: list[str] = []

    def filter_live(self, rows: Any, name: str, value: str) -> QuerySet[Booking]:
        found: QuerySet[Booking] = rows.live(timezone.now())
        return found


class BookingViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Booking]
):
    """Bookings, the latest start first."""

    queryset = Booking.objects.select_related("project")
    serializer_class = BookingSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    filterset_class = BookingFilter
    lookup_value_regex = "[0-9]{1,18}"
    cursor_ordering = ("-starts_at", "-id")

    def get_serializer_context(self) -> dict[str, Any]:
        """With the projects that the reader may know of. One query."""
        context = dict(super().get_serializer_context())
        if getattr(self, "swagger_fake_view", False):  # nobody asks while the schema is made
            return context
        known = Project.objects.visible_to(actor_of(self.request)).values_list("pk", flat=True)
        return {**context, "known": set(known)}

    @extend_schema(request=BookingAskSerializer, responses={201: BookingSerializer})
    def create(self, request: Request) -> Response:
        """Keep hosts for a project, or for maintenance; 409 where it cannot be promised."""
        body = BookingAskSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        try:
            row = actions.book(body.asked(), actor_of(request), now=timezone.now())
        except actions.Refused as error:
            raise _api_error(error) from error
        return Response(self.get_serializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=BookingEndSerializer, responses=BookingSerializer)
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        """End it before its time: its hosts are for all again."""
        body = BookingEndSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        why = body.validated_data["why"]
        try:
            row = actions.end(self.get_object(), actor_of(request), why=why, now=timezone.now())
        except actions.Refused as error:
            raise _api_error(error) from error
        return Response(self.get_serializer(row).data)


def _api_error(error: actions.Refused) -> APIException:
    text = f"{error}: {error.hint}" if error.hint else str(error)
    if error.code in ("taken", "over"):
        conflict = APIException(text, error.code)
        conflict.status_code = status.HTTP_409_CONFLICT
        return conflict
    return ValidationError({error.field: [ErrorDetail(text, error.code)]})
