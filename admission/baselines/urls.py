"""URLs of baselines, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.baselines.api import BaselinesView, JobBaselinesView

urlpatterns: list[URLPattern | URLResolver] = [
    path("baselines", BaselinesView.as_view(), name="baselines"),
    path("jobs/<str:name>/baselines", JobBaselinesView.as_view(), name="job-baselines"),
]
