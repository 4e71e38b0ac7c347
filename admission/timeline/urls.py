"""URLs of timelines of jobs, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.timeline.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("jobs/<str:name>/timeline", views.JobTimelineView.as_view(), name="job-timeline"),
    path(
        "jobs/<str:name>/timeline/compared",
        views.ComparedView.as_view(),
        name="job-timeline-compared",
    ),
]
