"""URLs of rollouts, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from policies.documents.api import routes
from policies.rollouts.api import views
from policies.rollouts.api.serializers import (
    RolloutCheckedSerializer,
    RolloutVersionSerializer,
)
from policies.rollouts.following import ROLLOUTS, Verb

urlpatterns: list[URLPattern | URLResolver] = [
    path("rollouts", views.RolloutsView.as_view(), name="rollout-list"),
    *routes(
        ROLLOUTS,
        "rollouts",
        RolloutVersionSerializer,
        says=views.says,
        nothing={"sentence": ""},
        says_serializer=RolloutCheckedSerializer,
    ),
    path("rollouts/<slug:name>", views.RolloutView.as_view(), name="rollout-detail"),
    path("rollouts/<slug:name>/start", views.RolloutStartView.as_view(), name="rollout-start"),
    *(
        path(
            f"rollouts/<slug:name>/{verb.replace('_', '-')}",
            views.act_view(verb).as_view(),
            name=f"rollout-{verb.replace('_', '-')}",
        )
        for verb in Verb
    ),
]
