"""URLs of failures, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.failures.api import FailuresView

urlpatterns: list[URLPattern | URLResolver] = [
    path("failures", FailuresView.as_view(), name="failures"),
]
