"""URLs of figures of incidents, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from policies.timeline.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path(
        "incidents/<str:number>/figure", views.IncidentFigureView.as_view(), name="incident-figure"
    ),
]
