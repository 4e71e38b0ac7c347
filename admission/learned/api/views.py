"""``/api/v1/draw-profiles`` and ``/start-estimates``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.db.models import QuerySet
from django_filters.rest_framework import CharFilter, FilterSet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from accounts.edge.parameters import check_names
from accounts.models import User
from accounts.permissions import ViewsFleet
from admission.core.allocation.reservation import Rules
from admission.learned import forecasts, profiles
from admission.learned.models import DrawProfile
from admission.policy.catalog import policy_in_force

__all__ = ["DrawProfileViewSet", "StartEstimatesView"]


class DrawProfileSerializer(serializers.ModelSerializer[DrawProfile]):
    project = serializers.CharField(source="project.name")
    p50_w = serializers.SerializerMethodField(help_text="W per GPU, its part of the host with it")
    p99_w = serializers.SerializerMethodField(
        help_text="null: nothing was read, or over all bounds"
    )
    reserved_w = serializers.SerializerMethodField(
        help_text="What such an attempt reserves once it is warm, W per GPU, if its peak is higher"
    )
    run_share = serializers.SerializerMethodField(
        help_text="Share of their walltime that half of them ran for"
    )

    class Meta:
        model = DrawProfile
        fields = (
            "project", "image", "model", "attempts", "p50_w", "p99_w", "reserved_w", "run_share",
            "updated_at",
        )  # fmt: skip

    @cached_property
    def _rules(self) -> Rules:
        """The rules in force. One query for all rows."""
        return policy_in_force().reserve

    def get_p50_w(self, profile: DrawProfile) -> float | None:
        return profiles.quantile_w(profile, 0.5)

    def get_p99_w(self, profile: DrawProfile) -> float | None:
        return profiles.quantile_w(profile, self._rules.quantile)

    def get_reserved_w(self, profile: DrawProfile) -> float | None:
        found = profiles.quantile_w(profile, self._rules.quantile)
        return None if found is None else (1.0 + self._rules.margin) * found

    def get_run_share(self, profile: DrawProfile) -> float | None:
        return profiles.middle(profile.run_shares)


class DrawProfileFilter(FilterSet):  # type: ignore[misc]
    project = CharFilter(field_name="project__name")
    image = CharFilter()
    model = CharFilter()

    class Meta:
        model = DrawProfile
        fields: list[str] = []


class DrawProfileViewSet(ListModelMixin, GenericViewSet[DrawProfile]):
    """The draw of the images of projects, by project, image and model of GPU."""

    permission_classes = (ViewsFleet,)
    serializer_class = DrawProfileSerializer
    queryset = DrawProfile.objects.select_related("project")
    filterset_class = DrawProfileFilter
    cursor_ordering = ("project__name", "image", "model")

    def get_queryset(self) -> QuerySet[DrawProfile]:
        """Return the profiles that the user may see."""
        rows = DrawProfile.objects.select_related("project")
        user = self.request.user
        return rows.visible_to(user) if isinstance(user, User) else rows.none()


class StartEstimatesSerializer(serializers.Serializer[Any]):
    starts = serializers.IntegerField(help_text="That were estimated before")
    within = serializers.IntegerField(help_text="Of them, within the range that was estimated")
    share = serializers.FloatField(allow_null=True, help_text="0.8 is right; null: none yet")


class StartEstimatesView(APIView):
    permission_classes = (ViewsFleet,)

    @extend_schema(responses=StartEstimatesSerializer)
    def get(self, request: Request) -> Response:
        """Return how many starts fell into their estimated ranges."""
        check_names(request.query_params, ("format",))
        found = forecasts.calibration()
        return Response({"starts": found.starts, "within": found.within, "share": found.coverage})
