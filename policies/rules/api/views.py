"""``/api/v1/rules``: rules, their versions, the scopes they fire on, and actions on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import django_filters
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parsers import JSONParser
from accounts.permissions import ViewsFleet, ViewsFleetOrEditsPolicies
from fleet.api.actors import actor_of
from policies.documents.api import DraftSerializer, YamlParser, checked, drafted
from policies.documents.models import States
from policies.rules import actions, document, tasks
from policies.rules.actions import RULES
from policies.rules.api.serializers import (
    ActiveScopeSerializer,
    AskForReplaySerializer,
    EpisodeSerializer,
    ReplaySerializer,
    RuleSerializer,
    RuleVersionSerializer,
)
from policies.rules.machine import Phase
from policies.rules.models import RuleEpisode, RuleProgress, RuleReplay, RuleVersion

_NAME = "[a-z0-9-]{1,100}"


class RuleViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[RuleVersion]
):
    """Rules by name, with the versions that are not retired."""

    queryset = RuleVersion.objects.newest()
    serializer_class = RuleSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    parser_classes = (JSONParser, YamlParser)
    lookup_field = "name"
    lookup_value_regex = _NAME
    cursor_ordering = ("name",)

    def get_queryset(self) -> QuerySet[RuleVersion]:
        """Return one row for each rule, with the firings of its versions together."""
        firing = RuleEpisode.objects.filter(rule=OuterRef("name"), cleared_at=None)
        counted = firing.exclude(mode="shadow").order_by().values("rule").annotate(n=Count("pk"))
        first = RuleVersion.objects.filter(name=OuterRef("name"), number=1)
        return RuleVersion.objects.newest().annotate(
            firing=Coalesce(Subquery(counted.values("n")), 0),
            began_at=Subquery(first.values("created_at")),
        )

    def get_serializer(self, *args: Any, **kwargs: Any) -> Any:
        """Return the serializer, with the versions of all its rules. One query."""
        serializer: Any = super().get_serializer(*args, **kwargs)
        rows = list(args[0]) if args and kwargs.get("many") else list(args[:1])
        alive = RuleVersion.objects.filter(name__in=[row.name for row in rows])
        versions: dict[str, list[RuleVersion]] = {}
        for row in alive.exclude(state=States.RETIRED).defer("text") if rows else ():
            versions.setdefault(row.name, []).append(row)
        serializer.context["versions"] = versions
        return serializer

    @extend_schema(request=DraftSerializer, responses={201: RuleVersionSerializer})
    def create(self, request: Request) -> Response:
        """Add a version, as a draft, of the rule that the text names.

        The body is ``{"text": …, "note": …}`` or, as ``application/yaml``, the text itself.
        """
        return drafted(RULES, RuleVersionSerializer, request)

    @extend_schema(responses=ActiveScopeSerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def state(self, request: Request, name: str) -> Response:
        """List the scopes on which the rule is pending, firing or clearing, by version."""
        live = RuleVersion.objects.live().filter(name=self.get_object().name)
        rows = RuleProgress.objects.filter(version__in=live).select_related("version")
        found = [each for row in rows for each in _active_scopes(row)]
        return Response(ActiveScopeSerializer(found, many=True).data)


def says(text: str) -> dict[str, Any]:
    """Return the fields that a rule's text looks at, for its check."""
    return {"looks_at": sorted(document.read(text).fields)}


class AskForReplayView(APIView):
    permission_classes = (ViewsFleetOrEditsPolicies,)

    @extend_schema(request=AskForReplaySerializer, responses={202: ReplaySerializer})
    def post(self, request: Request, name: str, number: int) -> Response:
        """Run a version over recorded telemetry; its result is at ``/rule-replays/{id}``."""
        body = checked(AskForReplaySerializer, request)
        replay = actions.ask_for_replay(
            actor_of(request),
            _version(name, number),
            body["start"].timestamp(),
            body["end"].timestamp(),
        )
        tasks.replay.delay(replay.pk)
        return Response(ReplaySerializer(replay).data, status=status.HTTP_202_ACCEPTED)


class ReplayViewSet(viewsets.ReadOnlyModelViewSet[RuleReplay]):
    """Replays, the newest first."""

    queryset = RuleReplay.objects.select_related("version")
    serializer_class = ReplaySerializer
    permission_classes = (ViewsFleet,)
    lookup_value_regex = "[0-9]{1,18}"
    cursor_ordering = ("-created_at", "-id")


class EpisodeFilter(django_filters.FilterSet):  # type: ignore[misc]
    rule = django_filters.CharFilter("rule")
    version = django_filters.NumberFilter("version__number", min_value=0, max_value=2**31 - 1)
    mode = django_filters.ChoiceFilter(choices=RuleEpisode.MODES)
    scope_kind = django_filters.CharFilter("scope_kind")
    scope = django_filters.CharFilter("scope_name", help_text="Name of a scope")
    open = django_filters.ChoiceFilter(
        choices=[("1", "it fires"), ("0", "it has cleared")], method="filter_open"
    )

    class Meta:
        model = RuleEpisode
        fields: list[str] = []

    def filter_open(self, rows: Any, name: str, value: str) -> QuerySet[RuleEpisode]:
        found: QuerySet[RuleEpisode] = rows.filter(cleared_at__isnull=value == "1")
        return found


class EpisodeViewSet(viewsets.ReadOnlyModelViewSet[RuleEpisode]):
    """Episodes of rules, and those that shadows would have had, the newest first."""

    queryset = RuleEpisode.objects.select_related("version")
    serializer_class = EpisodeSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = EpisodeFilter
    lookup_value_regex = "[0-9]{1,18}"
    # Many fire at one instant, so time alone would not tell them apart.
    cursor_ordering = ("-fired_at", "-id")


# --- Shared --------------------------------------------------------------------------------------


def _version(name: str, number: int) -> RuleVersion:
    version = RuleVersion.objects.filter(name=name, number=number).first()
    if version is None:
        raise Http404(f"rule {name} has no version {number}")
    return version


def _active_scopes(row: RuleProgress) -> list[dict[str, Any]]:
    kind = document.read(row.version.text).scope.value
    return [
        {
            "version": row.version.number,
            "mode": row.version.state,
            "scope_kind": kind,
            "scope_name": name,
            "phase": Phase(phase).name.lower(),
            **{
                key: None if at is None else datetime.fromtimestamp(at, UTC)
                for key, at in zip(("since", "fired_at", "clear_since"), times, strict=True)
            },
        }
        for name, (phase, *times) in sorted(row.scopes.items())
    ]
