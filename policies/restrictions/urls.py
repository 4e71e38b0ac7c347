"""URLs of restrictions, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from policies.restrictions import views
from policies.restrictions.api.views import EffectiveView, FleetBreakerView, RestrictionViewSet

router = SimpleRouter(trailing_slash=False)
router.register("restrictions", RestrictionViewSet, "restriction")

urlpatterns: list[URLPattern | URLResolver] = [
    path("limits", views.agents_limits, name="limits"),
    path("restrictions/effective", EffectiveView.as_view(), name="restrictions-effective"),
    path("fleet-breaker", FleetBreakerView.as_view(), name="fleet-breaker"),
    *router.urls,
]
