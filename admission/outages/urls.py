"""URLs of foreseen outages, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.outages.api import WhatIfView

urlpatterns: list[URLPattern | URLResolver] = [
    path("what-if", WhatIfView.as_view(), name="what-if"),
]
