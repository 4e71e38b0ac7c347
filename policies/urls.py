"""URLs of policies, under ``/api/v1/``: each part brings its own."""

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("policies.headroom.urls")),
    path("", include("policies.rules.urls")),
    path("", include("policies.restrictions.urls")),
    path("", include("policies.incidents.urls")),
    path("", include("policies.playbooks.urls")),
    path("", include("policies.rollouts.urls")),
    path("", include("policies.timeline.urls")),
]
