"""URLs of rules, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from policies.rules.api import views

router = SimpleRouter(trailing_slash=False)
router.register("rules", views.RuleViewSet, "rule")
router.register("rule-replays", views.ReplayViewSet, "rule-replay")
router.register("rule-episodes", views.EpisodeViewSet, "rule-episode")

_VERSION = "rules/<slug:name>/versions/<int:number>"

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    path("rule-check", views.CheckView.as_view(), name="rule-check"),
    path(_VERSION, views.VersionView.as_view(), name="rule-version"),
    path(f"{_VERSION}/promote", views.PromoteView.as_view(), name="rule-promote"),
    path(f"{_VERSION}/retire", views.RetireView.as_view(), name="rule-retire"),
    path(f"{_VERSION}/replay", views.AskForReplayView.as_view(), name="rule-replay-ask"),
]
