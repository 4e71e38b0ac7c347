"""URLs of annotations, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.annotations.api import EventsView

urlpatterns: list[URLPattern | URLResolver] = [
    # What a Graphite has behind the address of the data source.
    path("annotations/events/get_data", EventsView.as_view(), name="annotations"),
]
