"""Query parameters of the lists. Relations are given by their keys, as everywhere."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import Model, QuerySet

from fleet.api.fields import by_key
from fleet.models import (
    CoolingKind,
    CoolingZone,
    Gpu,
    HardwareKind,
    HardwareModel,
    Link,
    LinkKind,
    Meter,
    MeterKind,
    Node,
    PowerDomain,
    PowerDomainKind,
    Rack,
    Site,
    StorageEndpoint,
)


class KeyFilter(django_filters.CharFilter):  # type: ignore[misc]
    """Rows that refer to the row with the given key; none where there is no such row."""

    def __init__(self, field_name: str, rows: type[Model], **kwargs: Any) -> None:
        super().__init__(field_name=field_name, **kwargs)
        self._rows = rows._default_manager

    def filter(self, qs: QuerySet[Any], value: str) -> QuerySet[Any]:
        if not value:
            return qs
        return qs.filter(**{f"{self.field_name}__in": by_key(self._rows.all(), value)})


class NameFilters(django_filters.FilterSet):  # type: ignore[misc]
    name = django_filters.CharFilter(help_text="The whole name")
    name_contains = django_filters.CharFilter(
        field_name="name", lookup_expr="icontains", help_text="A part of the name, in any case"
    )


class SiteFilters(NameFilters):
    class Meta:
        model = Site
        fields: list[str] = []


class AtSiteFilters(NameFilters):
    site = django_filters.CharFilter(field_name="site__name", help_text="Name of the site")


class PowerDomainFilters(AtSiteFilters):
    kind = django_filters.MultipleChoiceFilter(choices=PowerDomainKind.choices)
    parent = KeyFilter("parent", PowerDomain)
    pair = django_filters.CharFilter()

    class Meta:
        model = PowerDomain
        fields: list[str] = []


class CoolingZoneFilters(AtSiteFilters):
    kind = django_filters.MultipleChoiceFilter(choices=CoolingKind.choices)

    class Meta:
        model = CoolingZone
        fields: list[str] = []


class StorageEndpointFilters(AtSiteFilters):
    class Meta:
        model = StorageEndpoint
        fields: list[str] = []


class RackFilters(AtSiteFilters):
    row = django_filters.CharFilter()
    feed_a = KeyFilter("feed_a", PowerDomain)
    feed_b = KeyFilter("feed_b", PowerDomain)
    cooling_zone = KeyFilter("cooling_zone", CoolingZone)

    class Meta:
        model = Rack
        fields: list[str] = []


class NodeFilters(NameFilters):
    site = django_filters.CharFilter(field_name="rack__site__name", help_text="Name of the site")
    rack = KeyFilter("rack", Rack)
    model = django_filters.CharFilter(field_name="model__name")
    switch_domain = django_filters.CharFilter()
    storage_endpoint = KeyFilter("storage_endpoint", StorageEndpoint)

    class Meta:
        model = Node
        fields: list[str] = []


class GpuFilters(django_filters.FilterSet):  # type: ignore[misc]
    site = django_filters.CharFilter(
        field_name="node__rack__site__name", help_text="Name of the site"
    )
    rack = KeyFilter("node__rack", Rack)
    node = django_filters.CharFilter(field_name="node__name")
    model = django_filters.CharFilter(field_name="model__name")
    uuid = django_filters.CharFilter()

    class Meta:
        model = Gpu
        fields: list[str] = []


class LinkFilters(AtSiteFilters):
    kind = django_filters.MultipleChoiceFilter(choices=LinkKind.choices)
    rack = KeyFilter("rack", Rack)
    node = django_filters.CharFilter(field_name="node__name")
    peer_site = django_filters.CharFilter(field_name="peer_site__name")

    class Meta:
        model = Link
        fields: list[str] = []


class MeterFilters(NameFilters):
    kind = django_filters.MultipleChoiceFilter(choices=MeterKind.choices)
    power_domain = KeyFilter("power_domain", PowerDomain)
    cooling_zone = KeyFilter("cooling_zone", CoolingZone)
    rack = KeyFilter("rack", Rack)
    node = django_filters.CharFilter(field_name="node__name")

    class Meta:
        model = Meter
        fields: list[str] = []


class HardwareModelFilters(NameFilters):
    kind = django_filters.MultipleChoiceFilter(choices=HardwareKind.choices)
    vendor = django_filters.CharFilter()

    class Meta:
        model = HardwareModel
        fields: list[str] = []
