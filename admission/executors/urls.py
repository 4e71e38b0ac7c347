"""URLs of machines that run jobs, and of schedulers, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.executors import views
from admission.executors.schedulers.views import scheduler

urlpatterns: list[URLPattern | URLResolver] = [
    path("work", views.work, name="work"),
    path("schedulers/<str:name>", scheduler, name="scheduler"),
]
