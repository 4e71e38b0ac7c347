"""URLs of headroom, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from policies.headroom.api import ForecastScoresView, HeadroomView, SiteConditionsView

urlpatterns: list[URLPattern | URLResolver] = [
    path("headroom", HeadroomView.as_view(), name="headroom"),
    path("site-conditions", SiteConditionsView.as_view(), name="site-conditions"),
    path("forecast-scores", ForecastScoresView.as_view(), name="forecast-scores"),
]
