"""URLs of telemetry, under ``/api/v1/``."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from telemetry import views
from telemetry.api.agents import AgentViewSet
from telemetry.api.faults import EccEventViewSet, XidEventViewSet
from telemetry.api.lemons import LemonFindingViewSet
from telemetry.api.limits import LimitReportViewSet
from telemetry.api.power_sources import PowerSourcesView
from telemetry.api.series import SeriesCsvView, SeriesView
from telemetry.api.throttle import ThrottleEventViewSet
from telemetry.api.versions import NodeVersionsViewSet
from telemetry.ingest import views as ingest

router = SimpleRouter(trailing_slash=False)
router.register("agents", AgentViewSet, "agent")
router.register("ecc-events", EccEventViewSet, "ecc-event")
router.register("lemons", LemonFindingViewSet, "lemon")
router.register("limit-reports", LimitReportViewSet, "limit-report")
router.register("throttle-events", ThrottleEventViewSet, "throttle-event")
router.register("versions", NodeVersionsViewSet, "node-versions")
router.register("xid-events", XidEventViewSet, "xid-event")

urlpatterns = [
    path("telemetry", views.push, name="telemetry"),
    path("telemetry/layouts", views.agree, name="telemetry-layouts"),
    path("telemetry/position", views.position, name="telemetry-position"),
    path("prometheus/write", ingest.prometheus_write, name="prometheus-write"),
    path("otlp/v1/metrics", ingest.otlp_metrics, name="otlp-metrics"),
    path("series", SeriesView.as_view(), name="series"),
    path("series.csv", SeriesCsvView.as_view(), name="series-csv"),
    path("power-sources", PowerSourcesView.as_view(), name="power-sources"),
    *router.urls,
]
