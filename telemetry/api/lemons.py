"""``/api/v1/lemons``: GPUs that give less clock, or get hotter, than their peers."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from rest_framework import serializers, viewsets

from accounts.permissions import ViewsFleet
from telemetry.lemons.models import LemonFinding


class LemonFindingSerializer(serializers.ModelSerializer[LemonFinding]):
    gpu_index = serializers.IntegerField(source="gpu.index", read_only=True)
    model = serializers.CharField(source="gpu.model.name", read_only=True)
    node = serializers.CharField(source="gpu.node.name", read_only=True)
    rack = serializers.CharField(source="gpu.node.rack.name", read_only=True)
    rack_id = serializers.IntegerField(source="gpu.node.rack_id", read_only=True)
    site = serializers.CharField(source="gpu.node.rack.site.name", read_only=True)
    unit = serializers.CharField(read_only=True)
    difference = serializers.FloatField(read_only=True, help_text="Above 0, in the unit")

    class Meta:
        model = LemonFinding
        fields = (
            "id",
            "gpu",
            "gpu_index",
            "model",
            "node",
            "rack",
            "rack_id",
            "site",
            "metric",
            "unit",
            "since",
            "seen_at",
            "ended_at",
            "score",
            "own",
            "peers_median",
            "difference",
            "peers",
            "among",
        )
        read_only_fields = fields


class LemonFindingFilter(django_filters.FilterSet):  # type: ignore[misc]
    metric = django_filters.ChoiceFilter(choices=LemonFinding.Metrics.choices)
    site = django_filters.CharFilter("gpu__node__rack__site__name", help_text="Name of a site")
    rack = django_filters.NumberFilter("gpu__node__rack_id", help_text="Id of a rack")
    node = django_filters.CharFilter("gpu__node__name", help_text="Name of a node")
    gpu = django_filters.NumberFilter("gpu_id", help_text="Id of a GPU")
    open = django_filters.ChoiceFilter(
        choices=[("1", "they hold"), ("0", "they ended")], method="filter_open"
    )

    class Meta:
        model = LemonFinding
        fields: list[str] = []

    def filter_open(self, findings: Any, name: str, value: str) -> QuerySet[LemonFinding]:
        found: QuerySet[LemonFinding] = findings.filter(ended_at__isnull=value == "1")
        return found


class LemonFindingViewSet(viewsets.ReadOnlyModelViewSet[LemonFinding]):
    """Findings against GPUs, the newest first."""

    queryset = LemonFinding.objects.select_related("gpu__node__rack__site", "gpu__model")
    serializer_class = LemonFindingSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = LemonFindingFilter
    # Many are found at one instant, so time alone would not tell them apart.
    cursor_ordering = ("-since", "-id")
