"""The inventory on the admin site. Relations are autocompleted: fleets are large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin

from accounts.edge.admin import Autocomplete
from accounts.noted import NotedAdmin
from fleet import deleting
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
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponse


#: So many rows are deleted at once.
_MOST_DELETED = 50


class _InventoryAdmin(NotedAdmin):
    """Writes under the inventory's lock, and notes each of them."""

    list_per_page = 50
    # Counting a whole table again for "100,000 total" is not worth its time.
    show_full_result_count = False

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name in self.autocomplete_fields:
            kwargs.setdefault("widget", Autocomplete(db_field, self.admin_site))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Check and save in one transaction, with other writers waiting."""
        if request.method != "POST":
            return super().changeform_view(request, object_id, form_url, extra_context)
        with writing():
            return super().changeform_view(request, object_id, form_url, extra_context)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return the rows to delete, without all that stands below: it may be the whole fleet."""
        rows = list(objs[: _MOST_DELETED + 1])
        kept = [why for row in rows[:_MOST_DELETED] if (why := deleting.obstacle(row))]
        if len(rows) > _MOST_DELETED:
            kept.append(f"More than {_MOST_DELETED} are selected: apply an inventory without them.")
        names = [f"{row}, with all that stands in it" for row in rows]
        return names, {self.model._meta.verbose_name_plural: len(rows)}, set(), kept

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        with writing():
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with writing():
            super().delete_queryset(request, queryset)


@admin.register(Site)
class SiteAdmin(_InventoryAdmin):
    list_display = ["name", "budget_w", "time_zone"]
    search_fields = ["name"]


@admin.register(PowerDomain)
class PowerDomainAdmin(_InventoryAdmin):
    list_display = ["name", "site", "kind", "parent", "capacity_w", "derating", "pair", "side"]
    list_filter = ["site", "kind", "side"]
    list_select_related = ["site", "parent__site"]
    search_fields = ["name", "site__name", "pair"]
    autocomplete_fields = ["site", "parent"]


@admin.register(CoolingZone)
class CoolingZoneAdmin(_InventoryAdmin):
    list_display = ["name", "site", "kind", "capacity_w", "supply_c"]
    list_filter = ["site", "kind"]
    list_select_related = ["site"]
    search_fields = ["name", "site__name"]
    autocomplete_fields = ["site"]


@admin.register(StorageEndpoint)
class StorageEndpointAdmin(_InventoryAdmin):
    list_display = ["name", "site", "capacity_bytes_per_s"]
    list_filter = ["site"]
    list_select_related = ["site"]
    search_fields = ["name", "site__name"]
    autocomplete_fields = ["site"]


@admin.register(Rack)
class RackAdmin(_InventoryAdmin):
    list_display = ["name", "site", "row", "position", "budget_w", "feed_a", "feed_b"]
    list_filter = ["site"]
    list_select_related = ["site", "feed_a__site", "feed_b__site"]
    search_fields = ["name", "site__name", "row"]
    autocomplete_fields = ["site", "feed_a", "feed_b", "cooling_zone"]


@admin.register(Node)
class NodeAdmin(_InventoryAdmin):
    list_display = ["name", "rack", "position_u", "model", "switch_domain"]
    list_filter = ["rack__site", "model"]
    list_select_related = ["rack__site", "model"]
    search_fields = ["name", "rack__name", "rack__site__name"]
    autocomplete_fields = ["rack", "model", "storage_endpoint"]


@admin.register(Gpu)
class GpuAdmin(_InventoryAdmin):
    list_display = ["__str__", "node", "index", "model", "uuid"]
    list_filter = ["node__rack__site", "model"]
    list_select_related = ["node", "model"]
    search_fields = ["node__name", "uuid"]
    autocomplete_fields = ["node", "model"]


@admin.register(Link)
class LinkAdmin(_InventoryAdmin):
    list_display = ["name", "kind", "site", "rack", "node", "peer_site", "capacity_bits_per_s"]
    list_filter = ["site", "kind"]
    list_select_related = ["site", "rack__site", "node", "peer_site"]
    search_fields = ["name"]
    autocomplete_fields = ["site", "rack", "node", "peer_site"]


@admin.register(Meter)
class MeterAdmin(_InventoryAdmin):
    list_display = ["name", "kind", "power_domain", "cooling_zone", "rack", "node"]
    list_filter = ["kind"]
    list_select_related = ["power_domain__site", "cooling_zone__site", "rack__site", "node"]
    search_fields = ["name"]
    autocomplete_fields = ["power_domain", "cooling_zone", "rack", "node"]


@admin.register(HardwareModel)
class HardwareModelAdmin(_InventoryAdmin):
    list_display = ["name", "kind", "vendor", "rated_w", "idle_w"]
    list_filter = ["kind", "vendor"]
    search_fields = ["name", "vendor"]
