"""``/api/v1/limit-reports``: whether limits on GPUs were set, as agents report it."""

from __future__ import annotations

import django_filters
from rest_framework import serializers, viewsets

from accounts.permissions import ViewsFleet
from telemetry.limits.models import LimitReport


class LimitReportSerializer(serializers.ModelSerializer[LimitReport]):
    agent = serializers.CharField(source="agent.name", read_only=True)
    node = serializers.CharField(source="node.name", read_only=True)

    class Meta:
        model = LimitReport
        fields = (
            "id",
            "limit",
            "agent",
            "node",
            "gpu_index",
            "kind",
            "state",
            "at",
            "asked",
            "original",
            "applied",
            "watts_before",
            "watts_after",
            "error",
            "received_at",
        )
        read_only_fields = fields


class LimitReportFilter(django_filters.FilterSet):  # type: ignore[misc]
    limit = django_filters.CharFilter("limit", help_text="Id of a limit")
    node = django_filters.CharFilter("node__name", help_text="Name of a node")
    agent = django_filters.CharFilter("agent__name", help_text="Name of an agent")
    gpu_index = django_filters.NumberFilter("gpu_index", help_text="Index of a GPU on its node")
    state = django_filters.ChoiceFilter(choices=LimitReport.STATES)

    class Meta:
        model = LimitReport
        fields: list[str] = []


class LimitReportViewSet(viewsets.ReadOnlyModelViewSet[LimitReport]):
    """The last report of each limit on each GPU, the newest first."""

    queryset = LimitReport.objects.select_related("agent", "node")
    serializer_class = LimitReportSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = LimitReportFilter
    # Many reports come with one batch, so time alone would not tell them apart.
    cursor_ordering = ("-received_at", "-id")
