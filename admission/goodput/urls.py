"""URLs of goodput, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.goodput.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("goodput", views.GoodputView.as_view(), name="goodput"),
    path("jobs/<str:name>/goodput", views.JobGoodputView.as_view(), name="job-goodput"),
]
