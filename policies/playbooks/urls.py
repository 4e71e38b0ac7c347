"""URLs of playbooks, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from policies.documents.api import routes
from policies.playbooks.api.playbooks import DryRunView, PlaybooksView, says
from policies.playbooks.api.runs import PlaybookRunViewSet
from policies.playbooks.api.serializers import (
    PlaybookCheckedSerializer,
    PlaybookVersionSerializer,
)
from policies.playbooks.versions import PLAYBOOKS

router = SimpleRouter(trailing_slash=False)
router.register("playbook-runs", PlaybookRunViewSet, "playbook-run")

urlpatterns: list[URLPattern | URLResolver] = [
    path("playbooks", PlaybooksView.as_view(), name="playbooks"),
    path("playbooks/<slug:name>/dry-run", DryRunView.as_view(), name="playbook-dry-run"),
    *routes(
        PLAYBOOKS,
        "playbooks",
        PlaybookVersionSerializer,
        says=says,
        nothing={"scopes": []},
        says_serializer=PlaybookCheckedSerializer,
    ),
    *router.urls,
]
