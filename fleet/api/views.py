"""One resource for each kind of row. Reading takes two queries at most, however many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.db import models
from rest_framework import viewsets

from accounts import audit
from accounts.edge.errors import InUse
from fleet import deleting
from fleet.api import filters, serializers
from fleet.api.actors import actor_of
from fleet.models import (
    CoolingZone,
    Gpu,
    HardwareModel,
    Link,
    Meter,
    Node,
    PowerDomain,
    Rack,
    Site,
    StorageEndpoint,
)
from fleet.writing import writing

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.response import Response
    from rest_framework.serializers import BaseSerializer

    # Generic for the type checker alone.
    BaseViewSet = viewsets.ModelViewSet[Any]
else:
    BaseViewSet = viewsets.ModelViewSet


class _RowViewSet(BaseViewSet):
    """Rows of one kind. Every write is checked, done and noted under the inventory's lock."""

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        with writing():
            return super().create(request, *args, **kwargs)

    def update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        with writing():
            return super().update(request, *args, **kwargs)

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        with writing():
            return super().destroy(request, *args, **kwargs)

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        row = serializer.save()
        self._note("create", row, None, audit.state(row))

    def perform_update(self, serializer: BaseSerializer[Any]) -> None:
        before = audit.state(cast(models.Model, serializer.instance))
        row = serializer.save()
        self._note("change", row, before, audit.state(row))

    def perform_destroy(self, instance: models.Model) -> None:
        if why_not := deleting.obstacle(instance):
            raise InUse(why_not)
        self._note("delete", instance, audit.state(instance), None)
        instance.delete()

    def _note(
        self, what: str, row: models.Model, before: audit.State | None, after: audit.State | None
    ) -> None:
        kind = str(row._meta.verbose_name).lower().replace(" ", "_")
        told = audit.changes(before, after)
        audit.record(actor_of(self.request), f"fleet.{kind}.{what}", str(row), **told)


class SiteViewSet(_RowViewSet):
    """Buildings, or halls of one, each with its own utility feed."""

    queryset = Site.objects.all()
    serializer_class = serializers.SiteSerializer
    filterset_class = filters.SiteFilters


class PowerDomainViewSet(_RowViewSet):
    """The power tree: utility, feeds, panels and PDUs, with A/B pairs."""

    queryset = PowerDomain.objects.select_related("site", "parent__site")
    serializer_class = serializers.PowerDomainSerializer
    filterset_class = filters.PowerDomainFilters


class CoolingZoneViewSet(_RowViewSet):
    """Racks that share heat rejection."""

    queryset = CoolingZone.objects.select_related("site")
    serializer_class = serializers.CoolingZoneSerializer
    filterset_class = filters.CoolingZoneFilters


class StorageEndpointViewSet(_RowViewSet):
    """File systems and object stores that nodes use."""

    queryset = StorageEndpoint.objects.select_related("site")
    serializer_class = serializers.StorageEndpointSerializer
    filterset_class = filters.StorageEndpointFilters


class RackViewSet(_RowViewSet):
    """Racks: place, budget, feeds and cooling zone."""

    queryset = Rack.objects.select_related(
        "site", "feed_a__site", "feed_b__site", "cooling_zone__site"
    )
    serializer_class = serializers.RackSerializer
    filterset_class = filters.RackFilters


class NodeViewSet(_RowViewSet):
    """Servers."""

    queryset = Node.objects.select_related("rack__site", "model", "storage_endpoint__site")
    serializer_class = serializers.NodeSerializer
    filterset_class = filters.NodeFilters


class GpuViewSet(_RowViewSet):
    """GPUs, by their index on their node."""

    queryset = Gpu.objects.select_related("node", "model")
    serializer_class = serializers.GpuSerializer
    filterset_class = filters.GpuFilters


class LinkViewSet(_RowViewSet):
    """Network links, by where they start."""

    queryset = Link.objects.select_related("site", "rack__site", "node", "peer_site")
    serializer_class = serializers.LinkSerializer
    filterset_class = filters.LinkFilters


class MeterViewSet(_RowViewSet):
    """Meters of power or temperature at a power domain, cooling zone, rack or node."""

    queryset = Meter.objects.select_related(
        "power_domain__site", "cooling_zone__site", "rack__site", "node"
    )
    serializer_class = serializers.MeterSerializer
    filterset_class = filters.MeterFilters


class HardwareModelViewSet(_RowViewSet):
    """Kinds of GPUs and nodes, with their ratings."""

    queryset = HardwareModel.objects.all()
    serializer_class = serializers.HardwareModelSerializer
    filterset_class = filters.HardwareModelFilters
