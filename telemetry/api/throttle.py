"""``/api/v1/throttle-events``: when which GPU was throttled, and why."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from rest_framework import serializers, viewsets

from accounts.permissions import ViewsFleet
from headroom.contracts import ThrottleCause
from telemetry.models import ThrottleEvent

CAUSES = [(cause.token, cause.token) for cause in ThrottleCause]


class ThrottleEventSerializer(serializers.ModelSerializer[ThrottleEvent]):
    cause = serializers.ChoiceField(CAUSES, source="cause_token", read_only=True)
    gpu_index = serializers.IntegerField(source="gpu.index", read_only=True)
    node = serializers.CharField(source="gpu.node.name", read_only=True)
    rack = serializers.CharField(source="gpu.node.rack.name", read_only=True)
    rack_id = serializers.IntegerField(source="gpu.node.rack_id", read_only=True)
    site = serializers.CharField(source="gpu.node.rack.site.name", read_only=True)

    class Meta:
        model = ThrottleEvent
        fields = (
            "id",
            "gpu",
            "gpu_index",
            "node",
            "rack",
            "rack_id",
            "site",
            "cause",
            "opened_at",
            "updated_at",
            "closed_at",
            "readings",
            "peak_temp_c",
            "peak_power_w",
            "min_sm_mhz",
        )
        read_only_fields = fields


class ThrottleEventFilter(django_filters.FilterSet):  # type: ignore[misc]
    """``since`` and ``until`` choose the events that touch the span between them."""

    cause = django_filters.ChoiceFilter(choices=CAUSES, method="filter_cause")
    site = django_filters.CharFilter("gpu__node__rack__site__name", help_text="Name of a site")
    rack = django_filters.NumberFilter("gpu__node__rack_id", help_text="Id of a rack")
    node = django_filters.CharFilter("gpu__node__name", help_text="Name of a node")
    gpu = django_filters.NumberFilter("gpu_id", help_text="Id of a GPU")
    open = django_filters.ChoiceFilter(
        choices=[("1", "open"), ("0", "closed")], method="filter_open"
    )
    since = django_filters.IsoDateTimeFilter(method="filter_since")
    until = django_filters.IsoDateTimeFilter("opened_at", "lt")

    class Meta:
        model = ThrottleEvent
        fields: list[str] = []

    def filter_cause(self, events: Any, name: str, value: str) -> QuerySet[ThrottleEvent]:
        found: QuerySet[ThrottleEvent] = events.filter(cause=ThrottleCause[value.upper()])
        return found

    def filter_open(self, events: Any, name: str, value: str) -> QuerySet[ThrottleEvent]:
        found: QuerySet[ThrottleEvent] = events.filter(closed_at__isnull=value == "1")
        return found

    def filter_since(self, events: Any, name: str, value: Any) -> QuerySet[ThrottleEvent]:
        found: QuerySet[ThrottleEvent] = events.touching_since(value)
        return found


class ThrottleEventViewSet(viewsets.ReadOnlyModelViewSet[ThrottleEvent]):
    """Spans in which a GPU was throttled for one cause, the newest first."""

    queryset = ThrottleEvent.objects.select_related("gpu__node__rack__site")
    serializer_class = ThrottleEventSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = ThrottleEventFilter
    # Many events open at one instant, so time alone would not tell them apart.
    cursor_ordering = ("-opened_at", "-id")
