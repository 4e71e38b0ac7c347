"""``/api/v1/rules``: rules and their versions, what they see, and what people do with them."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import django_filters
from django.db.models import Count, Prefetch, Q, QuerySet
from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parameters import whole_number
from accounts.edge.parsers import JSONParser
from accounts.permissions import ViewsFleet, ViewsFleetOrEditsPolicies
from fleet.api.actors import actor_of
from policies.rules import actions, diff, document, tasks
from policies.rules.api.parsers import YamlParser
from policies.rules.api.refusals import refused
from policies.rules.api.serializers import (
    AskForReplaySerializer,
    CheckedSerializer,
    DiffSerializer,
    DraftSerializer,
    EpisodeSerializer,
    PromoteSerializer,
    ReplaySerializer,
    RetireSerializer,
    RuleSerializer,
    StandingSerializer,
    VersionSerializer,
    VersionSummarySerializer,
)
from policies.rules.errors import RuleError
from policies.rules.machine import Phase
from policies.rules.models import Rule, RuleEpisode, RuleProgress, RuleReplay, RuleVersion

if TYPE_CHECKING:
    pass

_NAME = "[a-z0-9-]{1,100}"


class RuleViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Rule]):
    """Rules by name, with the versions that are not retired."""

    queryset = Rule.objects.annotate(
        firing=Count(
            "versions__episodes",
            filter=Q(versions__episodes__cleared_at=None) & ~Q(versions__episodes__mode="shadow"),
        )
    ).prefetch_related(Prefetch("versions", RuleVersion.objects.select_related("rule")))
    serializer_class = RuleSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    parser_classes = (JSONParser, YamlParser)
    lookup_field = "name"
    lookup_value_regex = _NAME
    cursor_ordering = ("name",)

    @extend_schema(request=DraftSerializer, responses={201: VersionSerializer})
    def create(self, request: Request) -> Response:
        """Add a version, as a draft, of the rule that the text names.

        The body is ``{"text": …, "note": …}`` or, as ``application/yaml``, the text itself.
        """
        body = _checked(DraftSerializer, request)
        try:
            version = actions.create_draft(actor_of(request), body["text"], note=body["note"])
        except RuleError as error:
            return refused(error, "invalid_rule")
        return Response(VersionSerializer(version).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses=VersionSummarySerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def versions(self, request: Request, name: str) -> Response:
        """List all versions, the newest first."""
        rows = self.get_object().versions.select_related("rule").order_by("-number")
        return Response(VersionSummarySerializer(rows, many=True).data)

    @extend_schema(responses=StandingSerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def state(self, request: Request, name: str) -> Response:
        """List the scopes on which the rule is pending, firing or clearing, by version."""
        rows = RuleProgress.objects.filter(version__in=self.get_object().versions.live())
        found = [
            standing for row in rows.select_related("version__rule") for standing in _standings(row)
        ]
        return Response(StandingSerializer(found, many=True).data)

    @extend_schema(
        parameters=[
            OpenApiParameter("old", OpenApiTypes.INT, required=True),
            OpenApiParameter("new", OpenApiTypes.INT, required=True),
        ],
        responses=DiffSerializer,
        filters=False,
    )
    @action(detail=True, methods=["get"])
    def diff(self, request: Request, name: str) -> Response:
        """Compare two versions: their texts, and what they say."""
        old, new = (_version(name, _number(request, key)) for key in ("old", "new"))
        text = diff.text_diff(old.text, new.text, old_name=str(old), new_name=str(new))
        changes = [dataclasses.asdict(each) for each in diff.changes(old.text, new.text)]
        return Response(DiffSerializer({"text": text, "changes": changes}).data)


class CheckView(APIView):
    """Whether a text is a rule, and if not, what is wrong where. Nothing is kept."""

    permission_classes = (ViewsFleet,)
    parser_classes = (JSONParser, YamlParser)

    @extend_schema(request=DraftSerializer, responses=CheckedSerializer)
    def post(self, request: Request) -> Response:
        """Check a rule's text."""
        body = _checked(DraftSerializer, request)
        try:
            rule = document.read(body["text"])
        except RuleError as error:
            problems = [dataclasses.asdict(each) for each in error.problems]
            return Response({"problems": problems, "looks_at": []})
        return Response({"problems": [], "looks_at": sorted(rule.fields)})


