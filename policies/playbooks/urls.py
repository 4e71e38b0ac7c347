"""URLs of playbooks, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from policies.playbooks.api.playbooks import (
    ActivateView,
    DryRunView,
    PlaybooksView,
    PlaybookVersionsView,
    PlaybookVersionView,
    RetireView,
)
from policies.playbooks.api.runs import PlaybookRunViewSet

router = SimpleRouter(trailing_slash=False)
router.register("playbook-runs", PlaybookRunViewSet, "playbook-run")

_VERSION = "playbooks/<slug:name>/versions/<int:number>"

urlpatterns: list[URLPattern | URLResolver] = [
    path("playbooks", PlaybooksView.as_view(), name="playbooks"),
    path("playbooks/<slug:name>/versions", PlaybookVersionsView.as_view(), name="playbook"),
    path("playbooks/<slug:name>/dry-run", DryRunView.as_view(), name="playbook-dry-run"),
    path(_VERSION, PlaybookVersionView.as_view(), name="playbook-version"),
    path(f"{_VERSION}/activate", ActivateView.as_view(), name="playbook-activate"),
    path(f"{_VERSION}/retire", RetireView.as_view(), name="playbook-retire"),
    *router.urls,
]
