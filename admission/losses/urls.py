"""URLs of losses, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.losses import api

urlpatterns: list[URLPattern | URLResolver] = [
    path("losses", api.LossesView.as_view(), name="losses"),
]
