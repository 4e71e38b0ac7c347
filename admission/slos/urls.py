"""URLs of service levels, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.slos.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("slos", views.SlosView.as_view(), name="slo-list"),
    path("slo-check", views.SloCheckView.as_view(), name="slo-check"),
    path("slos/<slug:name>", views.SloView.as_view(), name="slo-detail"),
    path("slos/<slug:name>/judgments", views.SloJudgmentsView.as_view(), name="slo-judgments"),
]
