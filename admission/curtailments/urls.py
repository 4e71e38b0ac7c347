"""URLs of curtailments, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver
from rest_framework.routers import SimpleRouter

from admission.curtailments.api import views

router = SimpleRouter(trailing_slash=False)
router.register("curtailments", views.CurtailmentViewSet, "curtailment")

urlpatterns: list[URLPattern | URLResolver] = [*router.urls]
