"""URLs of admission, under ``/api/v1/``, part by part."""

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("admission.jobs.urls")),
    path("", include("admission.executors.urls")),
    path("", include("admission.logs.urls")),
    path("", include("admission.goodput.urls")),
    path("", include("admission.baselines.urls")),
    path("", include("admission.losses.urls")),
    path("", include("admission.timeline.urls")),
    path("", include("admission.shells.urls")),
    path("", include("admission.directives.urls")),
    path("", include("admission.policy.urls")),
    path("", include("admission.slos.urls")),
    path("", include("admission.learned.urls")),
    path("", include("admission.curtailments.urls")),
    path("", include("admission.bookings.urls")),
    path("", include("admission.outages.urls")),
    path("", include("admission.annotations.urls")),
    path("", include("admission.energy.urls")),
    path("", include("admission.failures.urls")),
    path("", include("admission.diagnosis.urls")),
    path("", include("admission.calendar.urls")),
]
