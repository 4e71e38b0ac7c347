"""URLs of the output of jobs, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.logs.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("jobs/<str:name>/logs", views.JobLogsView.as_view(), name="job-logs"),
]
