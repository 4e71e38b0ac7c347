"""All URLs: endpoints for machines, the REST API, the account, the admin site, the pages."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from config import health, metrics
from config.schema import SchemaView

handler400 = "config.errors.bad_request"
handler403 = "config.errors.permission_denied"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"

api: list[URLPattern | URLResolver] = [
    path("schema", SchemaView.as_view(), name="schema"),
    path("", include("accounts.api_urls")),
    path("", include("fleet.urls")),
    path("", include("telemetry.urls")),
    path("", include("policies.urls")),
    path("", include("admission.urls")),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("api/v1/", include(api)),
    # Before the admin site, two of whose pages it replaces.
    path("", include("accounts.urls")),
    path("admin/", admin.site.urls),
    path("", include("dashboard.urls")),
]
