"""URLs of draw profiles and start estimates, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from admission.learned.api import views

router = SimpleRouter(trailing_slash=False)
router.register("draw-profiles", views.DrawProfileViewSet, "draw-profile")

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    path("start-estimates", views.StartEstimatesView.as_view(), name="start-estimates"),
]
