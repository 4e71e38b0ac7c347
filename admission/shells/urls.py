"""URLs of terminals in jobs, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.shells.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("jobs/<str:name>/shells", views.JobShellsView.as_view(), name="job-shells"),
]
