"""URLs of telemetry, under ``/api/v1/``."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from telemetry import views
from telemetry.api.agents import AgentViewSet
from telemetry.api.series import SeriesCsvView, SeriesView
from telemetry.api.throttle import ThrottleEventViewSet

router = SimpleRouter(trailing_slash=False)
router.register("agents", AgentViewSet, "agent")
router.register("throttle-events", ThrottleEventViewSet, "throttle-event")

urlpatterns = [
    path("telemetry", views.push, name="telemetry"),
    path("telemetry/position", views.position, name="telemetry-position"),
    path("series", SeriesView.as_view(), name="series"),
    path("series.csv", SeriesCsvView.as_view(), name="series-csv"),
    *router.urls,
]
