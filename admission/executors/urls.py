"""URLs of machines that run jobs, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.executors import views

urlpatterns: list[URLPattern | URLResolver] = [path("work", views.work, name="work")]
