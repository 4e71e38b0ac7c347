"""URLs of rules, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from policies.documents.api import routes
from policies.rules.actions import RULES
from policies.rules.api import views
from policies.rules.api.serializers import RuleCheckedSerializer, RuleVersionSerializer

router = SimpleRouter(trailing_slash=False)
router.register("rules", views.RuleViewSet, "rule")
router.register("rule-replays", views.ReplayViewSet, "rule-replay")
router.register("rule-episodes", views.EpisodeViewSet, "rule-episode")

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    *routes(
        RULES,
        "rules",
        RuleVersionSerializer,
        says=views.says,
        nothing={"looks_at": []},
        says_serializer=RuleCheckedSerializer,
    ),
    path(
        "rules/<slug:name>/versions/<int:number>/replay",
        views.AskForReplayView.as_view(),
        name="rule-replay-ask",
    ),
]
