"""URLs of the inventory, under ``/api/v1/``."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from fleet.api import views
from fleet.api.inventory import ApplyView, ExportView, PlanView

router = SimpleRouter(trailing_slash=False)
router.register("sites", views.SiteViewSet, "site")
router.register("power-domains", views.PowerDomainViewSet, "power-domain")
router.register("cooling-zones", views.CoolingZoneViewSet, "cooling-zone")
router.register("storage-endpoints", views.StorageEndpointViewSet, "storage-endpoint")
router.register("racks", views.RackViewSet, "rack")
router.register("nodes", views.NodeViewSet, "node")
router.register("gpus", views.GpuViewSet, "gpu")
router.register("links", views.LinkViewSet, "link")
router.register("meters", views.MeterViewSet, "meter")
router.register("hardware-models", views.HardwareModelViewSet, "hardware-model")

urlpatterns = [
    path("fleet/plan", PlanView.as_view(), name="fleet-plan"),
    path("fleet/apply", ApplyView.as_view(), name="fleet-apply"),
    path("fleet/export", ExportView.as_view(), name="fleet-export"),
    *router.urls,
]
