"""URLs of goodput, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.goodput.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("goodput", views.GoodputView.as_view(), name="goodput"),
    path(
        "restrictions/<int:pk>/cost", views.RestrictionCostView.as_view(), name="restriction-cost"
    ),
    path("jobs/<str:name>/goodput", views.JobGoodputView.as_view(), name="job-goodput"),
]
