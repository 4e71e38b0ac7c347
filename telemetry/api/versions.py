"""``/api/v1/versions``: what nodes run, as their agents reported it last."""

from __future__ import annotations

import django_filters
from rest_framework import serializers, viewsets

from accounts.permissions import ViewsFleet
from telemetry.versions.models import NodeVersions
from telemetry.versions.store import FIELDS


class NodeVersionsSerializer(serializers.ModelSerializer[NodeVersions]):
    node = serializers.CharField(source="node.name", read_only=True)
    rack = serializers.CharField(source="node.rack.name", read_only=True)
    site = serializers.CharField(source="node.rack.site.name", read_only=True)

    class Meta:
        model = NodeVersions
        fields = ("id", "node", "rack", "site", *FIELDS, "told_at", "changed_at")
        read_only_fields = fields


class NodeVersionsFilter(django_filters.FilterSet):  # type: ignore[misc]
    site = django_filters.CharFilter("node__rack__site__name", help_text="Name of a site")
    rack = django_filters.NumberFilter("node__rack_id", help_text="Id of a rack")
    node = django_filters.CharFilter("node__name", help_text="Name of a node")
    driver = django_filters.CharFilter("driver")

    class Meta:
        model = NodeVersions
        fields: list[str] = []


class NodeVersionsViewSet(viewsets.ReadOnlyModelViewSet[NodeVersions]):
    """What nodes run, the latest change first. Empty: not known."""

    queryset = NodeVersions.objects.select_related("node__rack__site")
    serializer_class = NodeVersionsSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = NodeVersionsFilter
    cursor_ordering = ("-changed_at", "-id")
