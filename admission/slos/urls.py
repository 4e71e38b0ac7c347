"""URLs of service levels, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.slos.actions import SLOS
from admission.slos.api import views
from admission.slos.api.serializers import SloCheckedSerializer, SloVersionSerializer
from policies.documents.api import routes

urlpatterns: list[URLPattern | URLResolver] = [
    path("slos", views.SlosView.as_view(), name="slo-list"),
    *routes(
        SLOS,
        "slos",
        SloVersionSerializer,
        says=views.says,
        nothing={"sentence": ""},
        says_serializer=SloCheckedSerializer,
    ),
    path("slos/<slug:name>", views.SloView.as_view(), name="slo-detail"),
    path("slos/<slug:name>/judgments", views.SloJudgmentsView.as_view(), name="slo-judgments"),
]
