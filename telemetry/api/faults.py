"""``/api/v1/xid-events`` and ``/api/v1/ecc-events``: errors inside of GPUs."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils.decorators import method_decorator
from rest_framework import serializers, viewsets

from accounts.cost import dear_unless_quick
from accounts.edge.parameters import MomentFilter
from accounts.permissions import ViewsFleet
from telemetry.api.throttle import NARROW, SEVERITIES
from telemetry.faults import xids
from telemetry.faults.models import EccEvent
from telemetry.models import XidEvent
from telemetry.throttle.rules import Severity


class XidEventSerializer(serializers.ModelSerializer[XidEvent]):
    """``title``, ``severity`` and ``advice`` describe the code, where it is a listed one."""

    gpu_index = serializers.IntegerField(
        source="gpu.index", default=None, allow_null=True, read_only=True
    )
    node = serializers.CharField(source="node.name", read_only=True)
    rack = serializers.CharField(source="node.rack.name", read_only=True)
    rack_id = serializers.IntegerField(source="node.rack_id", read_only=True)
    site = serializers.CharField(source="node.rack.site.name", read_only=True)
    title = serializers.SerializerMethodField()
    severity = serializers.SerializerMethodField()
    advice = serializers.SerializerMethodField()

    class Meta:
        model = XidEvent
        fields = (
            "id",
            "gpu",
            "gpu_index",
            "node",
            "rack",
            "rack_id",
            "site",
            "ts",
            "xid",
            "title",
            "severity",
            "advice",
            "pci",
            "text",
        )
        read_only_fields = fields

    def get_title(self, event: XidEvent) -> str:
        return xids.meaning_of(event.xid).title

    def get_severity(self, event: XidEvent) -> str:
        return xids.meaning_of(event.xid).severity.token

    def get_advice(self, event: XidEvent) -> str:
        return xids.meaning_of(event.xid).advice


class XidEventFilter(django_filters.FilterSet):  # type: ignore[misc]
    xid = django_filters.NumberFilter("xid", help_text="The code")
    severity = django_filters.ChoiceFilter(
        choices=SEVERITIES, method="filter_severity", help_text="So severe, or worse"
    )
    site = django_filters.CharFilter("node__rack__site__name", help_text="Name of a site")
    rack = django_filters.NumberFilter("node__rack_id", help_text="Id of a rack")
    node = django_filters.CharFilter("node__name", help_text="Name of a node")
    gpu = django_filters.NumberFilter("gpu_id", help_text="Id of a GPU")
    since = MomentFilter("ts", "gte")
    until = MomentFilter("ts", "lt")

    class Meta:
        model = XidEvent
        fields: list[str] = []

    def filter_severity(self, events: Any, name: str, value: str) -> QuerySet[XidEvent]:
        found: QuerySet[XidEvent] = events.filter(xids.condition(Severity[value.upper()]))
        return found


@method_decorator(dear_unless_quick(NARROW), name="list")
class XidEventViewSet(viewsets.ReadOnlyModelViewSet[XidEvent]):
    """Xid errors that kernels logged, the newest first."""

    queryset = XidEvent.objects.select_related("gpu", "node__rack__site")
    serializer_class = XidEventSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = XidEventFilter
    cursor_ordering = ("-ts", "-id")


class EccEventSerializer(serializers.ModelSerializer[EccEvent]):
    gpu_index = serializers.IntegerField(source="gpu.index", read_only=True)
    node = serializers.CharField(source="gpu.node.name", read_only=True)
    rack = serializers.CharField(source="gpu.node.rack.name", read_only=True)
    rack_id = serializers.IntegerField(source="gpu.node.rack_id", read_only=True)
    site = serializers.CharField(source="gpu.node.rack.site.name", read_only=True)

    class Meta:
        model = EccEvent
        fields = (
            "id",
            "gpu",
            "gpu_index",
            "node",
            "rack",
            "rack_id",
            "site",
            "since",
            "at",
            "count",
            "total",
        )
        read_only_fields = fields


class EccEventFilter(django_filters.FilterSet):  # type: ignore[misc]
    site = django_filters.CharFilter("gpu__node__rack__site__name", help_text="Name of a site")
    rack = django_filters.NumberFilter("gpu__node__rack_id", help_text="Id of a rack")
    node = django_filters.CharFilter("gpu__node__name", help_text="Name of a node")
    gpu = django_filters.NumberFilter("gpu_id", help_text="Id of a GPU")
    since = MomentFilter("at", "gte")
    until = MomentFilter("at", "lt")

    class Meta:
        model = EccEvent
        fields: list[str] = []


@method_decorator(dear_unless_quick(NARROW), name="list")
class EccEventViewSet(viewsets.ReadOnlyModelViewSet[EccEvent]):
    """Uncorrected memory errors that GPUs counted, the newest first."""

    queryset = EccEvent.objects.select_related("gpu__node__rack__site")
    serializer_class = EccEventSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = EccEventFilter
    cursor_ordering = ("-at", "-id")
