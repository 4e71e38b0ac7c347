"""URLs of headroom, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from policies.caps.api import ControllerView
from policies.headroom.api import ForecastScoresView, HeadroomView, SiteConditionsView

urlpatterns: list[URLPattern | URLResolver] = [
    path("headroom", HeadroomView.as_view(), name="headroom"),
    path("controller", ControllerView.as_view(), name="controller"),
    path("site-conditions", SiteConditionsView.as_view(), name="site-conditions"),
    path("forecast-scores", ForecastScoresView.as_view(), name="forecast-scores"),
]