class VersionView(APIView):
    """One version."""

    permission_classes = (ViewsFleet,)

    @extend_schema(responses=VersionSerializer)
    def get(self, request: Request, name: str, number: int) -> Response:
        """Show a version with its text, and where it could not be evaluated."""
        return Response(VersionSerializer(_version(name, number)).data)


class PromoteView(APIView):
    permission_classes = (ViewsFleetOrEditsPolicies,)

    @extend_schema(request=PromoteSerializer, responses=VersionSerializer)
    def post(self, request: Request, name: str, number: int) -> Response:
        """Bring a version to shadow, canary or active. Its author cannot have it count."""
        body = _checked(PromoteSerializer, request)
        try:
            version = actions.promote(
                actor_of(request), _version(name, number), body["to"], share=body["share"]
            )
        except actions.Refused as error:
            raise _api_error(error) from error
        return Response(VersionSerializer(version).data)


class RetireView(APIView):
    permission_classes = (ViewsFleetOrEditsPolicies,)

    @extend_schema(request=RetireSerializer, responses=VersionSerializer)
    def post(self, request: Request, name: str, number: int) -> Response:
        """Take a version out of use."""
        body = _checked(RetireSerializer, request)
        try:
            version = actions.retire(actor_of(request), _version(name, number), why=body["why"])
        except actions.Refused as error:
            raise _api_error(error) from error
        return Response(VersionSerializer(version).data)


class AskForReplayView(APIView):
    permission_classes = (ViewsFleetOrEditsPolicies,)

    @extend_schema(request=AskForReplaySerializer, responses={202: ReplaySerializer})
    def post(self, request: Request, name: str, number: int) -> Response:
        """Run a version over recorded telemetry; its result is at ``/rule-replays/{id}``."""
        body = _checked(AskForReplaySerializer, request)
        try:
            replay = actions.ask_for_replay(
                actor_of(request),
                _version(name, number),
                body["start"].timestamp(),
                body["end"].timestamp(),
            )
        except actions.Refused as error:
            raise _api_error(error) from error
        tasks.replay.delay(replay.pk)
        return Response(ReplaySerializer(replay).data, status=status.HTTP_202_ACCEPTED)


class ReplayViewSet(viewsets.ReadOnlyModelViewSet[RuleReplay]):
    """Replays, the newest first."""

    queryset = RuleReplay.objects.select_related("version__rule")
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
    """What rules did on which scope, or as shadows would have done, the newest first."""

    queryset = RuleEpisode.objects.select_related("version")
    serializer_class = EpisodeSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = EpisodeFilter
    lookup_value_regex = "[0-9]{1,18}"
    # Many fire at one instant, so time alone would not tell them apart.
    cursor_ordering = ("-fired_at", "-id")


# --- Shared --------------------------------------------------------------------------------------


def _checked(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    given = kind(data=request.data)
    given.is_valid(raise_exception=True)
    checked: dict[str, Any] = given.validated_data
    return checked


def _version(name: str, number: int) -> RuleVersion:
    found = RuleVersion.objects.select_related("rule").filter(rule__name=name, number=number)
    version = found.first()
    if version is None:
        raise Http404(f"rule {name} has no version {number}")
    return version


def _number(request: Request, key: str) -> int:
    number = whole_number(request.query_params.get(key, ""), most=10**9)
    if number is None:
        raise ValidationError({key: "Give the number of a version."})
    return number


def _api_error(error: actions.Refused) -> ValidationError:
    message = f"{error.message}." + (f" The way out: {error.hint}." if error.hint else "")
    detail = ErrorDetail(message, code="refused")
    return ValidationError({error.field or "version": [detail]})


def _standings(row: RuleProgress) -> list[dict[str, Any]]:
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
